"""A contract is met only as of the last completed look: the causes that make it unknown, and their reasons."""

import json
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg2
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.errors import (
    DagsterCodeLocationLoadError,
    DagsterUserCodeUnreachableError,
    SensorExecutionError,
    user_code_error_boundary,
)
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_run_id
from dagster._utils.error import SerializableErrorInfo, serializable_error_info_from_exc_info
from typer.testing import CliRunner

from dagster_tidemark.cli.app import app
from dagster_tidemark.cli.contract_rows import ContractRow, causes, kept_rows, not_looked_yet, unknown
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine import doubts as doubts_module
from dagster_tidemark.engine import saved_overview
from dagster_tidemark.engine.complete_listings import key_of, note_listing, note_progress, read_listings
from dagster_tidemark.engine.doubts import (
    CONTRACTS,
    LANDING,
    Cause,
    Looked,
    PostOf,
    Watched,
    doubts,
    in_doubt,
    note_look,
)
from dagster_tidemark.engine.saved_overview import Kept, StandingRow
from dagster_tidemark.event_log.beats import Beat
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.decisions import ContractStatus
from dagster_tidemark.planner.wording import moment
from dagster_tidemark.sensors.contract_sensor import _World, contract_sensor
from dagster_tidemark.sensors.reachable import unreachable
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.tags import LOOKED
from tests.tidemark.checks.test_contract import HOUR_7
from tests.tidemark.checks.test_contract import Watched as Simulated
from tests.tidemark.postgres import postgres_server

NOW = time.time()
WATCHED = Watched("grocer", {"orders": "raw/orders"}, (PostOf("readings", "raw/readings", ("post",)),))


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with dg.instance_for_test() as made:
        healthy(made)
        yield made


def healthy(instance: DagsterInstance) -> None:
    note_look(instance, "grocer", LANDING, Looked(NOW - 3))
    for name in ("Spark", "catalog"):
        note_look(instance, "grocer", name, Looked(NOW - 3))
    beat(instance, NOW - 3)
    for sensor in ("automation", "catch_up", "landing"):
        ticked(instance, sensor, NOW - 5)


def beat(instance: DagsterInstance, at: float, **facts: Any) -> None:
    instance_store.save(instance, "post", str(Beat("a run", at, at, 0.0, facts)))


def ticked(
    instance: DagsterInstance,
    sensor: str,
    at: float,
    status: Any = InstigatorStatus.RUNNING,
    location: str = "here",
    every: int = 1,
    started: float | None = None,
) -> None:
    code = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
    data = SensorInstigatorData(
        last_tick_timestamp=at,
        last_tick_success_timestamp=at,
        min_interval=every,
        last_sensor_start_timestamp=started,
    )
    state = InstigatorState(RemoteInstigatorOrigin(code, sensor), InstigatorType.SENSOR, status, data)
    held = instance.get_instigator_state(state.instigator_origin_id, state.selector_id)
    (instance.add_instigator_state if held is None else instance.update_instigator_state)(state)


def failed(instance: DagsterInstance, sensor: str, at: float, error: SerializableErrorInfo) -> None:
    """Give a sensor a complete tick, and one that failed a moment ago."""
    code = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    origin = RemoteInstigatorOrigin(code, sensor)
    data = SensorInstigatorData(last_tick_timestamp=NOW - 2, min_interval=1)
    state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING, data)
    held = instance.get_instigator_state(state.instigator_origin_id, state.selector_id)
    (instance.add_instigator_state if held is None else instance.update_instigator_state)(state)
    for status, when, why in ((TickStatus.SUCCESS, at, None), (TickStatus.FAILURE, time.time(), error)):
        owner = (state.instigator_origin_id, sensor, InstigatorType.SENSOR)
        instance.create_tick(TickData(*owner, status, when, [], [], why, selector_id=state.selector_id))


