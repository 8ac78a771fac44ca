"""Contract of events that are written together. Dagster's own storage, which writes each event alone, is the oracle."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.storage.event_log import SqliteEventLogStorage

from dagster_tidemark.dagster_internals.event_storage import events_in_batches
from dagster_tidemark.dagster_internals.partitions import range_tags

DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-31")
FIRST, LAST = "2026-10-01", "2026-10-20"
VARIABLE = "DAGSTER_EVENT_BATCH_SIZE"


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
    with events_in_batches(instance) if together else nullcontext():
        done = dg.materialize([both], instance=instance, tags=range_tags(FIRST, LAST))
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
                str(record.asset_entry.last_materialization).count(LAST) > 0,
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
