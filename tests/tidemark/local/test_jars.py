"""The jar folder: complete or not, by the files in it."""

from pathlib import Path

import pytest

from pipelines.tidemark.local.spark import jars
from pipelines.tidemark.local.spark.jars import JarsMissing, expected_jars, fetch_jars
from pipelines.tidemark.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A folder that has every jar, and one of an older version."""
    monkeypatch.setattr(jars, "user_cache_path", lambda *_, **__: tmp_path / "cache")
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


def test_a_folder_that_was_removed_is_filled_from_the_cache(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(jars, "_run_ivy")
    (settings.jars_dir / "jars").rename(settings.state_dir / "cache-jars")
    (settings.state_dir / "cache").mkdir()
    (settings.state_dir / "cache-jars").rename(settings.state_dir / "cache" / "jars")
    fetch_jars(settings)
    assert {jar.name for jar in (settings.jars_dir / "jars").iterdir()} == expected_jars()
    older = settings.state_dir / "cache" / "jars" / "org.apache.hadoop_hadoop-aws-3.3.0.jar"
    assert older.exists(), "another checkout may need it"


def test_where_the_cache_cannot_be_written_the_folder_is_its_own(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.state_dir / "cache").touch()
    gone = settings.jars_dir / "jars" / "org.xerial_sqlite-jdbc-3.50.3.0.jar"
    gone.unlink()
    monkeypatch.setattr(jars, "_run_ivy", lambda _, folder, *__: (folder / "jars" / gone.name).touch())
    fetch_jars(settings)
    assert gone.exists()
