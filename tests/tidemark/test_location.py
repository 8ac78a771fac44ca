"""Commands know the declarations of a code location: from its lists, or from what its definitions pass to `extend`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_tidemark import location
from dagster_tidemark.local.dagster.dev import loaded
from dagster_tidemark.settings import load_settings

DEFINITIONS = """
import dagster as dg
from dagster_tidemark import LINEAGE, MESSAGE, Feed, Grain, Table, extend, feed_assets, load_settings
from dagster_tidemark.streams import Stream

DAYS = dg.DailyPartitionsDefinition("2026-10-05", end_offset=1)
FEED = Feed("trips", "trips/", Grain.DAY, {"trip_id": "bigint"}, required=("trip_id",))
TRIPS = Table("core.trips", {"day": "date", "trip_id": "bigint"} | LINEAGE, partitioned_by="day",
              row_key=("day", "trip_id"))
PINGS = Table("raw.pings", {"shop": "bigint"} | MESSAGE, row_key=("message_id",))
STREAM = Stream(name="pings", table=PINGS, queue="pings", required=("shop",))
assets = [*feed_assets(FEED, TRIPS, partitions_def=DAYS), dg.AssetSpec(key=["raw", "pings"])]


def extended():
    return extend(dg.Definitions(), load_settings(), assets=assets, tables=[TRIPS, PINGS], feeds=[FEED],
                  streams=[STREAM])


"""
CALLED, FUNCTION = "defs = extended()\n", "defs = dg.definitions(extended)\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an empty code location."""
    folder = tmp_path / f"acme_{tmp_path.name}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", folder.name)
    yield folder
    for name in [each for each in sys.modules if each.partition(".")[0] == folder.name]:
        del sys.modules[name]


def names() -> tuple[list[str], list[str], list[str]]:
    """Return the names of the feeds, streams and tables that commands know."""
    settings = load_settings()
    known = location.feeds(settings), location.streams(settings)
    return [each.name for each in known[0]], [each.name for each in known[1]], sorted(location.tables(settings))


@pytest.mark.parametrize("defs", [CALLED, FUNCTION])
def test_commands_know_what_an_existing_location_passes_to_extend(package: Path, defs: str) -> None:
    (package / "definitions.py").write_text(DEFINITIONS + defs)
    assert names() == (["trips"], ["pings"], ["core.trips", "raw.pings"])


@pytest.mark.parametrize("defs", [CALLED, FUNCTION])
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "package"])
def test_commands_know_a_location_without_a_module_definitions(package: Path, defs: str, is_file: bool) -> None:
    (package / "__init__.py").write_text(DEFINITIONS + defs)
    if is_file:
        (package / "__init__.py").rename(package.with_suffix(".py"))
        package.rmdir()
    settings = load_settings()
    assert names() == (["trips"], ["pings"], ["core.trips", "raw.pings"])
    assert location.definitions(settings).resolve_asset_graph().has(dg.AssetKey(["core", "trips"]))
    of_this_project = settings.model_copy(update={"project": package.parent})
    assert loaded(of_this_project) == ["-m", package.name, "-d", str(package.parent)]


@pytest.mark.parametrize("defs", [CALLED, FUNCTION])
@pytest.mark.parametrize("file", ["definitions.py", "__init__.py", "../{}.py"])
def test_only_definitions_of_a_module_are_found_under_any_name(package: Path, defs: str, file: str) -> None:
    (package / "__init__.py").touch()
    if file.startswith(".."):
        (package / "__init__.py").unlink()
        package.rmdir()
        package.with_suffix(".py").write_text(DEFINITIONS + defs.replace("defs =", "built ="))
    else:
        (package / file).write_text(DEFINITIONS + defs.replace("defs =", "built ="))
    assert names() == (["trips"], ["pings"], ["core.trips", "raw.pings"])


@pytest.mark.parametrize(("made", "found"), [("", "none"), ("one = extended()\ntwo = dg.Definitions()\n", "one, two")])
def test_module_without_one_definitions_is_refused_with_the_names_in_it(package: Path, made: str, found: str) -> None:
    (package / "definitions.py").write_text(DEFINITIONS + made)
    with pytest.raises(location.LocationBroken) as refused:
        location.definitions(load_settings())
    module = f"{package.name}.definitions"
    assert str(refused.value) == f"module {module}: expected one dg.Definitions, found {found}; name it `defs`"


def test_unrelated_modules_and_lists_with_the_names_of_ours_are_ignored(package: Path) -> None:
    (package / "feeds.py").write_text('FEEDS = ["https://acme.example/rss"]\n')
    (package / "streams.py").write_text("class Stream: ...\n")
    (package / "definitions.py").write_text(DEFINITIONS + CALLED + 'TABLES = ["public.shops"]\n')
    assert names() == (["trips"], ["pings"], ["core.trips", "raw.pings"])


def test_location_that_lists_feeds_and_no_streams_has_none_and_its_definitions_are_not_loaded(package: Path) -> None:
    (package / "definitions.py").write_text("raise SystemExit('loaded')\n")
    (package / "feeds.py").write_text("from dagster_tidemark import Feed\nFEEDS = []\n")
    settings = load_settings()
    assert not location.feeds(settings) and not location.streams(settings)


def test_definitions_without_tidemark_declare_nothing(package: Path) -> None:
    (package / "definitions.py").write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    assert names() == ([], [], [])
