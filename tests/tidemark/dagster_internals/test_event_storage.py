"""Contract of Dagster's event log."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy
from dagster import DagsterInstance
from dagster._core.storage.event_log import SqliteEventLogStorage

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.dagster_internals.event_storage import CODE_VERSION, LOG_COLUMNS
from dagster_tidemark.dagster_internals.partitions import range_tags
from dagster_tidemark.tags import DATA_VERSION

FIRST, SECOND = "2026-10-01-00:00", "2026-10-01-01:00"
DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-31")
FIRST_DAY, LAST_DAY = "2026-10-01", "2026-10-20"
VARIABLE = "DAGSTER_EVENT_BATCH_SIZE"


def test_latest_observation_of_each_partition_is_read(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("source")
    for partition, version in ((FIRST, "1"), (SECOND, "2"), (FIRST, "3")):
        tags = {DATA_VERSION: version}
        instance.report_runless_asset_event(dg.AssetObservation(key, partition=partition, tags=tags))
    versions = {p: t[DATA_VERSION] for p, t in event_storage.latest_observations(instance, key).items()}
    assert versions == {FIRST: "3", SECOND: "2"}
    assert set(event_storage.latest_observations(instance, key, {SECOND})) == {SECOND}
    assert event_storage.latest_observed(instance, key, {SECOND})[SECOND].partition == SECOND
    assert event_storage.latest_observations(instance, key, {"2026-10-01-02:00"}) == {}


def test_all_events_of_some_partitions_are_read_in_pages_oldest_first(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_storage, "_PAGE", 2)
    key = dg.AssetKey("table")
    for n, partition in enumerate([FIRST, SECOND, FIRST, SECOND, FIRST]):
        instance.report_runless_asset_event(dg.AssetObservation(key, partition=partition, tags={"n": str(n)}))
        metadata = {"rows": n} if n else {}
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition, metadata=metadata))
    seen = event_storage.all_observed(instance, key, {FIRST})
    assert [observation.tags["n"] for _, observation in seen[FIRST]] == ["0", "2", "4"] and set(seen) == {FIRST}
    rows = event_storage.all_metadata(instance, key, "rows", {FIRST, SECOND})
    assert {p: [value for _, value in found] for p, found in rows.items()} == {FIRST: [2, 4], SECOND: [1, 3]}


def test_latest_observation_of_an_unpartitioned_source_is_read(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("source")
    for version in ("1", "2"):
        instance.report_runless_asset_event(dg.AssetObservation(key, tags={DATA_VERSION: version}))
    assert event_storage.latest_observations(instance, key)[None][DATA_VERSION] == "2"


def test_check_results_are_read_in_pages_back_to_a_time(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_storage, "_PAGE", 10)
    for number in range(25):
        evaluation = dg.AssetCheckEvaluation(dg.AssetKey("table"), "contract", passed=number != 3, metadata={})
        instance.report_runless_asset_event(evaluation)
    found = event_storage.check_results(instance, "table", "contract", since=0.0)
    assert [passed for _, passed in found] == [number != 3 for number in reversed(range(25))]
    assert len(event_storage.check_results(instance, "table", "contract", since=found[0][0] + 1)) == 10


def test_dynamic_partition_keys_are_read_in_the_order_of_dagster(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("shops", ["west", "east"])
    instance.add_dynamic_partitions("shops", ["north"])
    assert event_storage.dynamic_partitions(instance, ["shops", "none"]) == {
        "shops": ["west", "east", "north"],
        "none": [],
    }
    instance.delete_dynamic_partition("shops", "west")
    assert event_storage.dynamic_partitions(instance, ["shops"]) == {"shops": ["east", "north"]}


def test_last_check_metadata_is_readable_during_the_next_evaluation(instance: dg.DagsterInstance) -> None:
    key = dg.AssetCheckKey(dg.AssetKey("counted"), "count")
    said: list[dict[str, object] | None] = []

    @dg.asset(check_specs=[dg.AssetCheckSpec(key.name, asset=key.asset_key)])
    def counted(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        said.append(event_storage.latest_check_metadata(context.instance, key))
        return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True, metadata={"count": len(said)})])

    for _ in range(2):
        dg.materialize([counted], instance=instance)
    assert said == [None, {"count": 1}]


def test_event_log_table_has_one_row_per_event_with_its_columns(instance: dg.DagsterInstance) -> None:
    @dg.asset(code_version="7", key_prefix="core")
    def table() -> None: ...

    run_id = dg.materialize([table], instance=instance).run_id
    columns = (LOG_COLUMNS.id, LOG_COLUMNS.asset_key, LOG_COLUMNS.partition, LOG_COLUMNS.run_id, LOG_COLUMNS.event)
    written = LOG_COLUMNS.dagster_event_type == "ASSET_MATERIALIZATION"
    with event_storage.log_connection(instance) as connection:
        ((at, number, key, partition, run, text),) = connection.execute(
            sqlalchemy.select(LOG_COLUMNS.timestamp, *columns).where(written)
        )
    (record,) = instance.fetch_materializations(dg.AssetKey(["core", "table"]), limit=1).records
    assert event_storage.unix_seconds(at) == pytest.approx(record.timestamp, abs=0.001)
    assert event_storage.stored_time(event_storage.unix_seconds(at)) == at and event_storage.unix_seconds(None) == 0
    assert event_storage.asset_of(key) == "core/table"
    assert number <= event_storage.last_event_id(instance)
    assert (key, partition, run) == (event_storage.stored_key("core/table"), None, run_id)
    assert f'"{CODE_VERSION}": "7"' in text


def test_planned_event_contains_the_partitions_of_its_range(instance: dg.DagsterInstance) -> None:
    hours = dg.HourlyPartitionsDefinition("2026-10-01-00:00", end_offset=1)

    @dg.asset(partitions_def=hours, backfill_policy=dg.BackfillPolicy.single_run())
    def table() -> None: ...

    tags = {"dagster/asset_partition_range_start": FIRST, "dagster/asset_partition_range_end": SECOND}
    dg.materialize([table], instance=instance, tags=tags)
    planned = sqlalchemy.select(LOG_COLUMNS.event, LOG_COLUMNS.partition).where(
        LOG_COLUMNS.dagster_event_type == "ASSET_MATERIALIZATION_PLANNED"
    )
    with event_storage.log_connection(instance) as connection:
        rows = connection.execute(planned).fetchall()
    found = [event_storage.partitions_of_text(text) if one is None else (one,) for text, one in rows]
    assert [partition for each in found for partition in each] == [FIRST, SECOND]


def test_runs_of_an_asset_are_found_by_the_id_of_their_planned_event(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def table() -> None: ...

    @dg.asset
    def other() -> None: ...

    runs, ids = [], [0]
    for _ in range(2):
        runs.append(dg.materialize([table, other], instance=instance, selection=[table]).run_id)
        ids.append(event_storage.last_event_id(instance))
    instance.report_runless_asset_event(dg.AssetMaterialization("table"))
    found = [event_storage.runs_planned_after(instance, "table", after) for after in ids]
    assert found == [set(runs), {runs[1]}, set()]
    assert event_storage.runs_planned_after(instance, "other", 0) == set()


def test_metadata_is_read_from_the_latest_materialization(instance: dg.DagsterInstance) -> None:
    for rows in (1, 2):
        written = dg.AssetMaterialization("table", partition=FIRST, metadata={"rows": rows})
        instance.report_runless_asset_event(written)
    found = event_storage.latest_metadata(instance, dg.AssetKey("table"), "rows")
    assert found == {FIRST: 2}
    assert event_storage.latest_metadata(instance, dg.AssetKey("table"), "other") == {}


def test_wiped_asset_has_the_time_of_its_wipe_in_the_catalog(instance: dg.DagsterInstance) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(["core", "table"]))
    assert event_storage.catalog(instance) == {"core/table": float("-inf")}
    instance.wipe_assets([dg.AssetKey(["core", "table"])])
    assert event_storage.catalog(instance)["core/table"] > 0


def test_single_writer_event_storage_commits_in_order(instance: dg.DagsterInstance) -> None:
    assert event_storage.commits_in_order(instance)


# Events that are written together. Dagster's own storage, which writes each event alone, is the oracle.


@dg.multi_asset(
    specs=[dg.AssetSpec(key, partitions_def=DAYS, code_version="7") for key in ("one", "two")],
    check_specs=[dg.AssetCheckSpec("filled", asset="one")],
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def both(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
    for key in ("one", "two"):
        for day in context.partition_keys:
            context.add_asset_metadata({"day": day}, dg.AssetKey(key), day)
        checks = [dg.AssetCheckResult(passed=True, check_name="filled")] if key == "one" else []
        yield dg.MaterializeResult(asset_key=key, metadata={"rows": 3}, check_results=checks)


def run(instance: DagsterInstance, *, together: bool) -> str:
    with event_storage.events_in_batches(instance) if together else nullcontext():
        done = dg.materialize([both], instance=instance, tags=range_tags(FIRST_DAY, LAST_DAY))
    assert done.success
    return done.run_id


def rows(path: Path, query: str) -> Counter[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return Counter(database.execute(query).fetchall())


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_events_written_together_are_those_that_dagster_writes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    connected: dict[bool, int] = {}
    found = {}
    connect = SqliteEventLogStorage._connect
    for together in (False, True):
        folder = tmp_path / str(together)
        folder.mkdir()
        with DagsterInstance.local_temp(str(folder)) as instance:
            run(instance, together=together)  # creates the databases
            seen: list[str] = []

            def counted(self: Any, shard: str, seen: list[str] = seen) -> Any:
                seen.append(shard)
                return connect(self, shard)

            monkeypatch.setattr(SqliteEventLogStorage, "_connect", counted)
            run_id = run(instance, together=together)
            monkeypatch.setattr(SqliteEventLogStorage, "_connect", connect)
            connected[together] = len(seen)
            storage = instance.event_log_storage
            assert isinstance(storage, SqliteEventLogStorage)
            index = Path(storage.path_for_shard("index"))
            latest = instance.get_latest_materialization_event(dg.AssetKey("two"))
            assert latest is not None and latest.run_id == run_id
            (record,) = instance.get_asset_records([dg.AssetKey("one")])
            found[together] = (
                rows(index, "SELECT dagster_event_type, asset_key, partition, step_key FROM event_logs"),
                rows(index, "SELECT asset_key, key, value, count(*) FROM asset_event_tags GROUP BY 1, 2, 3"),
                rows(
                    index,
                    "SELECT asset_key, last_run_id = (SELECT run_id FROM event_logs ORDER BY id DESC LIMIT 1) "
                    "FROM asset_keys",
                ),
                rows(Path(storage.path_for_shard(run_id)), "SELECT dagster_event_type, partition FROM event_logs"),
                latest.asset_materialization and latest.asset_materialization.partition,
                str(record.asset_entry.last_materialization).count(LAST_DAY) > 0,
                record.asset_entry.last_run_id == run_id,
                [instance.get_materialized_partitions(dg.AssetKey(key)) for key in ("one", "two")],
            )
    events, *_, (partitions, _) = found[True]
    assert found[True] == found[False] and len(partitions) == 20
    assert sum(n for (kind, *_), n in events.items() if kind == "ASSET_MATERIALIZATION") == 2 * 2 * 20
    assert connected[True] < connected[False] / 2, connected
    assert VARIABLE not in os.environ


def test_order_of_events_stays(tmp_path: Path) -> None:
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        run(instance, together=True)
        for key in ("one", "two"):
            found = instance.fetch_materializations(dg.AssetKey(key), limit=100, ascending=True).records
            assert [record.partition_key for record in found] == DAYS.get_partition_keys()[:20]
            assert [record.storage_id for record in found] == sorted(record.storage_id for record in found)


def test_own_batch_size_of_the_deployment_is_kept(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "7")
    run(instance, together=True)  # in memory, where Dagster has no batches
    assert len(instance.get_materialized_partitions(dg.AssetKey("two"))) == 20
    assert os.environ[VARIABLE] == "7"
