"""How contracts stand beyond what is pending: windows that never came, what is set aside, sensors that are off."""

from dataclasses import replace

import pytest

from dagster_tidemark.planner.contract_status import standings
from dagster_tidemark.planner.contracts import CronContract, FreshnessStatus, LagContract, Window
from dagster_tidemark.planner.decisions import Decision, Plan, Request, State, held
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.unbuilt import Since, Unbuilt
from dagster_tidemark.sources.feed import Partition
from tests.tidemark.planner.numbered_days import DAY, day, days

HOUR = 3600.0
NINE = CronContract("0 9 * * *", 0.0)


def same(partition: Partition) -> list[Partition]:
    return [partition]


READS = Input("raw", same, same)
RAW = Node("raw", partitioned=True, automated=False, window=day)
REPORT = Node("report", [READS], window=day, partitioned=True, contract=NINE)


class Kept:
    """A graph whose contracts are looked at again and again."""

    def __init__(self, *nodes: Node, since: float = 0.0) -> None:
        self.graph = Graph({node.key: node for node in (RAW, *nodes)})
        self.history = History(self.graph)
        self.unbuilt = Unbuilt(self.graph, days)
        self.since = Since(since, dict.fromkeys(self.graph.nodes, since))

    def at(self, now: float, plan: Plan | None = None) -> tuple[FreshnessStatus, Partition]:
        """How the report stands, and over which partition."""
        plan = replace(plan or Plan(now), now=now)
        found = standings(
            self.graph, self.history, plan, lambda n: self.unbuilt.missing(n, self.history, self.since, now)
        )
        self.reason, self.set_aside = found["report"].reason, found["report"].set_aside
        return found["report"].verdict, found["report"].partition

    def report(self, partition: Partition) -> None:
        """A person gives a partition up, or another system built it."""
        self.history.materialized(("report", partition), id=1, run_id=None, as_of=None, version=None, at=0.0)


def test_unbuilt_partition_stays_breached_until_it_is_built() -> None:
    kept = Kept(REPORT)
    assert kept.at(8 * HOUR) == (FreshnessStatus.MET, None)
    for n in range(30):  # one look a day
        assert kept.at((n + 1) * DAY + 10 * HOUR) == (FreshnessStatus.BREACHED, "0")
        kept.report(str(n + 1))
    kept.report("0")
    assert kept.at(30 * DAY + 11 * HOUR) == (FreshnessStatus.MET, None)


def test_breach_reason_names_the_oldest_missing_partition_and_their_number() -> None:
    kept = Kept(REPORT)
    assert kept.at(5 * DAY + 10 * HOUR) == (FreshnessStatus.BREACHED, "0")
    assert kept.reason == (
        "report 0 was promised for 1970-01-02 09:00:00 UTC; raw never had data; 5 windows are missing"
    )


def test_wiped_partition_is_breached_as_missing_again() -> None:
    kept = Kept(REPORT)
    kept.report("0")
    assert kept.at(DAY + 10 * HOUR) == (FreshnessStatus.MET, None)
    kept.history.forget([("report", "0")])
    assert kept.at(DAY + 11 * HOUR) == (FreshnessStatus.BREACHED, "0")


def test_partitions_due_before_the_first_evaluation_are_not_judged() -> None:
    kept = Kept(REPORT, since=10 * DAY)
    assert kept.at(10 * DAY + 8 * HOUR) == (FreshnessStatus.MET, None)
    assert kept.at(10 * DAY + 10 * HOUR) == (FreshnessStatus.BREACHED, "9")


def test_data_seen_before_the_first_evaluation_starts_the_judged_period() -> None:
    kept = Kept(REPORT, since=10 * DAY)
    kept.history.first_seen["raw"] = 5 * DAY
    assert kept.at(10 * DAY + HOUR) == (FreshnessStatus.BREACHED, "4")


def test_asset_added_later_is_judged_only_from_then_on() -> None:
    kept = Kept(REPORT)
    kept.history.first_seen["raw"] = 0.0
    kept.since = Since(0.0, {"report": 10 * DAY})
    assert kept.at(10 * DAY + HOUR) == (FreshnessStatus.MET, None)
    assert kept.at(10 * DAY + 10 * HOUR) == (FreshnessStatus.BREACHED, "9")


def test_unbuilt_unpartitioned_table_is_breached_after_its_first_cron_tick() -> None:
    kept = Kept(replace(REPORT, partitioned=False, window=lambda _: None), since=HOUR)
    assert kept.at(8 * HOUR) == (FreshnessStatus.MET, None)
    assert kept.at(9 * HOUR + 1) == (FreshnessStatus.BREACHED, None)
    assert "raw never had data" in kept.reason
    kept.report(None)
    assert kept.at(3 * DAY) == (FreshnessStatus.MET, None)