def from_code_server(refusal: str | None) -> SerializableErrorInfo:
    """Return the error of a tick whose code server is away, or cannot load the code."""
    try:
        raise DagsterCodeLocationLoadError(refusal, load_error_infos=[]) if refusal else ConnectionError("UNAVAILABLE")
    except (DagsterCodeLocationLoadError, ConnectionError) as cause:
        try:
            raise DagsterUserCodeUnreachableError("Unable to reach the user code server for sensor x.") from cause
        except DagsterUserCodeUnreachableError:
            return serializable_error_info_from_exc_info(sys.exc_info())


def of_sensor(sensor: str, error: Exception) -> SerializableErrorInfo:
    """Return the error of a tick whose sensor raised one."""
    try:
        with user_code_error_boundary(SensorExecutionError, lambda: f"Error occurred during sensor {sensor}"):
            raise error
    except SensorExecutionError:
        return serializable_error_info_from_exc_info(sys.exc_info())


def told(instance: DagsterInstance) -> dict[str, str]:
    """Return why a table of files and a table of messages are unknown."""
    found = doubts(instance, WATCHED, NOW)
    sources = {"core/orders": ["raw/orders"], "core/readings": ["raw/readings"]}
    about = {asset: found.about(asset, "automation", of) for asset, of in sources.items()}
    return {asset: ", ".join(cause.said for cause in causes) for asset, causes in about.items() if causes}


def test_contract_state_is_known_after_recent_sensor_ticks(instance: DagsterInstance) -> None:
    assert told(instance) == {}


def test_contract_state_is_unknown_when_its_sensor_does_not_tick(instance: DagsterInstance) -> None:
    ticked(instance, "automation", NOW - 180)
    assert set(told(instance).values()) == {"sensor automation last ticked 3 min ago"}
    ticked(instance, "automation", NOW - 5, InstigatorStatus.STOPPED)
    assert set(told(instance).values()) == {"sensor automation is switched off"}


def test_sensor_that_was_switched_on_again_is_the_same_fault_until_its_first_tick(instance: DagsterInstance) -> None:
    ticked(instance, "automation", NOW - 180, InstigatorStatus.STOPPED)
    (off,) = doubts(instance, WATCHED, NOW).sensors.values()
    ticked(instance, "automation", NOW - 180, started=NOW - 30)
    (on,) = doubts(instance, WATCHED, NOW).sensors.values()
    assert on.said == "sensor automation was switched on, and has not ticked yet" and on.identity == off.identity
    ticked(instance, "automation", NOW - 180, started=NOW - 90)
    (silent,) = doubts(instance, WATCHED, NOW).sensors.values()
    assert silent.said == "sensor automation last ticked 3 min ago", "a minute later something else is wrong"
    ticked(instance, "automation", NOW - 5, started=NOW - 30)
    assert doubts(instance, WATCHED, NOW).sensors == {}


def test_sensors_of_other_code_locations_make_nothing_unknown(instance: DagsterInstance) -> None:
    for sensor in ("automation", "catch_up", "landing"):
        ticked(instance, sensor, NOW - 5, location="grocer")
        ticked(instance, sensor, NOW - 180)  # of the same name, elsewhere
    assert told(instance) == {}
    elsewhere = replace(WATCHED, location="a_package", home="grocer")
    assert doubts(instance, elsewhere, NOW).sensors == {}, "Dagster's name of the location is another"
    ticked(instance, "automation", NOW - 180, location="grocer")
    assert set(told(instance).values()) == {"sensor automation last ticked 3 min ago"}


def test_sensor_that_ticks_once_a_minute_is_late_after_two(instance: DagsterInstance) -> None:
    ticked(instance, "maintenance", NOW - 119, every=60)
    assert doubts(instance, WATCHED, NOW).sensors == {}
    ticked(instance, "maintenance", NOW - 121, every=60)
    assert doubts(instance, WATCHED, NOW).sensors["maintenance"].said == "sensor maintenance last ticked 2 min 1 s ago"


