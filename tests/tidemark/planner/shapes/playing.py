"""Graphs of any shape on a simulated platform: the words the scenarios of this folder share."""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.sources.feed import Partition
from tests.tidemark.toy_graph import ASAP, DAYS, START, asset, lag, source

HEALTHY = ("core/healthy", "marts/healthy")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
CITIES = dg.DynamicPartitionsDefinition(name="cities")


def healthy() -> list[Any]:
    """A pair of tables that nothing is wrong with."""
    return [
        source("healthy", DAYS),
        asset("core/healthy", "raw/healthy", by=DAYS, **ASAP),
        asset("marts/healthy", "core/healthy", by=DAYS, freshness_policy=lag(minutes=30)),
    ]


def play(assets: Iterable[Any], checks: Iterable[Any] = (), **more: Any) -> Simulation:
    """A platform with these assets."""
    return Simulation(dg.Definitions(assets=list(assets), asset_checks=list(checks)), start=START, **more)


def mapped(name: str, mapping: dg.PartitionMapping, **metadata: Any) -> dg.AssetDep:
    """An input through a mapping."""
    return dg.AssetDep(dg.AssetKey.from_user_string(name), partition_mapping=mapping, metadata=metadata)


def built(simulation: Simulation, name: str) -> list[Partition]:
    """The partitions of an asset that are there, each as often as a run wrote it, in that order."""
    runs = [run for run in simulation.runs_of(name) if name in run.committed]
    return [partition for run in sorted(runs, key=lambda run: run.committed[name]) for partition in run.of[name]]


def asked(simulation: Simulation, name: str) -> list[Partition]:
    """The partitions of an asset that runs were created for, in that order."""
    return [partition for run in simulation.runs_of(name) for partition in run.of[name]]


def why_not(simulation: Simulation, name: str) -> str:
    """All that the planner says of an asset that it does not look after, or not as it was meant."""
    plan = simulation.plan()
    node = simulation.graph.nodes.get(name)
    aside = [f"{target}: {why}" for target, why in plan.set_aside.items() if target[0] == name]
    return "; ".join([*aside, node.refused if node else ""]).strip("; ")


def keeps_the_pair(simulation: Simulation) -> None:
    """Assert that no tick died, and that the healthy pair contains what arrived for it."""
    assert simulation.failed_ticks == []
    partitions = {partition for _, (key, partition) in simulation.arrivals if key == "raw/healthy"}
    assert partitions
    for name in HEALTHY:
        for partition in partitions:
            assert simulation.tables.fresh((name, partition)), (name, partition)