def test_partitions_are_not_listed_again_at_every_evaluation() -> None:
    kept = Kept(REPORT)
    asked: list[tuple[float, float]] = []
    kept.unbuilt.windows = lambda asset, after, until: (asked.append((after, until)), days(asset, after, until))[1]  # type: ignore[func-returns-value]
    for minute in range(600):
        kept.at(3 * DAY + 60.0 * minute)
    assert len(asked) == 2, "at the first look, and at nine o'clock"


def test_contract_verdict_is_correct_after_the_clock_is_set_back() -> None:
    kept = Kept(REPORT)
    assert kept.at(DAY + 10 * HOUR) == (FreshnessStatus.BREACHED, "0")
    assert kept.at(DAY + 8 * HOUR) == (FreshnessStatus.MET, None)
    assert kept.at(DAY + 10 * HOUR) == (FreshnessStatus.BREACHED, "0")


@pytest.mark.parametrize("contract", [NINE, LagContract(300.0)])
def test_refused_or_set_aside_asset_is_not_judged(contract: CronContract | LagContract) -> None:
    node = replace(REPORT, contract=contract)
    for kept, plan in (
        (Kept(replace(node, refused="no such pace")), Plan(0.0)),
        (Kept(node), Plan(0.0, set_aside={("report", None): "no such pace"})),
    ):
        assert kept.at(40 * DAY, plan) == (FreshnessStatus.NOT_JUDGED, None)
        assert kept.reason == "set aside: no such pace"


def test_asset_whose_partition_windows_raise_is_not_judged_and_reports_the_error() -> None:
    def window(_partition: Partition) -> Window:
        raise ZeroDivisionError("no such month")

    kept = Kept(replace(REPORT, window=window))
    assert kept.at(40 * DAY) == (FreshnessStatus.NOT_JUDGED, None)
    assert "ZeroDivisionError: no such month" in kept.reason


def test_set_aside_partitions_are_reported_beside_the_verdict_of_the_others() -> None:
    kept = Kept(REPORT)
    aside = Plan(0.0, set_aside={("report", "0"): "its mapping raises"})
    assert kept.at(DAY + 10 * HOUR, aside) == (FreshnessStatus.MET, None)
    assert kept.reason == "it contains everything else that arrived; set aside: report 0: its mapping raises"
    assert kept.at(2 * DAY + 10 * HOUR, aside) == (FreshnessStatus.BREACHED, "1")
    assert kept.reason.endswith("; set aside: report 0: its mapping raises")


def test_event_without_a_partition_does_not_set_the_whole_asset_aside() -> None:
    why = "no partition, but the asset is partitioned"
    kept = Kept(replace(REPORT, problem=lambda p: why if p is None else None))
    assert kept.at(0.0, Plan(0.0, set_aside={("report", None): why})) == (FreshnessStatus.MET, None)
    assert kept.set_aside == (f"report: {why}",)


def test_reader_reports_that_its_upstream_asset_is_set_aside() -> None:
    middle = Node("middle", [READS], refused="no such pace")
    kept = Kept(middle, replace(REPORT, inputs=[Input("middle", same, same)]))
    assert kept.at(8 * HOUR) == (FreshnessStatus.MET, None)
    assert kept.set_aside == ("upstream middle: no such pace",)


def test_requests_of_a_stopped_sensor_are_held_with_the_reason() -> None:
    other = replace(REPORT, key="other", sensor="automation_2")
    graph = Graph({node.key: node for node in (RAW, REPORT, other)})
    decisions = {
        (key, p): Decision(key, p, State.REQUESTED, "data") for key in ("report", "other") for p in ("0", "1", "2")
    }
    requests = [
        Request(("report",), ("0",)),
        Request(("other",), ("0",), conditional=True),
        Request(("report", "other"), ("1", "2"), as_range=True),
    ]
    plan = Plan(0.0, decisions, requests)
    assert held(plan, graph, frozenset()) is plan
    assert held(plan, graph, {"landing"}) is plan
    for off, kept in (
        ({"catch_up"}, requests[:2]),
        ({"automation"}, requests[1:]),
        ({"automation_2"}, [requests[0], requests[2]]),
    ):
        found = held(plan, graph, off)
        assert found.requests == kept
        waits = {target: d.reason for target, d in found.decisions.items() if d.state is State.HELD}
        (gone,) = (request for request in requests if request not in kept)
        assert waits == dict.fromkeys(gone.targets, f"its sensor {next(iter(off))} is switched off")
