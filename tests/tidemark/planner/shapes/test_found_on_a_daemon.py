"""Defects that the proof on a real daemon found, each at its smallest."""

from typing import Any

import dagster as dg

from dagster_tidemark.engine.condition import derived
from dagster_tidemark.engine.saved_overview import CHECK
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.sensors.contract_sensor import contract_checks
from tests.tidemark.planner.shapes.playing import mapped, play, why_not
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source

MANY = 420
BAD, GOOD = "2026-10-04", "2026-10-03"


class _RaisesForOneDay(dg.IdentityPartitionMapping):
    def get_downstream_partitions_for_partitions(self, upstream_partitions_subset: Any, *args: Any, **more: Any) -> Any:
        if upstream_partitions_subset is not None and BAD in upstream_partitions_subset.get_partition_keys():
            raise RuntimeError("no map leads there")
        return super().get_downstream_partitions_for_partitions(upstream_partitions_subset, *args, **more)


def test_mapping_that_raises_for_one_partition_is_reported_while_others_are_built() -> None:
    reader = asset("core/x", mapped("raw/x", _RaisesForOneDay()), by=DAYS, freshness_policy=lag(minutes=30), **ASAP)
    simulation = play([source("x", DAYS), reader])
    simulation.arrive("raw/x", BAD, at=simulation.time(minutes=2))
    simulation.arrive("raw/x", GOOD, at=simulation.time(minutes=3))
    simulation.run(hours=2)
    assert simulation.tables.fresh(("core/x", GOOD))
    assert "no map leads there" in why_not(simulation, "core/x")
    standing = simulation.standings()["core/x"]
    assert standing.verdict == "not judged" and "no map leads there" in standing.reason


class _Raises(dg.AutomationCondition[Any]):
    def evaluate(self, context: Any) -> Any:
        raise RuntimeError("the author's mistake")


def test_asset_whose_custom_condition_raises_is_not_reported_as_requested() -> None:
    own = asset("core/x", "raw/x", by=DAYS, automation_condition=derived() & _Raises(), freshness_policy=lag(minutes=5))
    simulation = play([source("x", DAYS), own])
    simulation.arrive("raw/x", GOOD, at=simulation.time(minutes=2))
    simulation.run(hours=1)
    standing = simulation.standings()["core/x"]
    assert "requested" not in standing.reason
    assert "condition" in standing.reason


def test_plain_asset_spec_leaves_automation_sensors_and_contract_checks_working() -> None:
    assets = [dg.AssetSpec("ext"), *(asset(f"core/t{n}", "ext", freshness_policy=lag(minutes=30)) for n in range(MANY))]
    checks = contract_checks(assets)
    assert [sensor.name for sensor in automation_sensors([*assets, *checks])] == ["automation", "automation_2"]
    found = dg.Definitions(assets=assets, asset_checks=checks)
    job = found.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        key = dg.AssetCheckKey(dg.AssetKey(["core", "t0"]), CHECK)
        assert (
            job.get_subset(asset_selection=set(), asset_check_selection={key})
            .execute_in_process(instance=instance)
            .success
        )
