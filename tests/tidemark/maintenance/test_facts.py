"""Facts are read from Iceberg's metadata alone; a table that cannot be read is named, and nothing is removed then."""

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dagster_tidemark.lakehouse.append import TableCommit, open_lake
from dagster_tidemark.lakehouse.maintenance import facts as facts_module
from dagster_tidemark.lakehouse.maintenance.due import Action, MaintenancePolicy, TableFacts
from dagster_tidemark.lakehouse.maintenance.facts import NotRead, TableNeeds, facts_of, needs_of, pins_of
from dagster_tidemark.lakehouse.table import Retention, Table
from dagster_tidemark.maintenance.lake_facts import LakeFacts, locations
from dagster_tidemark.maintenance.maintained_tables import TableUpkeep
from dagster_tidemark.maintenance.spare_time import OpenRuns
from dagster_tidemark.settings import Settings
from tests.tidemark.maintenance.conftest import commits, table

NO_RUNS = OpenRuns(0, 0, None, float("inf"), {}, ())
SHORT = Retention(held_for=timedelta(0))
POLICY = MaintenancePolicy()


def read(settings: Settings, of: Table, *, runs_since: float | None = None, later: float = 1.0) -> TableFacts:
    found, now = open_lake(settings).load_table(of.name), time.time() + later
    pins = pins_of([needs_of(found)], now if runs_since is None else runs_since, now)
    return facts_of(of, found, pins, POLICY, now)


def test_facts_count_small_files_and_expirable_snapshots(settings: Settings) -> None:
    of = replace(table("core.orders"), retention=SHORT)
    commits(settings, of, 6)
    found = read(settings, of)
    assert (found.small_files, found.manifests, len(found.expirable), found.delete_files) == (6, 4, 5, 0)
    assert found.bytes > 0 and found.since is not None and found.since < time.time()


def test_snapshots_younger_than_held_for_or_than_a_run_stay(settings: Settings) -> None:
    of = table("core.orders")
    began = time.time()
    commits(settings, of, 6)
    assert read(settings, of).expirable == (), "all were current within the last hour"
    assert len(read(settings, of, later=3700).expirable) == 5
    assert read(settings, of, later=3700, runs_since=began).expirable == ()


def test_properties_of_the_tables_owner_keep_more(settings: Settings) -> None:
    of = replace(table("core.orders"), retention=SHORT)
    writer = commits(settings, of, 6)
    writer.commit(TableCommit(marks={"history.expire.min-snapshots-to-keep": "4"}))
    assert len(read(settings, of).expirable) == 2
    writer.commit(TableCommit(marks={"history.expire.max-snapshot-age-ms": "60000"}))
    assert read(settings, of).expirable == () and len(read(settings, of, later=70).expirable) == 2


def test_snapshot_that_another_table_continues_after_stays(settings: Settings) -> None:
    readings, alerts = replace(table("raw.readings"), retention=SHORT), table("alerts.cold_chain")
    first = commits(settings, readings, 2)
    pinned = first.head
    commits(settings, readings, 4)
    of_alerts = commits(settings, alerts, 1)
    of_alerts.commit(TableCommit(marks={"tidemark.incorporates": str(pinned)}))
    lake, now = LakeFacts({t.name: t for t in (readings, alerts)}), time.time() + 1
    catalog = open_lake(settings)
    for name in (*lake.tables, readings.name):
        lake.read(catalog, name, TableUpkeep(), NO_RUNS, now)
    assert len(lake.facts[readings.name].expirable) == 1, "only the one before it"
    for name in lake.tables:
        lake.read(catalog, name, TableUpkeep(), NO_RUNS, now + 8 * 86_400)
    assert len(lake.facts[readings.name].expirable) == 5, "a stream that ended a week ago holds nothing"


def test_unreadable_table_is_named_and_no_table_loses_snapshots_or_files(settings: Settings) -> None:
    good, bad, missing = replace(table("core.orders"), retention=SHORT), table("core.bad"), table("core.missing")
    commits(settings, good, 6)
    Path(commits(settings, bad, 1)._loaded.metadata_location.removeprefix("file:")).unlink()
    lake, now = LakeFacts({t.name: t for t in (good, bad, missing)}, POLICY.at_once()), time.time() + 1
    catalog = open_lake(settings)
    lake.read(catalog, good.name, TableUpkeep(), NO_RUNS, now)
    removing = [each for each in lake.due(good.name, now) if each.action in (Action.EXPIRE, Action.ORPHANS)]
    assert [each.waits for each in removing] == ["core.bad may need snapshots, and is unreadable: not read so far"] * 2
    for name in (bad.name, missing.name, good.name):
        lake.read(catalog, name, TableUpkeep(), NO_RUNS, now)
    assert lake.unreadable.keys() == {"core.bad"} and "FileNotFoundError" in lake.unreadable["core.bad"]
    waits = {each.action: each.waits for each in lake.due(good.name, now)}
    assert waits[Action.COMPACT] == "" and "core.bad may need" in waits[Action.EXPIRE]
    assert not list(lake.due(bad.name, now))


