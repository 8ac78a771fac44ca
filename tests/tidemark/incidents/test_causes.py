"""Which root cause is at fault, which contracts it breaks, and when that is known: on simulated days."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.engine.doubts import Cause, Doubts, Watched
from dagster_tidemark.engine.overview import judged
from dagster_tidemark.engine.saved_overview import Kept, keep, standing_rows
from dagster_tidemark.incidents.arrivals import ArrivedFiles
from dagster_tidemark.incidents.causes import Evidence, troubles
from dagster_tidemark.incidents.channels.channel import FakeChannel
from dagster_tidemark.incidents.incident import Book, CauseKind, Incident, MessageKind
from dagster_tidemark.incidents.look import Look, Watch, logger, note_incidents, ownership_of
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.planner.contracts import LagContract
from dagster_tidemark.planner.decisions import Decision, Plan, State
from dagster_tidemark.planner.event_records import Failure
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.run_durations import RunDurations
from dagster_tidemark.planner.staleness import PendingWork
from dagster_tidemark.settings import load_settings
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source, within

HOUR_1 = "2026-10-05-01:00"
NINE = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30))


def graph() -> list[Any]:
    """Return two chains that share nothing, so that a cause in one must not name the other."""
    return [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), owners=["team:core"], **ASAP),
        asset("marts/hourly", "core/orders", by=HOURS, freshness_policy=lag(minutes=60), owners=["team:sales"]),
        asset("marts/report", within("core/orders"), by=DAYS, freshness_policy=NINE),
        source("prices", HOURS),
        asset("core/prices", "raw/prices", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
    ]


class Location:
    """A simulated location whose incidents are looked for every `every` seconds, after a first hour without looks.

    In that hour it learns how long its runs take: about twenty seconds.

    Args:
        chains: Names of the sources with data in that hour.
    """

    def __init__(
        self, assets: list[Any] | None = None, every: float = 20.0, chains: Sequence[str] = ("orders", "prices")
    ) -> None:
        self.simulation = Simulation(dg.Definitions(assets or graph()), start=START)
        self.every, self.looked_at, self.chains = every, None, tuple(chains)
        self.channel, self.settings = FakeChannel(), load_settings()
        self.doubts = Doubts()
        self.blind = False
        self.warn: Callable[[str], None] = logger.warning
        self.expected: list[ExpectedArrival] = []
        self.files: dict[str, ArrivedFiles] = {}
        self.store = IncidentStore(self.simulation.instance, self.settings.code_location)
        for minute in (1, 11, 21, 31):
            for name in chains:
                self.arrives(name, "2026-10-05-00:00", minutes=minute)
        self.simulation.run_until(self.simulation.time(minutes=59))

    @property
    def book(self) -> Book:
        return self.store.read()

    def arrives(self, name: str, hour: str = HOUR_1, **time: float) -> None:
        self.simulation.arrive(f"raw/{name}", hour, at=self.simulation.time(**time))

    def until(self, **time: float) -> None:
        """Let time pass, with a look every few seconds."""
        end = self.simulation.time(**time)
        while self.simulation.clock.now < end:
            self.simulation.run_until(min(end, self.simulation.clock.now + self.every))
            if not self.blind:
                self.look()

    def blind_until(self, **time: float) -> None:
        """Let time pass without a look, as while nothing of the platform runs."""
        self.blind = True
        self.until(**time)
        self.blind = False

    def lose_spark(self, since: float) -> None:
        """Let Spark be known as unreachable since a time."""
        self.doubts = Doubts(general=(Cause("Spark", since, "Spark: unreachable at 127.0.0.1:15002"),))

    def look(self) -> None:
        instance, assets = self.simulation.instance, self.simulation.asset_graph
        with self.simulation.clock.frozen():
            plan, standings = judged(instance, assets)
            look = Look(
                plan,
                standings,
                self.doubts,
                self.looked_at,
                lambda _: True,
                with_landing=True,
                expected=self.expected,
                contents=lambda _, asked: {p: self.files[p] for p in asked if p in self.files},
                warn=self.warn,
            )
            note_incidents(instance, assets, self.settings, look, [self.channel.route])
        self.looked_at = plan.now

    @property
    def all(self) -> list[Incident]:
        self.store.archive(self.store.read())
        return sorted([*self.book.incidents, *self.store.closed()], key=lambda each: each.opened_at)

    def said(self) -> list[tuple[str, str, list[str]]]:
        """Return each incident's kind, subject and assets."""
        return [(e.cause.kind, e.cause.subject, sorted(a.asset for a in e.assets)) for e in self.all]

    def messages(self) -> list[tuple[MessageKind, str]]:
        return [(message.kind, message.incident.cause.subject) for message in self.book.outbox]


