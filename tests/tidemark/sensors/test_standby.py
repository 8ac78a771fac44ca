"""Several code servers of one location: one works, in the order of first ticks, and mistakes are named."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from random import Random

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._daemon.types import DaemonHeartbeat

from dagster_tidemark.cli import status_view
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.engine import engine_of, forget
from dagster_tidemark.event_log import standby
from dagster_tidemark.event_log.standby import DEPLOY_SECONDS, SETTLE_SECONDS, SILENT_SECONDS, Record, Standby, mistakes
from dagster_tidemark.sensors.automation import automation_sensor
from dagster_tidemark.sensors.catch_up import catch_up_sensor, due_now
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import TICKING
from tests.sampling import sample

KEY = f"{TICKING}shop/tidemark"


class Clock:
    """Monotonic seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ticks(instance: DagsterInstance, clock: Clock, seconds: float, *servers: Standby) -> list[bool]:
    """Tick all servers every 2.5 seconds. Return which of them work at the end."""
    end = clock.now + seconds
    while clock.now < end:
        clock.now += 2.5
        works = [not server.reason(instance) for server in servers]
    return works


def test_one_server_works_from_its_first_tick(instance: DagsterInstance, clock: Clock) -> None:
    alone = Standby(KEY, clock)
    assert alone.reason(instance) == ""
    ticks(instance, clock, 60, alone)
    assert not alone.is_settling() and mistakes(instance, time.time()) == []


def test_new_server_works_at_once_and_the_old_one_stands_by(instance: DagsterInstance, clock: Clock) -> None:
    old, new = Standby(KEY, clock), Standby(KEY, clock)
    ticks(instance, clock, 10, old)
    assert new.reason(instance) == ""
    clock.now += 2.5
    assert "began to tick later" in old.reason(instance)
    assert ticks(instance, clock, 20, old, new) == [False, True]
    assert new.is_settling(), "runs of the old server may still appear"
    ticks(instance, clock, SETTLE_SECONDS + 5, new)
    assert not new.is_settling()


def test_replaced_server_does_not_settle(instance: DagsterInstance, clock: Clock) -> None:
    old, new = Standby(KEY, clock), Standby(KEY, clock)
    ticks(instance, clock, 10, old)
    ticks(instance, clock, 20, old, new)
    assert new.is_settling() and not old.is_settling(), "builds of newer code are not older"


def test_rare_looks_still_end_the_wait_for_a_server_that_is_gone(instance: DagsterInstance, clock: Clock) -> None:
    old, new = Standby(KEY, clock), Standby(KEY, clock)
    ticks(instance, clock, 10, old)
    ticks(instance, clock, 10, old, new)
    for _ in range(6):  # a daemon without threads, with slow sensors
        clock.now += 20
        reason = old.reason(instance)
    assert reason == ""


def test_old_server_works_again_after_the_new_one_is_gone(instance: DagsterInstance, clock: Clock) -> None:
    old, new = Standby(KEY, clock), Standby(KEY, clock)
    ticks(instance, clock, 10, old)
    ticks(instance, clock, 10, old, new)
    assert ticks(instance, clock, SILENT_SECONDS - 10, old) == [False]
    assert ticks(instance, clock, 15, old) == [True]


def test_server_that_was_frozen_during_a_deploy_stands_by_when_it_continues(
    instance: DagsterInstance, clock: Clock
) -> None:
    old, new = Standby(KEY, clock), Standby(KEY, clock)
    ticks(instance, clock, 10, old)
    ticks(instance, clock, 85, new)
    assert old.reason(instance) != ""
    assert ticks(instance, clock, 60, old, new) == [False, True]


