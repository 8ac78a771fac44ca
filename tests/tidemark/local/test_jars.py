"""The jar folder: complete or not, by the files in it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import platformdirs
import pytest

from dagster_tidemark.local.spark import ivy
from dagster_tidemark.local.spark.ivy import Bundle, JarsMissing, fetch_with_dependencies, has_bundle
from dagster_tidemark.local.spark.jars import expected_jars, fetch_jars
from dagster_tidemark.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A folder that has every jar, and one of an older version."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "cache")
    made = Settings(state_dir=tmp_path, jars_dir=tmp_path / "jars")
    (tmp_path / "jars" / "jars").mkdir(parents=True)
    for name in (*expected_jars(), "org.apache.hadoop_hadoop-aws-3.3.0.jar"):
        (tmp_path / "jars" / "jars" / name).touch()
    return made


def test_complete_jar_folder_is_not_fetched_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ivy, "run_ivy")
    fetch_jars(settings)
    assert {jar.name for jar in (settings.jars_dir / "jars").iterdir()} == expected_jars()


def test_failed_jar_fetch_reports_a_missing_jar_and_the_ivy_output(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivy, "run_ivy", lambda *_: "connection refused")
    gone = "org.xerial_sqlite-jdbc-3.50.3.0.jar"
    (settings.jars_dir / "jars" / gone).unlink()
    with pytest.raises(JarsMissing, match=rf"1 jars? .*{gone}.*\nconnection refused") as caught:
        fetch_jars(settings)
    assert caught.value.missing == [gone]


def test_jars_included_in_spark_are_not_fetched() -> None:
    names = " ".join(expected_jars())
    assert not any(part in names for part in ("netty-common", "slf4j", "hadoop-client", "bundle-", "kafka"))


def test_removed_jar_folder_is_restored_from_the_cache(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ivy, "run_ivy")
    (settings.jars_dir / "jars").rename(settings.state_dir / "cache-jars")
    (settings.state_dir / "cache").mkdir()
    (settings.state_dir / "cache-jars").rename(settings.state_dir / "cache" / "jars")
    fetch_jars(settings)
    assert {jar.name for jar in (settings.jars_dir / "jars").iterdir()} == expected_jars()
    older = settings.state_dir / "cache" / "jars" / "org.apache.hadoop_hadoop-aws-3.3.0.jar"
    assert older.exists(), "another checkout may need it"


def test_jars_are_fetched_without_the_cache_if_it_is_not_writable(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.state_dir / "cache").touch()
    gone = settings.jars_dir / "jars" / "org.xerial_sqlite-jdbc-3.50.3.0.jar"
    gone.unlink()
    monkeypatch.setattr(ivy, "run_ivy", lambda _, folder, *__: (folder / "jars" / gone.name).touch())
    fetch_jars(settings)
    assert gone.exists()


BUNDLE = Bundle("thing", ((("org.thing:thing:1.0",), ()), (("org.thing:more:1.0",), ("org.other:*",))), count=2)


def _brings(jars: str, said: str = "") -> Callable[..., str]:
    def run_ivy(_: Settings, folder: Path, coordinates: Sequence[str], *__: object) -> str:
        (folder / "jars").mkdir(exist_ok=True)
        for name in jars.split():
            (folder / "jars" / f"{name}-{coordinates[0].replace(':', '_')}.jar").touch()
        return said

    return run_ivy


def test_jar_bundle_is_fetched_once_for_all_checkouts(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(ivy, "run_ivy", _brings("a"))
    assert not has_bundle(settings, BUNDLE)
    jars = fetch_with_dependencies(settings, BUNDLE, lambda *count: told.append(count))
    assert [jar.name for jar in jars] == ["a-org.thing_more_1.0.jar", "a-org.thing_thing_1.0.jar"]
    assert has_bundle(settings, BUNDLE) and told[-1] == (2, 2)

    monkeypatch.delattr(ivy, "run_ivy")
    assert fetch_with_dependencies(settings, BUNDLE) == jars
    other = settings.model_copy(update={"jars_dir": settings.state_dir / "other"})
    assert [jar.name for jar in fetch_with_dependencies(other, BUNDLE)] == [jar.name for jar in jars]


def test_newer_jar_bundle_replaces_the_old_version(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivy, "run_ivy", _brings("a b"))
    fetch_with_dependencies(settings, BUNDLE)
    newer = Bundle("thing", ((("org.thing:thing:2.0",), ()),), count=1)
    assert not has_bundle(settings, newer)
    assert [jar.name for jar in fetch_with_dependencies(settings, newer)] == [
        "a-org.thing_thing_2.0.jar",
        "b-org.thing_thing_2.0.jar",
    ]


def test_incomplete_jar_bundle_is_reported_and_fetched_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivy, "run_ivy", _brings("a", said="UNRESOLVED DEPENDENCIES"))
    with pytest.raises(JarsMissing, match="UNRESOLVED"):
        fetch_with_dependencies(settings, BUNDLE)
    assert not has_bundle(settings, BUNDLE)
    monkeypatch.setattr(ivy, "run_ivy", _brings("a"))
    assert len(fetch_with_dependencies(settings, BUNDLE)) == 2