def test_watched_sources_and_sensors_are_kept_and_older_records_are_read() -> None:
    watched = replace(WATCHED, sensors=("lineage",), home="here")
    assert Watched.from_dict(json.loads(json.dumps(watched.as_dict()))) == watched
    older = {name: each for name, each in WATCHED.as_dict().items() if name not in ("sensors", "home", "reported")}
    assert Watched.from_dict(older) == WATCHED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"at": 7.0, "hindrance": "gone", "parts": {"a": "b"}, "new": 7}', Looked(7.0, "gone", {"a": "b"})),
        ('{"at": "now"}', Looked()),
        ('{"at": 7.0, "parts": [1]}', Looked()),
        ("[7]", Looked()),
        ("v7;7", Looked()),
    ],
)
def test_record_of_a_look_by_another_release_is_read_or_counts_as_none(text: str, expected: Looked) -> None:
    assert doubts_module._read(text) == expected


def test_code_server_failure_of_several_sensors_is_reported_as_one_cause(instance: DagsterInstance) -> None:
    """Here the code server is away. The tick of the landing sensor is under way, and has no error yet."""
    for sensor in ("automation", "catch_up", CONTRACTS):
        failed(instance, sensor, NOW - 40, from_code_server(None))
    ticked(instance, LANDING, NOW - 50)
    assert set(told(instance)) == {"core/orders", "core/readings"}
    rows = tuple(row(state, asset=asset) for asset, state in (("a", "met"), ("b", "at risk"), ("c", "breached")))
    found = kept_rows(instance, Kept(NOW - 41, "code", WATCHED, rows), None, NOW, {})
    (cause,) = causes(found)
    assert causes(found) == {cause: ["a", "b", "c"]}
    assert (cause.name, cause.since) == ("code server", NOW - 50)
    assert cause.said == "code server: Dagster's daemon cannot reach it" and cause.remedy
    since = f"since {moment(NOW - 50)}: code server"
    assert [each.reason for each in found] == [f"unknown {since}", f"unknown {since}", f"; in doubt {since}"]


def test_sensor_tick_error_is_reported_in_one_short_message(instance: DagsterInstance) -> None:
    refused = "dagster._core.errors.DagsterImportError: cannot import name 'x'\n\nStack Trace:\n  File ..."
    failed(instance, "automation", NOW - 40, from_code_server(f"Failure loading tidemark: {refused}"))
    said = "code server: Failure loading tidemark: DagsterImportError: cannot import name 'x'"
    assert set(told(instance).values()) == {said}
    away = (
        f"{DagsterUserCodeUnreachableError.__module__}.DagsterUserCodeUnreachableError: Could not reach user code ..."
    )
    failed(instance, "automation", NOW - 40, from_code_server(f"Failure loading tidemark: {away}"))
    assert set(told(instance).values()) == {"code server: Dagster's daemon cannot reach it"}
    failed(instance, "automation", NOW - 40, of_sensor("automation", sqlite3.OperationalError("no such table")))
    failed(instance, "catch_up", NOW - 50, of_sensor("catch_up", sqlite3.OperationalError("no such table")))
    said = "sensors automation, catch_up last ticked 40 s ago and have failed since: OperationalError: no such table"
    assert set(told(instance).values()) == {said}


def test_bucket_that_does_not_answer_is_reported_since_the_last_listing(
    instance: DagsterInstance,
) -> None:
    note_look(instance, "grocer", LANDING, Looked(hindrance="the bucket landing does not answer"))
    assert told(instance) == {"core/orders": "the bucket landing does not answer"}
    assert doubts(instance, WATCHED, NOW).sources["raw/orders"].since == NOW - 3
    note_look(instance, "grocer", LANDING, Looked(NOW, parts={"orders": "orders cannot be looked at: denied"}))
    assert told(instance) == {"core/orders": "orders cannot be looked at: denied"}
    note_look(instance, "grocer", LANDING, Looked(NOW - 90))
    assert told(instance) == {"core/orders": "sensor landing last checked the bucket 1 min 30 s ago"}
    note_look(instance, "grocer", "S3", Looked(NOW, "bucket landing unreachable: timed out"))
    assert told(instance)["core/orders"].endswith("ago: S3: bucket landing unreachable: timed out")


