"""Contract of the clock that stamps events."""

import dagster as dg

from dagster_tidemark.dagster_internals.event_time import now
from dagster_tidemark.simulation.log import Clock


def test_events_have_the_time_of_the_frozen_clock(instance: dg.DagsterInstance) -> None:
    with Clock(1_790_000_000.0).frozen():
        assert now() == 1_790_000_000.0
        instance.report_runless_asset_event(dg.AssetMaterialization("table"))
    (record,) = instance.fetch_materializations(dg.AssetKey("table"), limit=1).records
    assert record.timestamp == 1_790_000_000.0
