"""The jar folder: complete or not, by the files in it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import platformdirs
import pytest

from dagster_tidemark.local.spark import jars
from dagster_tidemark.local.spark.jars import COORDINATES, LAKE, Bundle, JarsMissing, fetch_jars
from dagster_tidemark.settings import Settings

GONE = "org.xerial_sqlite-jdbc-3.50.3.0.jar"
OLDER = "org.apache.hadoop_hadoop-aws-3.3.0.jar"
DEPENDENCIES = LAKE.count - len(COORDINATES)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A folder that has every jar of the lake, under a cache of its own."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "cache")
    made = Settings(state_dir=tmp_path, jars_dir=tmp_path / "jars")
    fill(LAKE.folder(made), COORDINATES, dependencies=DEPENDENCIES)
    return made


def fill(folder: Path, coordinates: Sequence[str], *, dependencies: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for group, artifact, version in (coordinate.split(":") for coordinate in coordinates):
        (folder / f"{group}_{artifact}-{version}.jar").touch()
    for number in range(dependencies):
        (folder / f"org.other_dependency{number}-1.0.jar").touch()


def in_folder(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def brings(said: str = "", dependencies: int = 1) -> Callable[..., str]:
    """Return a download that writes the requested jars; each call the same dependencies."""

    def run_ivy(_: Settings, folder: Path, coordinates: Sequence[str], *__: object) -> str:
        fill(folder / "jars", coordinates, dependencies=dependencies)
        return said

    return run_ivy


def test_complete_jar_folder_is_not_fetched_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(jars, "run_ivy")
    assert LAKE.is_complete(settings)
    assert {jar.name for jar in fetch_jars(settings)} == in_folder(LAKE.folder(settings))


def test_failed_jar_fetch_reports_a_missing_jar_and_the_ivy_output(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "run_ivy", lambda *_: "connection refused")
    (LAKE.folder(settings) / GONE).unlink()
    kept = in_folder(LAKE.folder(settings))
    with pytest.raises(JarsMissing, match=rf"{len(COORDINATES)} jars .*\nconnection refused") as caught:
        fetch_jars(settings)
    assert GONE in caught.value.missing
    assert in_folder(LAKE.folder(settings)) == kept, "a running server may use the others"


@pytest.mark.parametrize("count", [DEPENDENCIES - 1, DEPENDENCIES + 1])
def test_jar_folder_with_another_number_of_dependencies_is_not_complete(settings: Settings, count: int) -> None:
    for jar in LAKE.folder(settings).glob("org.other_*"):
        jar.unlink()
    fill(LAKE.folder(settings), (), dependencies=count)
    assert LAKE.missing(LAKE.folder(settings)) == [f"a dependency (expected 44 jars, found {count + len(COORDINATES)})"]


def test_removed_jar_folder_is_restored_from_the_cache(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "run_ivy", brings(dependencies=DEPENDENCIES))
    other = settings.model_copy(update={"jars_dir": settings.state_dir / "other"})
    fetched = in_folder(fetch_jars(other)[0].parent)
    monkeypatch.delattr(jars, "run_ivy")
    (LAKE.folder(settings) / GONE).rename(LAKE.folder(settings) / OLDER)
    fetch_jars(settings)
    assert in_folder(LAKE.folder(settings)) == fetched, "two versions on one class path do not work"


def test_jars_are_fetched_without_the_cache_if_it_is_not_writable(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.state_dir / "cache").touch()
    monkeypatch.setattr(jars, "run_ivy", brings(dependencies=DEPENDENCIES))
    (LAKE.folder(settings) / GONE).unlink()
    fetch_jars(settings)
    assert LAKE.is_complete(settings)
    assert in_folder(settings.jars_dir) == {".lock", "jars"}, "the download is removed"


BUNDLE = Bundle("thing", ((("org.thing:thing:1.0",), ()), (("org.thing:more:1.0",), ("org.other:*",))), count=3)


def test_jar_bundle_is_fetched_once_for_all_checkouts(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(jars, "run_ivy", brings())
    assert not BUNDLE.is_complete(settings)
    found = fetch_jars(settings, BUNDLE, lambda *count: told.append(count))
    assert [jar.name for jar in found] == [
        "org.other_dependency0-1.0.jar",
        "org.thing_more-1.0.jar",
        "org.thing_thing-1.0.jar",
    ]
    assert BUNDLE.is_complete(settings) and told[-1] == (3, 3)

    monkeypatch.delattr(jars, "run_ivy")
    assert fetch_jars(settings, BUNDLE) == found
    other = settings.model_copy(update={"jars_dir": settings.state_dir / "other"})
    assert [jar.name for jar in fetch_jars(other, BUNDLE)] == [jar.name for jar in found]


def test_newer_jar_bundle_replaces_the_old_version(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "run_ivy", brings())
    fetch_jars(settings, BUNDLE)
    newer = Bundle("thing", ((("org.thing:thing:2.0",), ()),), count=2)
    assert not newer.is_complete(settings)
    assert [jar.name for jar in fetch_jars(settings, newer)] == [
        "org.other_dependency0-1.0.jar",
        "org.thing_thing-2.0.jar",
    ]
    monkeypatch.delattr(jars, "run_ivy")
    assert len(fetch_jars(settings, BUNDLE)) == 3, "another checkout may need the old version"


def test_incomplete_jar_bundle_is_reported_and_fetched_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "run_ivy", brings(said="UNRESOLVED DEPENDENCIES"))
    with pytest.raises(JarsMissing, match="UNRESOLVED"):
        fetch_jars(settings, BUNDLE)
    assert not BUNDLE.is_complete(settings)
    monkeypatch.setattr(jars, "run_ivy", brings())
    assert len(fetch_jars(settings, BUNDLE)) == 3