def test_backlog_of_notifications_makes_contracts_unknown_since_the_queue_was_read_to_its_end(
    instance: DagsterInstance,
) -> None:
    note_look(instance, "grocer", LANDING, Looked(NOW, backlog="a tick reads 400 at a time"))
    assert told(instance) == {}, "the queue was read to its end three seconds ago"
    note_look(instance, "grocer", LANDING, Looked(NOW - 90))
    note_look(instance, "grocer", LANDING, Looked(NOW, backlog="a tick reads 400 at a time"))
    reason = told(instance)["core/orders"]
    assert reason.startswith("backlog of notifications: a tick reads 400 at a time, and the queue was not read to its")
    assert doubts(instance, WATCHED, NOW).sources["raw/orders"].since == NOW - 90
    note_look(instance, "grocer", LANDING, Looked(NOW))
    assert told(instance) == {}


@pytest.mark.parametrize("hindered", ["bucket", "backlog", "never", "off"])
def test_complete_listing_of_a_feed_is_a_check_of_its_source_as_of_its_start(
    instance: DagsterInstance, hindered: str
) -> None:
    looks = {
        "bucket": Looked(hindrance="the bucket landing does not answer"),
        "backlog": Looked(NOW, backlog="a tick reads 400 at a time"),
        "off": Looked(NOW - 9000),
    }
    if hindered == "never":
        instance_store.save(instance, f"{LOOKED}grocer/{LANDING}", "{}")
    else:
        note_look(instance, "grocer", LANDING, Looked(NOW - 9000))
        note_look(instance, "grocer", LANDING, looks[hindered])
    if hindered == "off":
        ticked(instance, LANDING, NOW - 9000, InstigatorStatus.STOPPED)
    before = doubts(instance, WATCHED, NOW).sources["raw/orders"]
    note_listing(instance, "grocer", "prices", NOW - 10)
    note_listing(instance, "elsewhere", "orders", NOW - 10)
    note_listing(instance, "grocer", "orders", NOW - 9900)
    if hindered != "never":
        assert doubts(instance, WATCHED, NOW).sources["raw/orders"] == before, "older than the last check"
    note_listing(instance, "grocer", "orders", NOW - 60)
    note_listing(instance, "grocer", "orders", NOW - 90)  # an earlier listing that took longer
    after = doubts(instance, WATCHED, NOW).sources["raw/orders"]
    assert (after.since, after.identity) == (NOW - 60, before.identity)
    assert after.said == f"{before.said}; its feed was listed completely at {moment(NOW - 60)}"
    standing = in_doubt(ContractStatus("core/orders", FreshnessStatus.MET, 0.0), [after])
    assert standing.verdict is FreshnessStatus.UNKNOWN, "nobody checks the source after the listing"
    if hindered == "backlog":
        note_look(instance, "grocer", LANDING, Looked(NOW))
        assert told(instance) == {}