def test_data_that_arrives_on_time_opens_no_incident() -> None:
    location = Location()
    for minute in (1, 9, 20):
        location.arrives("orders", hours=1, minutes=minute)
    location.until(hours=1, minutes=30)
    assert location.all == []


def test_failing_asset_opens_one_incident_that_grows_with_its_readers_and_closes() -> None:
    location = Location()
    location.simulation.fail("core/orders", times=6)  # with the pauses between, for half an hour
    location.arrives("orders", hours=1)
    location.until(hours=1, minutes=4, seconds=40)
    (opened,) = location.book.open
    assert opened.cause.kind is CauseKind.FAILING and opened.cause.subject == "core/orders"
    assert not opened.is_late, "the next try is after the deadline, which is known before the deadline"
    assert [each.asset for each in opened.assets] == ["core/orders"], "the others are repaired in time, as far as known"
    location.every = 60.0
    location.until(hours=2, minutes=10)
    (grown,) = location.all
    assert {each.asset for each in grown.assets} == {"core/orders", "marts/hourly"} and grown.is_late
    assert grown.owners == ("team:core", "team:sales")
    location.until(hours=3)
    assert location.said() == [(CauseKind.FAILING, "core/orders", ["core/orders", "marts/hourly"])]
    kinds = [kind for kind, _ in location.messages()]
    assert kinds[0] is MessageKind.OPENED and kinds[-1] is MessageKind.CLOSED
    assert kinds.count(MessageKind.OPENED) == kinds.count(MessageKind.CLOSED) == 1


def test_failure_that_recovers_before_the_deadline_opens_no_incident() -> None:
    location = Location()
    location.simulation.fail("core/orders", times=1)
    location.arrives("orders", hours=1)
    location.until(hours=1, minutes=10)
    assert location.all == []


def test_missing_source_data_opens_an_incident_of_kind_missing() -> None:
    location = Location()
    location.simulation.run_until(location.simulation.time(days=2, hours=8, minutes=55))
    location.until(days=2, hours=8, minutes=59)
    assert location.all == []
    location.until(days=2, hours=9, minutes=1)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.MISSING, "raw/orders")
    assert [each.asset for each in opened.assets] == ["marts/report"]
    assert opened.assets[0].partitions == ("2026-10-06",)
    location.arrives("orders", "2026-10-06-07:00", days=2, hours=9, minutes=5)
    location.until(days=2, hours=9, minutes=12)
    assert location.book.open == ()


class Calendar:
    """A user's calendar without holidays, which may fail."""

    broken = False

    def __contains__(self, _: object) -> bool:
        if self.broken:
            raise OSError("the calendar service does not answer")
        return False


def test_raising_calendar_keeps_the_states_and_incidents_of_its_source_and_concerns_no_other() -> None:
    location, calendar, warned = Location(every=60.0), Calendar(), list[str]()
    location.warn = warned.append
    within = timedelta(minutes=10)
    location.expected = [
        ExpectedArrival(source="raw/orders", within=within, except_on=calendar),
        ExpectedArrival(source="raw/prices", within=within),
    ]
    location.until(hours=2, minutes=12)  # the hour from one to two has no data
    before = [row for row in location.book.arrivals if row.source == "raw/orders"]
    assert {each.cause.subject for each in location.book.open} == {"raw/orders", "raw/prices"} and not warned
    calendar.broken = True
    location.arrives("prices", hours=2, minutes=13)
    location.until(hours=2, minutes=20)
    assert [row for row in location.book.arrivals if row.source == "raw/orders"] == before
    assert {row.state for row in location.book.arrivals if row.source == "raw/prices"} != {before[0].state}
    assert [each.cause.subject for each in location.book.open] == ["raw/orders"]
    assert "raw/orders keep their last states: OSError: the calendar service" in warned[0]


def test_run_slower_than_usual_opens_an_incident_before_the_deadline() -> None:
    location = Location()
    location.simulation.slow("core/orders", seconds=600)
    location.arrives("orders", hours=1)
    location.until(hours=1, minutes=4, seconds=59)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.SLOW, "core/orders")
    assert not opened.is_late, "with the time left that a usual run takes"
    location.until(hours=1, minutes=15)
    assert [each.is_open for each in location.all] == [False]


def test_run_that_waits_for_a_slot_opens_an_incident_while_a_run_still_fits_before_the_deadline() -> None:
    location = Location(every=10.0)
    simulation = location.simulation
    simulation.hold_in_queue("core/orders", at=simulation.time(hours=1), until=simulation.time(hours=1, minutes=30))
    location.arrives("orders", hours=1)
    location.until(hours=1, minutes=5)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.QUEUE, "run queue")
    (took,) = {round(run.ended_at - run.created_at) for run in simulation.runs if run.ended_at is not None}
    assert 20 <= took <= (opened.assets[0].deadline or 0.0) - opened.opened_at < took + 30


