"""The jar folder: complete or not, by the files in it."""

from pathlib import Path

import pytest

from pipelines.tidemark.local.spark import jars
from pipelines.tidemark.local.spark.jars import JarsMissing, expected_jars, fetch_jars
from pipelines.tidemark.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A folder that has every jar, and one of an older version."""
    made = Settings(state_dir=tmp_path, jars_dir=tmp_path / "jars")
    (tmp_path / "jars" / "jars").mkdir(parents=True)
    for name in (*expected_jars(), "org.apache.hadoop_hadoop-aws-3.3.0.jar"):
        (tmp_path / "jars" / "jars" / name).touch()
    return made


def test_a_complete_folder_is_not_fetched_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(jars, "_run_ivy")
    fetch_jars(settings)
    assert {jar.name for jar in (settings.jars_dir / "jars").iterdir()} == expected_jars()


def test_a_fetch_that_brings_nothing_names_a_jar_and_shows_what_ivy_said(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "_run_ivy", lambda *_: "connection refused")
    gone = "org.xerial_sqlite-jdbc-3.50.3.0.jar"
    (settings.jars_dir / "jars" / gone).unlink()
    with pytest.raises(JarsMissing, match=rf"1 jars? .*{gone}.*\nconnection refused") as caught:
        fetch_jars(settings)
    assert caught.value.missing == [gone]


def test_nothing_is_fetched_that_spark_has_itself() -> None:
    names = " ".join(expected_jars())
    assert not any(part in names for part in ("netty-common", "slf4j", "hadoop-client", "bundle-", "kafka"))