def test_listings_of_two_feeds_that_end_at_once_are_both_recorded(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = instance_store.saved

    def slowly(instance: DagsterInstance, key: str) -> str | None:
        found = saved(instance, key)
        with monkeypatch.context() as alone:  # another process ends its listings between the read and the write
            alone.setattr(instance_store, "saved", saved)
            note_listing(instance, "grocer", "prices", NOW - 20)
            note_listing(instance, "grocer", "orders", NOW - 30)
        return found

    with monkeypatch.context() as two:
        two.setattr(instance_store, "saved", slowly)
        note_listing(instance, "grocer", "orders", NOW - 40)
    found = read_listings(instance, "grocer", ["orders", "prices"])
    assert {feed: listing.at for feed, listing in found.items()} == {"orders": NOW - 30, "prices": NOW - 20}


def test_first_listing_that_is_under_way_makes_the_contracts_of_its_feed_unknown(instance: DagsterInstance) -> None:
    note_progress(instance, "grocer", "orders", "here", begun_at=NOW - 40, progress="9 files in 3 partitions so far")
    note_progress(instance, "grocer", "prices", "here", begun_at=NOW - 40, progress="not watched")
    said = "feed orders is listed completely for the first time"
    assert told(instance) == {"core/orders": f"{said}: 9 files in 3 partitions so far"}
    (cause,) = doubts(instance, WATCHED, NOW).sources.values()
    assert (cause.since, cause.without_age) == (NOW - 40, said)
    note_look(instance, "grocer", LANDING, Looked(NOW, hindrance="the bucket landing does not answer"))
    assert told(instance) == {"core/orders": "the bucket landing does not answer"}, "the listing waits for it too"
    note_look(instance, "grocer", LANDING, Looked(NOW))
    note_listing(instance, "grocer", "orders", NOW - 40, "here")
    assert told(instance) == {}
    note_progress(
        instance,
        "grocer",
        "orders",
        "here",
        begun_at=NOW - 20,
        progress="of another process, which has not read the record",
    )
    assert told(instance) == {}


def test_unreadable_record_of_listings_counts_as_none(instance: DagsterInstance) -> None:
    note_look(instance, "grocer", LANDING, Looked(hindrance="the bucket landing does not answer"))
    for text in ("not JSON", "[]", '{"at": "yesterday"}'):
        instance_store.save(instance, key_of("grocer", "orders"), text)
        assert told(instance) == {"core/orders": "the bucket landing does not answer"}


@pytest.mark.parametrize(("sensor", "asset"), [(LANDING, "core/orders"), ("streams", "core/readings")])
def test_stopped_source_sensor_makes_only_the_assets_it_feeds_unknown(
    instance: DagsterInstance, sensor: str, asset: str
) -> None:
    note_look(instance, "grocer", LANDING, Looked(NOW - 3))  # the last look before that does not make its data current
    beat(instance, NOW - 90 if sensor == "streams" else NOW)
    ticked(instance, sensor, NOW - 90, InstigatorStatus.STOPPED)
    assert told(instance) == {asset: f"sensor {sensor} is switched off"}


def test_service_is_reported_unreachable_only_after_a_second_failed_probe(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([{"Spark": "away"}, {"Spark": ""}, {"Spark": "away"}, {"Spark": "away"}, {"Spark": "still away"}])
    monkeypatch.setattr("dagster_tidemark.sensors.contract_sensor.unreachable", lambda _: next(answers))
    monkeypatch.setattr("dagster_tidemark.sensors.contract_sensor._ASKED_AGAIN", 0.0)
    world = _World()
    for expected in ({}, {"Spark: away"}, {"Spark: still away"}):
        world.look(instance, Settings(), "grocer", NOW)
        assert set(told(instance).values()) == set(expected)


def test_stream_shift_that_is_dead_blocked_or_not_started_is_reported(instance: DagsterInstance) -> None:
    beat(instance, NOW - 120)
    assert told(instance) == {"core/readings": "the shift of raw/readings has not reported for 2 min"}
    beat(instance, NOW - 2, looked_at=NOW - 60, hindrance="sqs:readings: QueueDoesNotExist")
    said = "the shift of raw/readings has not read all messages for 1 min: sqs:readings: QueueDoesNotExist"
    assert told(instance) == {"core/readings": said}
    beat(instance, NOW - 2, looked_at=NOW - 15)
    assert told(instance) == {}, "it may work on a large batch"
    beat(instance, NOW - 2, looked_at=NOW - 15, hindrance="sqs:readings: QueueDoesNotExist")
    assert "for 15 s: sqs:readings" in told(instance)["core/readings"], "a reason is told before half a minute is over"
    beat(instance, NOW - 2, looked_at=NOW - 15, hindrance="kafka:readings/1 has no leader", backlog=0)
    assert "not read all messages for 15 s: kafka:readings/1 has no leader" in told(instance)["core/readings"]
    instance_store.save(instance, "post", "")
    note_look(instance, "grocer", "streams", Looked(NOW, parts={"readings": "4 shifts, 3 slots"}))
    assert told(instance) == {"core/readings": "no shift of raw/readings has reported yet: 4 shifts, 3 slots"}


def test_unreachable_spark_makes_every_contract_unknown(instance: DagsterInstance) -> None:
    note_look(instance, "grocer", "Spark", Looked(NOW, "unreachable at 127.0.0.1:15002"))
    assert set(told(instance).values()) == {"Spark: unreachable at 127.0.0.1:15002"} and len(told(instance)) == 2


def test_full_run_queue_is_reported_after_a_minute_without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.instance_for_test(overrides={"concurrency": {"runs": {"max_concurrent_runs": 1}}}) as instance:
        healthy(instance)
        create_run_for_test(instance, job_name="holds", status=DagsterRunStatus.STARTED)
        key = dg.AssetKey(["core", "orders"])
        code = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="nowhere"))
        origin = RemoteRepositoryOrigin(code, "__repository__").get_job_origin("waits")
        run = dg.DagsterRun("waits", make_new_run_id(), status=DagsterRunStatus.QUEUED, remote_job_origin=origin)
        instance.add_run(run._replace(asset_selection=frozenset([key])))
        assert "core/orders" not in told(instance), "it waits for a moment only"
        monkeypatch.setattr("tests.tidemark.checks.test_doubts.NOW", time.time() + 60)
        healthy(instance)
        assert told(instance) == {"core/orders": "run queue full: 1 of 1 slots"}