def test_growing_run_durations_open_an_incident_before_the_slow_run() -> None:
    location = Location()
    for number, seconds in enumerate((60, 130, 200, 270)):
        location.simulation.slow("core/orders", seconds=seconds)
        location.arrives("orders", hours=1, minutes=1 + 8 * number)
        location.simulation.run_until(location.simulation.time(hours=1, minutes=7 + 8 * number))
    location.look()
    assert location.all == [], "each run was in time"
    location.simulation.slow("core/orders", seconds=340)
    location.arrives("orders", hours=1, minutes=40)
    location.simulation.run_until(location.simulation.time(hours=1, minutes=40))
    location.looked_at = None  # no sensor was down in between
    location.until(hours=1, minutes=41)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.SLOW, "core/orders")
    assert (opened.assets[0].deadline or 0.0) - opened.opened_at > 240, "as soon as the data is there"


def test_one_unusual_run_does_not_change_the_usual_duration() -> None:
    durations = RunDurations()
    for seconds in (20, 22, 19, 600, 21, 20, 23):
        durations.add({"core/a": 1}, seconds)
    assert durations.usual("core/a") == 21 and durations.usual("core/b") == 0
    for seconds in (50, 52, 51, 50):
        durations.add({"core/a": 1}, seconds)
    assert durations.usual("core/a") == 50, "a new level"


def test_platform_incident_cause_text_contains_no_age() -> None:
    location = Location()
    cause = Cause("shift", location.simulation.time(hours=1), "silent for 40 s", lasting="silent since 01:00")
    location.doubts = Doubts(general=(cause,))
    location.arrives("orders", hours=1)
    location.until(hours=1, minutes=6)
    assert [each.cause.said for each in location.book.open] == ["silent since 01:00"]


def test_incident_of_a_failed_blocking_check_lists_the_readers_that_wait() -> None:
    checked = asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), **ASAP)

    @dg.asset_check(asset=checked, blocking=True)
    def complete() -> dg.AssetCheckResult: ...

    others = [each for each in graph() if getattr(each, "key", None) != dg.AssetKey(["core", "orders"])]
    location = Location([*others, checked, complete], every=60.0)
    location.simulation.fail_check("core/orders", "complete", times=9)
    location.arrives("orders", hours=1)
    location.until(hours=2, minutes=1)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.CHECK, "core/orders: complete")
    assert "marts/hourly" in {each.asset for each in opened.assets}
    assert not {"core/prices", "core/orders"} & {each.asset for each in opened.assets}


def test_source_without_owners_belongs_to_the_owners_of_its_direct_readers() -> None:
    assets = dg.Definitions(graph()).resolve_asset_graph()
    found = ownership_of(assets, graph_of(assets), ["raw/orders", "raw/prices"])
    assert found["raw/orders"].owners == ("team:core",) and found["raw/prices"].owners == ()
    assert found["core/prices"].owners == (), "a table does not belong to its readers"


@pytest.mark.parametrize("fault", ["Spark", "sensor"])
def test_short_fault_is_not_blamed_for_a_table_whose_runs_take_longer_than_its_contract(fault: str) -> None:
    location = Location()
    simulation, of_sensor = location.simulation, fault == "sensor"
    for minutes in (60, 70):
        simulation.slow("core/orders", seconds=310)
        location.arrives("orders", "2026-10-05-00:00", minutes=minutes)
        simulation.run_until(simulation.time(minutes=minutes + 9))
    for minutes in (80, 90):
        location.arrives("orders", "2026-10-05-00:00", minutes=minutes)
        simulation.run_until(simulation.time(minutes=minutes + 9))
    if of_sensor:
        simulation.switch("automation", on=False, at=simulation.clock.now)
    else:
        location.lose_spark(simulation.clock.now)
    location.arrives("orders", minutes=100)
    location.until(minutes=101)
    assert location.all == [], "a minute of it makes no table late"
    location.until(minutes=106)
    (opened,) = location.book.open
    assert fault in opened.cause.subject and "core/orders" in {each.asset for each in opened.assets}


def test_service_outage_is_one_incident_and_not_one_per_failing_asset() -> None:
    location = Location()
    down = location.simulation.time(hours=1)
    location.lose_spark(down)
    for name in ("orders", "prices"):
        location.simulation.fail(f"core/{name}", times=5)
        location.arrives(name, hours=1)
    location.until(hours=1, minutes=8)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.PLATFORM, "Spark")
    assert {"core/orders", "core/prices"} <= {each.asset for each in opened.assets}
    location.doubts = Doubts()
    location.simulation.heal(at=location.simulation.clock.now + 1)
    location.until(hours=1, minutes=25)
    found = [(each.cause.subject, each.is_open) for each in location.all]
    assert found == [("Spark", False)], "what piled up is no new incident"
    assert [kind for kind, _ in location.messages()].count(MessageKind.CLOSED) == 1


