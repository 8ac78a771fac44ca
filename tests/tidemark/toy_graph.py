"""A small graph with every kind of edge the grocer has, and its assets under their plain names."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from dagster_tidemark.engine.condition import derived

START = datetime(2026, 10, 5, tzinfo=ZoneInfo("UTC"))  # a Monday
HOURS = dg.HourlyPartitionsDefinition("2026-09-28-00:00", end_offset=1)
DAYS = dg.DailyPartitionsDefinition("2026-09-28", end_offset=1)
WITHIN = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)


def source(name: str, partitions: dg.PartitionsDefinition | None = None) -> dg.SourceAsset:
    """Data from outside."""

    @dg.observable_source_asset(key=["raw", name], partitions_def=partitions)
    def _observe() -> dg.DataVersionsByPartition:
        return dg.DataVersionsByPartition({})

    return _observe  # type: ignore[return-value]


def asset(
    name: str, *inputs: str | dg.AssetDep, by: dg.PartitionsDefinition | None = None, **more: Any
) -> dg.AssetsDefinition:
    """An asset of the planner; nothing ever runs it."""
    deps = [dg.AssetKey.from_user_string(read) if isinstance(read, str) else read for read in inputs]
    settings: dict[str, Any] = {"automation_condition": derived(), "code_version": "1"} | more
    if by is not None:
        settings.setdefault("backfill_policy", dg.BackfillPolicy.single_run())

    @dg.asset(key=dg.AssetKey.from_user_string(name), deps=deps, partitions_def=by, **settings)
    def _body() -> None:
        raise NotImplementedError

    return _body


def within(name: str) -> dg.AssetDep:
    """An input of another grain: every partition that overlaps."""
    return dg.AssetDep(dg.AssetKey.from_user_string(name), partition_mapping=WITHIN)


def lag(**window: float) -> dg.FreshnessPolicy:
    """A contract: what arrived is incorporated within so long."""
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(**window))


ASAP: dict[str, Any] = {"tags": {"tidemark/pace": "asap"}}


def small() -> list[Any]:
    """Orders by the hour, sales by hour and day."""
    return [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset("marts/hourly", "core/orders", by=HOURS, freshness_policy=lag(minutes=60)),
        asset("marts/daily", within("core/orders"), by=DAYS, freshness_policy=lag(hours=24)),
    ]