@pytest.mark.parametrize(
    ("verdict", "after", "named"),
    [
        (FreshnessStatus.MET, FreshnessStatus.UNKNOWN, True),
        (FreshnessStatus.AT_RISK, FreshnessStatus.UNKNOWN, True),
        (FreshnessStatus.BREACHED, FreshnessStatus.BREACHED, True),
        (FreshnessStatus.NOT_JUDGED, FreshnessStatus.NOT_JUDGED, False),
    ],
)
def test_platform_fault_makes_a_met_contract_unknown_but_not_a_breached_one(
    verdict: FreshnessStatus, after: FreshnessStatus, named: bool
) -> None:
    standing = in_doubt(
        ContractStatus("a", verdict, 0.0, reason="before"), [Cause("a sensor", NOW, "the automation ignores")]
    )
    assert standing.verdict is after and ("the automation ignores" in standing.reason) == named


def row(state: str = "met", sources: tuple[str, ...] = ("raw/orders",), asset: str = "core/orders") -> StandingRow:
    return StandingRow(asset, "within 5 min", state, None, 0, None, "", (), False, False, True, "automation", sources)


def test_saved_overview_becomes_unknown_when_it_is_too_old(instance: DagsterInstance) -> None:
    saved_overview.keep(instance, "grocer", Kept(NOW - 3, "code", WATCHED, (row(),)))
    kept = saved_overview.kept(instance, "grocer")
    assert kept == Kept(NOW - 3, "code", WATCHED, (row(),))
    assert kept is not None
    (found,) = kept_rows(instance, kept, None, NOW, {})
    assert found.state == "met" and unknown([found]) == []
    (found,) = kept_rows(instance, kept, None, NOW + 100, {})
    assert found.state == "unknown" and unknown([found]) == ["core/orders"]
    assert found.causes[0].said == "sensor contracts last ran 1 min 43 s ago"
    assert found.reason.startswith("unknown since ") and ": sensor contracts, sensors automation" in found.reason
    saved_overview.keep(instance, "grocer", Kept(NOW, "code", WATCHED, (row("breached"),)))
    instance_store.save(instance, "tidemark/overview/grocer", '{"version": 0}')
    assert saved_overview.kept(instance, "grocer") is None


def test_contract_is_unknown_before_the_contracts_sensor_first_runs() -> None:
    empty = ContractRow("a", "within 5 min", "met", 0.0, 0, None, "", None, None)
    (found,) = not_looked_yet([empty])
    assert (found.state, found.reason) == ("unknown", "sensor contracts has not run yet")


def test_status_reports_an_unreachable_dagster_storage_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    login = {"username": "a", "password": "b", "hostname": "127.0.0.1", "db_name": "c", "port": port}
    (tmp_path / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_db: {login}}}}}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path / "state"))
    begun = time.monotonic()
    result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == 1 and time.monotonic() - begun < 20
    assert result.output.count("\n") == 1 and "Dagster's storage is unreachable" in result.output