def test_short_service_outage_opens_no_incident() -> None:
    location = Location()
    location.doubts = Doubts(general=(Cause("S3", location.simulation.time(hours=1), "S3: unreachable"),))
    location.until(hours=1, minutes=2)
    location.doubts = Doubts()
    location.until(hours=1, minutes=6)
    assert location.all == []


def test_assets_late_after_a_platform_outage_are_one_incident() -> None:
    location = Location()
    location.until(hours=1)
    at, end = location.simulation.time(hours=1), location.simulation.time(hours=1, minutes=30)
    location.simulation.outage(at=at, until=end)
    for name in ("orders", "prices"):
        location.arrives(name, hours=1, minutes=1)
    location.blind_until(hours=1, minutes=30, seconds=2)
    location.every = 10.0
    location.until(hours=1, minutes=36)
    assert [(e.cause.kind, e.cause.subject) for e in location.all] == [(CauseKind.PLATFORM, "sensors")]
    assert not location.all[0].is_open


def test_stopped_sensor_is_the_incident_cause_of_runs_it_does_not_request() -> None:
    location = Location()
    location.simulation.switch("automation", on=False, at=location.simulation.time(hours=1))
    location.arrives("orders", hours=1, minutes=1)
    location.until(hours=1, minutes=7)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.PLATFORM, "sensor automation")
    location.simulation.switch("automation", on=True, at=location.simulation.time(hours=1, minutes=8))
    location.until(hours=1, minutes=14)
    assert [each.is_open for each in location.all] == [False]


def test_external_watch_opens_an_outage_incident_and_the_sensors_close_it() -> None:
    location = Location(every=10.0)
    location.until(hours=1)
    instance, settings = location.simulation.instance, load_settings()
    rows = standing_rows(location.simulation.graph, Plan(location.looked_at or 0.0), {})
    watched = Watched(settings.code_location)
    keep(instance, settings.code_location, Kept(location.looked_at or 0.0, "", watched, tuple(rows)))
    watch = Watch(location.simulation.asset_graph, settings, [location.channel.route])
    at, end = location.simulation.time(hours=1), location.simulation.time(hours=1, minutes=30)
    location.simulation.outage(at=at, until=end)
    location.arrives("orders", hours=1, minutes=1)
    assert watch.look(instance, at + 120).open == (), "no contract can be broken yet"
    (opened,) = watch.look(instance, at + 290).open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.PLATFORM, "sensors")
    assert {each.asset for each in opened.assets} >= {"core/orders", "core/prices"}
    assert watch.look(instance, at + 1700).open[0].id == opened.id
    location.blind_until(hours=1, minutes=30, seconds=2)
    location.until(hours=1, minutes=36)
    assert [(each.id, each.is_open) for each in location.all] == [(opened.id, False)]


def test_incident_cause_is_found_behind_a_chain_of_20000_waiting_partitions() -> None:
    graph = Graph({"core/a": Node("core/a", contract=LagContract(60.0))})
    history = History(graph)
    facts = Decision("core/a", "0", State.BACKING_OFF, "failed", oldest_arrival=0.0, deadline=60.0, next_try=2000.0)
    chain = {("core/a", "0"): facts}
    for number in range(1, 20_000):
        waits = facts.but(partition=str(number), state=State.WAITING, wait_for=(("core/a", str(number - 1)),))
        chain[waits.target] = waits
    history.failures[("core/a", "0")] = Failure(3, 1, 900.0)
    decisions = dict(reversed(chain.items()))
    found = troubles(Evidence(graph, history, PendingWork(graph, history), Plan(1000.0, decisions), {}, Doubts()))
    (trouble,) = found
    assert (trouble.cause.kind, trouble.cause.subject) == (CauseKind.FAILING, "core/a")
    assert trouble.late[0].count == 20_000


def test_20000_failed_runs_of_an_asset_that_no_contract_needs_open_nothing_and_hide_nothing() -> None:
    graph = Graph({"scratch/a": Node("scratch/a"), "core/a": Node("core/a", contract=LagContract(60.0))})
    history = History(graph)
    late = Decision("core/a", "0", State.BACKING_OFF, "failed", oldest_arrival=0.0, deadline=60.0, next_try=2000.0)
    failed = [Decision("scratch/a", str(n), State.BACKING_OFF, "failed", oldest_arrival=0.0) for n in range(20_000)]
    for each in (late, *failed):
        history.failures[each.target] = Failure(3, 1, 900.0)
    decisions = {each.target: each for each in (*failed, late)}
    found = troubles(Evidence(graph, history, PendingWork(graph, history), Plan(1000.0, decisions), {}, Doubts()))
    assert [(each.cause.subject, [a.asset for a in each.late]) for each in found] == [("core/a", ["core/a"])]