def test_second_server_by_mistake_is_named_after_the_time_of_a_deploy(instance: DagsterInstance, clock: Clock) -> None:
    one, two = Standby(KEY, clock), Standby(KEY, clock)
    ticks(instance, clock, DEPLOY_SECONDS - 20, one, two)
    assert mistakes(instance, time.time()) == []
    ticks(instance, clock, 60, one, two)
    (line,) = mistakes(instance, time.time())
    assert line.startswith("2 code servers tick for one location") and "on standby" in line
    assert mistakes(instance, time.time() + 600) == [], "nobody writes the record any more"
    ticks(instance, clock, 60, two)
    assert mistakes(instance, time.time()) == []


def test_two_daemons_are_named_and_a_restarted_one_is_not(instance: DagsterInstance, clock: Clock) -> None:
    server = Standby(KEY, clock)

    def beats(*senders: str) -> list[str]:
        for sender in senders:
            instance.add_daemon_heartbeat(DaemonHeartbeat(clock.now, "SENSOR", sender, []))
            ticks(instance, clock, 15, server)
        return mistakes(instance, time.time())

    assert beats("a", "a", "b", "b", "c") == []
    (line,) = beats("d", "c")
    assert line.startswith("2 daemons run on this instance") and line.endswith("stop one")
    assert beats(*["d"] * 12) == []


def test_two_locations_of_one_package_are_named(instance: DagsterInstance, clock: Clock) -> None:
    one, two = Standby(KEY, clock), Standby(f"{TICKING}shop/other", clock)
    other = Standby(f"{TICKING}elsewhere/third", clock)
    assert ticks(instance, clock, 10, one, two, other) == [True, True, True]
    (line,) = mistakes(instance, time.time())
    assert "other, tidemark load one package, shop" in line


def test_record_of_another_release_is_replaced(instance: DagsterInstance, clock: Clock) -> None:
    for text in ("", "[]", '{"servers": {"a": {"order": 1}}}', '{"servers": 3, "mistakes": [], "at": 0}'):
        instance_store.save(instance, KEY, text)
        assert Standby(KEY, clock).reason(instance) == ""
        assert Record.read(instance_store.saved(instance, KEY)).servers


def test_locations_without_settings_never_stand_by(instance: DagsterInstance) -> None:
    with dg.build_sensor_context(instance) as context:
        assert standby.reason_to_stand_by(context, None) == ""


@pytest.mark.parametrize("seed", sample(range(6), 0, 1))
def test_the_living_server_that_ticked_first_most_recently_works(
    seed: int, instance: DagsterInstance, clock: Clock
) -> None:
    """Servers start, freeze, continue and end at random. The oracle knows the order of starts and who lives."""
    random = Random(seed)
    started: list[Standby] = []
    frozen: set[int] = set()
    ended: set[int] = set()
    for _ in range(25):
        living = [at for at in range(len(started)) if at not in ended]
        match random.choice(["start", "freeze", "continue", "end", "nothing"]):
            case "start" if len(living) < 4:
                started.append(Standby(KEY, clock))
            case "freeze" if living:
                frozen.add(random.choice(living))
            case "continue" if frozen:
                frozen.discard(random.choice(sorted(frozen)))
            case "end" if living:
                ended.add(random.choice(living))
        active = [at for at in range(len(started)) if at not in ended | frozen]
        newest: set[int] = set()
        for _ in range(random.randint(1, 40)):
            clock.now += random.uniform(1.0, 3.0)
            random.shuffle(active)
            for at in active:
                started[at].reason(instance)
        for _ in range(24):  # 60 seconds: each silence is noticed
            clock.now += 2.5
            newest = {at for at in active if not started[at].reason(instance)}
        assert newest == ({max(active)} if active else set()), (seed, active, frozen, ended)


def test_code_is_replaced_while_a_server_with_other_code_works(instance: DagsterInstance, clock: Clock) -> None:
    old, new = Standby(KEY, clock, code="a"), Standby(KEY, clock, code="b")

    def replaced() -> tuple[str, ...]:
        return Record.read(instance_store.saved(instance, KEY)).replaced

    ticks(instance, clock, 10, old)
    assert replaced() == ()
    ticks(instance, clock, 2.5, new)
    assert replaced() == ("a",), "from the first tick of the new server"
    ticks(instance, clock, 20, old, new)
    assert replaced() == ("a",), "a server on standby does not change it"
    ticks(instance, clock, SILENT_SECONDS + 15, old)
    assert replaced() == ("b",), "the deploy was given up"
    ticks(instance, clock, 10, Standby(KEY, clock, code="b"))
    assert replaced() == ("a",), "and made again"