def test_server_with_an_open_port_that_does_not_answer_is_reported_unreachable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    with closing(socket.socket()) as listens:
        listens.bind(("127.0.0.1", 0))
        listens.listen()
        port = listens.getsockname()[1]
        stopped = f"http://127.0.0.1:{port}"
        settings = Settings(spark_remote=f"sc://127.0.0.1:{port}", state_dir=tmp_path, aws_endpoint_url=stopped)
        found = unreachable(settings)
    assert found["S3"].startswith("bucket landing unreachable: Read timeout")
    assert (found["Spark"], found["catalog"]) == (f"unreachable at 127.0.0.1:{port}", "")


def test_missing_or_unresponsive_catalog_is_reported_unreachable(tmp_path: Path) -> None:
    gone = Settings(state_dir=tmp_path, catalog_uri=f"jdbc:sqlite:{tmp_path}/no/such/folder.db")
    assert unreachable(gone)["catalog"].startswith("unreachable: ")
    with closing(socket.socket()) as stopped:
        stopped.bind(("127.0.0.1", 0))
        stopped.listen()
        uri = f"jdbc:postgresql://127.0.0.1:{stopped.getsockname()[1]}/lake?user=a"
        begun = time.monotonic()
        assert unreachable(Settings(state_dir=tmp_path, catalog_uri=uri))["catalog"].startswith("unreachable: ")
        assert time.monotonic() - begun < 15


def test_contract_sensor_saves_its_overview_and_the_check_reports_unknown_contracts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    simulated = Simulated()
    simulated._sensor = contract_sensor(
        Watched("grocer", {"orders": "raw/orders"}), scope=LocationScope(settings=load_settings())
    )
    simulated.simulation.arrive("raw/orders", HOUR_7, at=simulated.simulation.time(hours=7))
    simulated.look(hours=7, minutes=2)
    assert set(simulated.told) == {(asset, "unknown") for asset in ("core/orders", "marts/report")}
    instance = simulated.simulation.instance
    assert (simulated.last("core/orders").description or "").startswith("unknown since ")
    kept = saved_overview.kept(instance, "grocer")
    assert kept is not None and {row.asset: row.state for row in kept.rows if row.contract} == {
        "core/orders": "met",
        "marts/report": "met",
    }
    note_look(instance, "grocer", LANDING, Looked(simulated.simulation.time(hours=7, minutes=3)))
    simulated.told.clear()
    simulated.look(hours=7, minutes=3)
    assert ("core/orders", "met") in simulated.told
    check = simulated.last("core/orders")
    assert check.passed
    assert [found.state for found in kept_rows(instance, kept, "core/orders", kept.at + 1, {})] == ["met"]


def test_locked_catalog_is_reported_as_accepting_no_commit(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        assert unreachable(settings)["catalog"] == "accepts no commit: database is locked"
        locking.execute("ROLLBACK")
        assert unreachable(settings)["catalog"] == ""
        locking.execute("BEGIN IMMEDIATE")  # the probe gave its own lock back
    with postgres_server() as login, closing(psycopg2.connect(_dsn(login))) as locking:
        uri = f"jdbc:postgresql://127.0.0.1:{login['port']}/postgres?user=tidemark&password=tidemark"
        settings = Settings(state_dir=tmp_path, catalog_uri=uri)
        assert unreachable(settings)["catalog"] == "", "it has no tables yet"
        cursor = locking.cursor()
        cursor.execute("CREATE TABLE iceberg_tables (name text)")
        locking.commit()
        cursor.execute("LOCK TABLE iceberg_tables")
        assert unreachable(settings)["catalog"].startswith("accepts no commit: canceling statement due to lock timeout")
        locking.commit()
        assert unreachable(settings)["catalog"] == ""
        cursor.execute("LOCK TABLE iceberg_tables NOWAIT")


def _dsn(login: Mapping[str, Any]) -> str:
    return f"host=127.0.0.1 port={login['port']} dbname=postgres user=tidemark password=tidemark"
