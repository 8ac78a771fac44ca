"""What the planner asks for is looked at before it is handed out: a request the daemon cannot build ends its tick."""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.engine.condition import derived
from dagster_tidemark.engine.engine import Engine, engine_for
from dagster_tidemark.engine.run_requests import run_requests
from dagster_tidemark.planner.decisions import Request
from dagster_tidemark.sensors.catch_up import due_now
from tests.tidemark.toy_graph import DAYS, HOURS, asset, source

NINE = dg.AutomationCondition.cron_tick_passed("0 9 * * *")
SHOPS = dg.DynamicPartitionsDefinition(name="shops")
FIRST = [f"2026-09-28-{hour:02}:00" for hour in range(4)]


@dg.multi_asset(
    specs=[dg.AssetSpec(key, automation_condition=derived()) for key in ("left", "right")], partitions_def=HOURS
)
def both() -> tuple[None, None]:
    raise NotImplementedError


ASSETS: list[Any] = [
    source("orders", HOURS),
    asset("orders", "raw/orders", by=HOURS),
    asset("hourly", "orders", by=HOURS),
    asset("own", "orders", by=HOURS, automation_condition=derived() & NINE),
    asset("daily", by=DAYS),
    asset("shops", by=SHOPS),
    asset("whole", "raw/orders"),
    both,
]


class Asked:
    """Requests as they are handed to Dagster, on an instance with one shop."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        repository = dg.Definitions(ASSETS).get_repository_def()
        instance.add_dynamic_partitions("shops", ["one"])
        self.context = dg.build_sensor_context(instance, repository_def=repository)
        self.engine: Engine = engine_for(instance, repository.asset_graph)
        self.engine.look(event_time.now(), instance)

    def of(self, *requests: Request) -> list[dg.RunRequest]:
        repository = self.context.repository_def
        assert repository is not None
        return run_requests(requests, repository.asset_graph, self.engine, self.context, event_time.now())

    @property
    def set_aside(self) -> dict[tuple[str, str | None], str]:
        return self.engine.look(event_time.now()).set_aside


@pytest.fixture
def asked() -> Iterator[Asked]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Asked(instance)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Request(("shops",), ("two",)), "the code location has no such partition"),
        (Request(("orders",), ("yesterday",)), "the code location has no such partition"),
        (Request(("orders",), (FIRST[0], FIRST[2]), as_range=True), "has 3 partitions, not 2"),
        (Request(("orders", "daily"), ("2026-09-28",)), "orders, daily have different partitions"),
        (Request(("orders", "whole"), (FIRST[0],)), "orders, whole have different partitions"),
        (Request(("orders",), (None,)), "either both the request and the asset have partitions, or neither"),
        (Request(("whole",), (FIRST[0],)), "either both the request and the asset have partitions, or neither"),
        (Request(("left",), (FIRST[0],)), "left can only be built together with right"),
        (Request(("own",), (FIRST[0],), as_range=True, rebuild=True), "only the automation condition of own requests"),
        (Request(("raw/orders",), (FIRST[0],)), "this code location cannot build raw/orders"),
        (Request(("gone",), (None,)), "this code location cannot build gone"),
    ],
)
def test_invalid_run_request_is_set_aside_and_the_others_are_requested(asked: Asked, bad: Request, why: str) -> None:
    good = Request(("orders", "hourly"), (FIRST[3],))
    (request,) = asked.of(bad, good)
    assert request.partition_key == FIRST[3]
    assert [k.to_user_string() for k in request.asset_selection or ()] == ["orders", "hourly"]
    assert set(asked.set_aside) == set(bad.targets)
    assert all(why in reason for reason in asked.set_aside.values())
    assert set(bad.targets) <= set(asked.engine.reserved), "it is not asked for again at every tick"


def test_only_the_missing_partition_of_a_requested_range_is_set_aside(asked: Asked) -> None:
    request = Request(("shops",), ("one", "two"), as_range=True)
    asked.engine.take(request.targets, event_time.now())
    assert asked.of(request) == []
    assert set(asked.set_aside) == {("shops", "two")}
    assert ("shops", "one") not in asked.engine.reserved, "it is free for the next plan"


def test_range_of_one_partition_is_requested_as_a_single_partition(asked: Asked) -> None:
    single, many = asked.of(
        Request(("orders",), (FIRST[0],), as_range=True), Request(("orders",), tuple(FIRST[1:3]), as_range=True)
    )
    assert (single.partition_key, single.partition_key_range) == (FIRST[0], None)
    assert (many.partition_key, many.partition_key_range) == (None, dg.PartitionKeyRange(FIRST[1], FIRST[2]))


def test_reserved_partition_is_not_given_to_another_sensor(asked: Asked) -> None:
    target = ("orders", FIRST[0])
    now = event_time.now()
    assert asked.engine.take([target], now) == [target]
    assert asked.engine.take([target, ("hourly", FIRST[0])], now) == [("hourly", FIRST[0])]


def test_run_requests_of_the_landing_sensor_are_also_validated(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = Request(("shops",), ("two",)), Request(("orders",), (FIRST[0],))
    plan = asked.engine.look(event_time.now())
    monkeypatch.setattr(Engine, "request", lambda *_, ranges: ([bad, good], plan))
    assert [request.partition_key for request in due_now(asked.context)] == [FIRST[0]]


def test_tick_that_dagster_has_given_up_on_requests_and_reserves_nothing(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [Request(("orders",), (FIRST[0],)), Request(("own",), (FIRST[1],), conditional=True)]
    plan = asked.engine.look(event_time.now())

    def request(engine: Engine, *_: Any, ranges: bool) -> Any:
        engine.take(requests[0].targets, event_time.now())
        return requests, plan

    monkeypatch.setattr(Engine, "request", request)
    assert due_now(asked.context, begun=time.monotonic() - 60) == []
    assert asked.engine.reserved == {}, "the next tick requests it, and does not wait a minute for its run"
    assert [request.partition_key for request in due_now(asked.context)] == [FIRST[0]]
    assert set(asked.engine.reserved) == {("orders", FIRST[0])}