def test_wrong_property_harms_only_its_table(settings: Settings) -> None:
    good, bad = replace(table("core.orders"), retention=SHORT), table("core.bad")
    commits(settings, good, 6)
    commits(settings, bad, 6).commit(TableCommit(marks={"write.target-file-size-bytes": "large"}))
    lake, now = LakeFacts({t.name: t for t in (good, bad)}, POLICY.at_once()), time.time() + 1
    for name in (bad.name, good.name):
        lake.read(open_lake(settings), name, TableUpkeep(), NO_RUNS, now)
    assert lake.unreadable.keys() == {"core.bad"} and "large" in lake.unreadable["core.bad"]
    assert not any(each.waits for each in lake.due(good.name, now)) and not list(lake.due(bad.name, now))


def test_preview_anywhere_holds_what_was_current_within_two_days() -> None:
    now = 10 * 86_400.0
    assert pins_of([TableNeeds(), TableNeeds()], now - 60, now).since == round((now - 60) * 1000)
    assert pins_of([TableNeeds(), TableNeeds(has_preview=True)], now - 60, now).since == 8 * 86_400_000


def test_reading_stops_when_the_time_is_over_and_continues_from_there(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = table("core.orders")
    commits(settings, of, 6)
    found, read = open_lake(settings).load_table(of.name), list[str]()
    counted = facts_module._counted
    monkeypatch.setattr(facts_module, "_counted", lambda m, io, small: read.append("") or counted(m, io, small))
    pins, now = pins_of([], 0.0, 0.0), time.time()
    with pytest.raises(NotRead):
        facts_of(of, found, pins, POLICY, now, stop=lambda: len(read) >= 2)
    before = len(facts_module._sizes)
    facts_of(of, found, pins, POLICY, now)
    assert len(facts_module._sizes) == before + 4, "two manifests were known already"


def test_locations_are_those_of_all_tables_of_the_catalog(settings: Settings) -> None:
    for name in ("core.orders", "shop.other"):
        commits(settings, table(name), 1)
    assert {name: where.rpartition("/warehouse/")[2] for name, where in locations(open_lake(settings)).items()} == {
        "core.orders": "core/orders",
        "shop.other": "shop/other",
    }


def removals(lake: LakeFacts, of: Table, now: float) -> set[str]:
    return {each.waits for each in lake.due(of.name, now) if each.action in (Action.EXPIRE, Action.ORPHANS)}


def test_needs_of_tables_of_other_code_locations_count(settings: Settings) -> None:
    orders, other = replace(table("core.orders"), retention=SHORT), table("shop.alerts")
    pinned = commits(settings, orders, 2).head
    commits(settings, orders, 4)
    commits(settings, other, 1).commit(TableCommit(marks={"tidemark.incorporates": str(pinned)}))
    lake, now, catalog = LakeFacts({orders.name: orders}, POLICY.at_once()), time.time() + 1, open_lake(settings)
    lake.read(catalog, orders.name, TableUpkeep(), NO_RUNS, now)
    assert removals(lake, orders, now) == {"shop.alerts may need snapshots, and is unreadable: not read so far"}
    lake.read_all_needs(catalog)
    lake.read(catalog, orders.name, TableUpkeep(), NO_RUNS, now)
    assert len(lake.facts[orders.name].expirable) == 1 and removals(lake, orders, now) == {""}


def test_nothing_is_removed_while_a_part_is_broken_or_the_catalog_cannot_be_listed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = replace(table("core.orders"), retention=SHORT)
    commits(settings, orders, 6)
    lake, now, catalog = (
        LakeFacts({orders.name: orders}, POLICY.at_once(), broken="a.py:1"),
        time.time() + 1,
        open_lake(settings),
    )
    lake.read(catalog, orders.name, TableUpkeep(), NO_RUNS, now)
    assert removals(lake, orders, now) == {"a part of the code location is broken, whose needs are unknown: a.py:1"}
    lake.broken = ""
    assert removals(lake, orders, now) == {""}

    def refuse(*_: object) -> list[tuple[str, ...]]:
        raise OSError("the catalog is away")

    monkeypatch.setattr(catalog, "list_namespaces", refuse)
    lake.read_all_needs(catalog)
    assert removals(lake, orders, now) == {"the tables of the catalog are not listed: OSError: the catalog is away"}