@dg.asset(automation_condition=dg.AutomationCondition.eager())
def table() -> None: ...


def _tick_of_the_daemon(
    instance: DagsterInstance, repository: dg.RepositoryDefinition, cursor: str | None = None
) -> dg.SensorEvaluationContext:
    return dg.build_sensor_context(instance, repository_def=repository, cursor=cursor, last_sensor_start_time=1.0)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each tick look and beat."""
    monkeypatch.setattr(standby, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(standby, "_BEAT_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_sensors_on_standby_request_nothing_and_keep_their_cursors() -> None:
    settings = Settings()
    sensors = [automation_sensor(settings), catch_up_sensor(LocationScope(settings=settings))]
    repository = dg.Definitions([table], sensors=sensors).get_repository_def()
    later = Standby(f"{TICKING}{settings.code_location}/")
    with (
        dg.instance_for_test() as instance,
        _tick_of_the_daemon(instance, repository, cursor="kept") as context,
    ):
        assert standby.reason_to_stand_by(context, settings) == ""
        assert later.reason(instance) == ""
        for sensor in sensors:
            found = sensor.evaluate_tick(context)
            assert (found.run_requests or [], found.cursor) == ([], "kept")
            assert "began to tick later" in str(found.skip_message)
        assert due_now(context, settings) == []


@pytest.mark.usefixtures("at_once")
def test_preview_of_a_sensor_neither_replaces_the_code_server_nor_stands_by() -> None:
    settings = Settings()
    works = Standby(standby.key_of(settings, ""), code="deployed")
    with dg.instance_for_test() as instance, dg.build_sensor_context(instance) as preview:
        assert works.reason(instance) == ""
        assert standby.reason_to_stand_by(preview, settings) == ""
        assert works.reason(instance) == ""
        record = Record.read(instance_store.saved(instance, works.key))
    assert len(record.servers) == 1 and record.replaced == ()


@pytest.mark.usefixtures("at_once")
def test_runs_that_a_replaced_server_has_just_requested_count_as_runs_of_older_code() -> None:
    settings = Settings()
    repository = dg.Definitions([table], sensors=[automation_sensor(settings)]).get_repository_def()
    old = Standby(f"{TICKING}{settings.code_location}/")
    with (
        dg.instance_for_test() as instance,
        _tick_of_the_daemon(instance, repository) as context,
    ):
        old.reason(instance)
        assert standby.reason_to_stand_by(context, settings) == ""
        engine = engine_of(context, repository.asset_graph, settings)
        loaded_after = engine.loaded_after or 0
        dg.materialize([table], instance=instance)
        engine_of(context, repository.asset_graph, settings)
        assert (engine.loaded_after or 0) == loaded_after, "the old server has ended: that run uses edited code"
        old.reason(instance)
        standby.reason_to_stand_by(context, settings)
        engine_of(context, repository.asset_graph, settings)
        assert (engine.loaded_after or 0) > loaded_after
        forget(instance)


def test_status_names_what_runs_by_mistake_beside_its_rows(
    instance: DagsterInstance, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks(instance, clock, 10, Standby(KEY, clock), Standby(f"{TICKING}shop/other", clock))
    monkeypatch.setattr(status_view, "opened_instance", lambda: nullcontext(instance))
    monkeypatch.setattr(status_view, "take_environment", lambda _: None)
    monkeypatch.setattr(status_view, "_found", lambda *_: [])
    status_view.show_contracts(Settings(), None, watch=False, as_json=True)
    shown = capsys.readouterr()
    assert shown.out == "[]\n" and shown.err.startswith("tidemark: the code locations other, tidemark load one package")
