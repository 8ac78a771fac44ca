"""One of each broken thing beside a healthy pair: the location loads, names them, and the pair keeps its contract."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.cli.contract_rows import rows
from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.sensors.contract_sensor import contract_checks
from dagster_tidemark.simulation.runs import RunPace
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source

HOUR_LONG = 3600.0
TODAY = ["2026-10-05-00:00", "2026-10-05-01:00"]


class MappingRaises(dg.PartitionMapping):
    """Anybody's code."""

    @property
    def description(self) -> str:
        return "raises"

    def get_downstream_partitions_for_partitions(self, *_: Any, **__: Any) -> Any:
        raise LookupError("no calendar for 2026")

    def get_upstream_mapped_partitions_result_for_partitions(self, *_: Any, **__: Any) -> Any:
        raise LookupError("no calendar for 2026")

    def validate_partition_mapping(self, *_: Any) -> None:
        """Fits everything."""


class ConditionRaises(dg.AutomationCondition[Any]):
    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        raise LookupError("no calendar for 2026")


def _with_mapping() -> list[Any]:
    read = dg.AssetDep(dg.AssetKey(["raw", "orders"]), partition_mapping=MappingRaises())
    return [asset("odd/mapping", read, by=DAYS, freshness_policy=lag(hours=1))]


def _with_tag() -> list[Any]:
    return [asset("odd/pace", "raw/orders", by=HOURS, freshness_policy=lag(hours=1), tags={"tidemark/pace": "fast"})]


def _with_condition() -> list[Any]:
    return [asset("odd/condition", "raw/orders", by=HOURS, automation_condition=ConditionRaises())]


def _with_strange_keys() -> list[Any]:
    shops = dg.DynamicPartitionsDefinition(name="shops")
    return [source("shops", shops), asset("odd/shops", "raw/shops", by=shops, freshness_policy=lag(hours=1))]


BROKEN: dict[str, Callable[[], list[Any]]] = {
    "mapping": _with_mapping,
    "tag": _with_tag,
    "condition": _with_condition,
    "strange keys": _with_strange_keys,
}
SET_ASIDE = {"mapping": "odd/mapping", "tag": "odd/pace"}


@pytest.mark.filterwarnings("ignore:Non-built-in PartitionMappings")
@pytest.mark.parametrize("broken", [[name] for name in BROKEN] + [list(BROKEN)], ids="+".join)
def test_healthy_pair_meets_its_contract_and_each_broken_asset_is_reported(
    broken: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    healthy = [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset("marts/hourly", "core/orders", by=HOURS, freshness_policy=lag(minutes=60)),
    ]
    assets = with_automation([*healthy, *(one for name in broken for one in BROKEN[name]())])
    checks = contract_checks(assets)
    location = dg.Definitions(assets, asset_checks=checks, sensors=automation_sensors([*assets, *checks]))
    warned = [line for line in caplog.messages if "set aside" in line]
    assert any("odd/pace" in line for line in warned) is ("tag" in broken), "the location says so when it loads"

    simulation = Simulation(location, start=START, pace=RunPace(tick=20.0), own_every=120)
    for number, hour in enumerate(TODAY):
        simulation.arrive("raw/orders", hour, at=simulation.time(hours=number, minutes=7))
    for strange in ("yesterday", "2026-10-05-00:30", "1999-01-01-00:00", "9999-12-31-23:00", "2062-10-05-00:00"):
        simulation.observe("raw/orders", strange, "1", at=simulation.time(minutes=30))
    if "strange keys" in broken:
        simulation.observe("raw/shops", "no such shop", "1", at=simulation.time(minutes=30))
    simulation.run(hours=2, minutes=10)

    for key, within in (("core/orders", 5 * 60.0), ("marts/hourly", HOUR_LONG)):
        for at, (_, hour) in zip(sorted(at for at, _ in simulation.arrivals), _arrived(simulation), strict=True):
            assert any(0 < r.ended_at - at <= within for r in simulation.runs_of(key, hour) if r.ended_at), (key, hour)
    with simulation.clock.frozen():
        found = rows(simulation.instance, location.resolve_asset_graph())
    states = {row.asset: row.state for row in found}
    assert (states["core/orders"], states["marts/hourly"]) == ("met", "met")
    named = {row.asset for row in found if row.set_aside}
    assert named >= {"raw/orders", *(SET_ASIDE[name] for name in broken if name in SET_ASIDE)}
    assert not simulation.runs_of("odd/shops"), "there is no such shop"
    if "condition" in broken:
        assert any("odd/condition" in line and "no calendar" in line for line in caplog.messages)


def _arrived(simulation: Simulation) -> list[tuple[str, Any]]:
    return [target for _, target in sorted(simulation.arrivals, key=lambda arrival: arrival[0])]
