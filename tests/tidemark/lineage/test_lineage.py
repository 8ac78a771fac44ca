"""The sensor `lineage`: events of real runs at a real HTTP receiver, also when it is down or hangs."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import dagster as dg
import pytest
import requests
from dagster import DagsterInstance

from dagster_tidemark import Feed, Grain
from dagster_tidemark.lineage import openlineage
from dagster_tidemark.lineage.asset_runs import AssetRun, AssetRunState, AssetVersion, begun
from dagster_tidemark.lineage.openlineage import (
    EventSender,
    LineageMissing,
    LineageNames,
    emit_with_client,
    event_of,
    is_configured,
    run_uuid,
)
from dagster_tidemark.sensors import lineage_sensor
from dagster_tidemark.sensors.lineage_sensor import lineage_sensors
from dagster_tidemark.sensors.scope import WHOLE_LOCATION
from dagster_tidemark.settings import Settings
from tests.conftest import free_port
from tests.tidemark.lineage.receiver import Receiver, _Post, receiver

SETTINGS = Settings(code_location="shop", catalog_uri="jdbc:postgresql://db/lake?user=u&password=hunter2")
FEED = Feed("orders", "orders/", Grain.DAY, {"order_id": "bigint"}, required=("order_id",))
RAW = dg.AssetSpec(["raw", "orders"])
commits = {"core/orders": 100, "marts/sales": 200}


def built(asset: str) -> dg.MaterializeResult[None]:
    commits[asset] += 1
    return dg.MaterializeResult(metadata={"snapshot id": str(commits[asset])})


@dg.asset(key=["core", "orders"], deps=[RAW])
def orders() -> dg.MaterializeResult[None]:
    return built("core/orders")


@dg.asset(key=["marts", "sales"], deps=[orders], config_schema={"fails": dg.Field(bool, default_value=False)})
def sales(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    if context.op_execution_context.op_config["fails"]:
        raise ValueError("no such column\nhunter2")
    return built("marts/sales")


DEFS = dg.Definitions([RAW, orders, sales])


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiver() as server:
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:  # the client adds some
            monkeypatch.delenv(name)
        monkeypatch.setenv("OPENLINEAGE_URL", server.url)
        yield server


@pytest.fixture(scope="module")
def home() -> Iterator[DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


class Lineage:
    """The sensor, evaluated tick by tick on an instance."""

    def __init__(self, instance: DagsterInstance) -> None:
        self.instance, self.repository = instance, DEFS.get_repository_def()
        (self.sensor,) = lineage_sensors(SETTINGS, [FEED], {"core.orders", "marts.sales"}, WHOLE_LOCATION)
        self.cursor: str | None = json.dumps({"at": time.time() + 10, "begun": [], "ended": {}})

    def tick(self) -> str:
        with dg.build_sensor_context(self.instance, self.cursor, repository_def=self.repository) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor or self.cursor
        return result.skip_message or ""

    def run(self, *assets: dg.AssetsDefinition, fails: bool = False) -> str:
        config = {"ops": {"marts__sales": {"config": {"fails": fails}}}} if sales in assets else None
        given = [RAW, orders, sales]
        done = dg.materialize(
            given, selection=list(assets), instance=self.instance, run_config=config, raise_on_error=False
        )
        return done.run_id


def test_each_asset_of_a_run_is_started_and_completed_with_snapshots_as_versions(
    http: Receiver, home: DagsterInstance
) -> None:
    lineage = Lineage(home)
    run_id = lineage.run(orders, sales)
    assert lineage.tick() == "4 events sent"
    assert http.said() == [
        *(("core/orders", "START"), ("marts/sales", "START"), ("core/orders", "COMPLETE"), ("marts/sales", "COMPLETE"))
    ]
    begun, _, _, done = http.events
    read, wrote = commits["core/orders"], commits["marts/sales"]
    assert [(each["namespace"], each["name"]) for each in begun["inputs"]] == [("s3://landing", "orders/")]
    (inputs,), (outputs,) = done["inputs"], done["outputs"]
    assert (inputs["namespace"], inputs["name"]) == (SETTINGS.catalog_shown, "core.orders")
    assert inputs["facets"]["version"]["datasetVersion"] == str(read)
    assert outputs["name"] == "marts.sales" and outputs["facets"]["version"]["datasetVersion"] == str(wrote)
    assert done["run"]["runId"] == run_uuid(run_id, "marts/sales") == http.events[1]["run"]["runId"]
    assert done["run"]["facets"]["parent"]["run"]["runId"].replace("-", "") == run_id.replace("-", "")
    assert done["job"]["namespace"] == "shop" and http.paths == {"/api/v1/lineage"}
    assert "hunter2" not in json.dumps(http.events)
    assert lineage.tick() == "0 events sent", "each event once"
    lineage.run(orders)
    assert lineage.tick() == "2 events sent", "of the new run alone"


def test_a_failed_run_reports_what_it_built_and_what_failed(http: Receiver, home: DagsterInstance) -> None:
    lineage = Lineage(home)
    lineage.run(orders, sales, fails=True)
    lineage.tick()
    assert http.said()[2:] == [("core/orders", "COMPLETE"), ("marts/sales", "FAIL")]
    error = http.events[-1]["run"]["facets"]["errorMessage"]
    assert "marts__sales" in error["message"] and "\n" not in error["message"]
    assert "version" not in http.events[-1]["outputs"][0].get("facets", {})


def test_a_run_in_progress_is_started_once_and_a_killed_one_fails_at_its_end(
    http: Receiver, home: DagsterInstance
) -> None:
    lineage = Lineage(home)
    job = DEFS.resolve_implicit_global_asset_job_def()
    run = home.create_run_for_job(job, asset_selection=frozenset({sales.key}), status=dg.DagsterRunStatus.NOT_STARTED)
    home.report_engine_event("waits", run)
    assert lineage.tick() == "0 events sent"
    started = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
    home.report_dagster_event(started, run.run_id)
    assert lineage.tick() == "1 events sent" and http.said() == [("marts/sales", "START")]
    assert lineage.tick() == "0 events sent"
    home.report_run_failed(home.get_run_by_id(run.run_id) or run)
    lineage.tick()
    assert http.said() == [("marts/sales", "START"), ("marts/sales", "FAIL")]


def test_events_wait_while_the_receiver_is_down_and_are_named_once(
    home: DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []
    down = True

    def emit(event: Any) -> None:
        if down:
            raise ConnectionError("refused\nby the host")
        sent.append(event)

    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    now = [0.0]
    sender = EventSender(emit, clock=lambda: now[0])
    monkeypatch.setattr("dagster_tidemark.sensors.lineage_sensor.EventSender", lambda _: sender)
    lineage = Lineage(home)
    began = time.monotonic()
    lineage.run(orders)
    lineage.run(orders)
    with caplog.at_level(logging.WARNING):
        assert lineage.tick() == "0 events sent; the others wait: ConnectionError: refused"
        assert lineage.tick() == "events wait for the receiver: ConnectionError: refused", "it pauses"
        for _ in range(3):
            now[0] += 400
            lineage.tick()
        assert len([r for r in caplog.records if "takes no events" in r.getMessage()]) == 1
        down = False
        now[0] += 400
        assert lineage.tick() == "4 events sent" and len(sent) == 4
    assert [r.getMessage() for r in caplog.records if "again" in r.getMessage()] != []
    assert time.monotonic() - began < 60


def test_openlineages_client_waits_for_a_receiver_that_starts_later(
    home: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:  # the client adds some
        monkeypatch.delenv(name)
    port = free_port()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(lineage_sensor, "_SECONDS", 1.0)
    monkeypatch.setattr(openlineage, "_FIRST_PAUSE", 0.1)
    lineage = Lineage(home)
    lineage.run(orders)
    began = time.monotonic()
    assert lineage.tick().startswith("0 events sent; the others wait: ") and time.monotonic() - began < 4
    with receiver(port) as server:
        while not server.said()[1:]:
            assert time.monotonic() - began < 60
            lineage.tick()
            time.sleep(0.1)
        assert set(server.said()) == {("core/orders", "START"), ("core/orders", "COMPLETE")}


def test_a_receiver_that_never_answers_does_not_hold_the_tick(http: Receiver) -> None:
    http.answers.clear()
    sender = EventSender(lambda _: http.answers.wait(60))
    began = time.monotonic()
    assert not sender.send("run", "one", 1, 0.2) and time.monotonic() - began < 2
    assert sender.fault == "no answer within 0.2 s" and not sender.is_ready()


def test_event_whose_answer_came_late_counts_as_sent() -> None:
    answers, now = threading.Event(), [0.0]
    sender = EventSender(lambda _: answers.wait(60), clock=lambda: now[0])
    assert not sender.send("run", "one", 1, 0.1)
    now[0] += 400
    assert not sender.is_ready() and not sender.sent("run")
    answers.set()
    while not sender.is_ready():
        time.sleep(0.01)
    assert sender.sent("run") == {"one"}


def test_large_run_is_sent_over_several_ticks_each_event_once(
    home: DagsterInstance, http: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    def emit(event: Any) -> None:
        time.sleep(0.05)
        sent.append(event)

    monkeypatch.setattr(lineage_sensor, "EventSender", lambda _: EventSender(emit))
    monkeypatch.setattr(lineage_sensor, "_SECONDS", 0.0)
    monkeypatch.setattr(lineage_sensor, "_LEAST", 0.03)
    lineage = Lineage(home)
    start = lineage.cursor
    lineage.run(orders, sales)
    monkeypatch.setattr(openlineage, "_FIRST_PAUSE", 0.0)
    for count in range(1, 4):
        lineage.tick()
        time.sleep(0.1)  # the answer comes after the tick
        assert len(sent) == count and json.loads(lineage.cursor or "")["ended"] == {}, "the run is not complete"
    lineage.tick()
    time.sleep(0.1)
    lineage.tick()
    assert len({(each.job.name, each.eventType) for each in sent}) == len(sent) == 4
    assert lineage.cursor != start and len(json.loads(lineage.cursor or "")["ended"]) == 1


class Answered(Exception):
    """An error of an HTTP client that has an answer."""

    def __init__(self, status: int) -> None:
        super().__init__("wrong")
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize(("status", "goes_on"), [(422, True), (400, True), (401, False), (429, False), (503, False)])
def test_refused_event_is_skipped_and_logged_once_and_other_answers_are_waited_for(
    status: int, goes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def emit(event: Any) -> None:
        if event == 1:
            raise Answered(status)

    sender = EventSender(emit)
    assert sender.send("run", "START of a", 1, 5.0) is goes_on is (sender.fault == "")
    assert sender.send("run", "START of b", 2, 5.0)
    assert sender.sent("run") == ({"START of a", "START of b"} if goes_on else {"START of b"})
    refusal = f"the receiver refuses it: Answered: it answered with {status}"
    named = [r.getMessage() for r in caplog.records if "is skipped" in r.getMessage()]
    assert named == ([f"run run: the lineage event `START of a` is skipped: {refusal}"] if goes_on else [])


@pytest.mark.parametrize("answers", [True, False])
def test_fault_of_a_real_client_holds_no_login(answers: bool, http: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Post, "do_POST", lambda post: post.send_error(503))
    port = http.server_address[1] if answers else free_port()
    with closing(requests.Session()) as session:
        url = f"http://anna:hunter2@127.0.0.1:{port}/api?key=hunter2"
        sender = EventSender(lambda _: session.post(url).raise_for_status())
        assert not sender.send("run", "one", 1, 20.0)
    assert sender.fault.startswith("HTTPError: it answered with 503" if answers else "ConnectionError: ")
    assert "hunter2" not in sender.fault and "anna" not in sender.fault


def test_login_in_the_text_of_an_error_is_left_out() -> None:
    def emit(_: Any) -> None:
        raise OSError("no route to https://anna:hunt@er2@lineage.acme.example/api?key=hunter2 (tried once)\nhunter2")

    sender = EventSender(emit)
    assert not sender.send("run", "one", 1, 20.0)
    assert sender.fault == "OSError: no route to https://***@lineage.acme.example/api?*** (tried once)"


def test_run_whose_events_cannot_be_built_does_not_hold_back_others(
    home: DagsterInstance, http: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lineage = Lineage(home)
    bad = lineage.run(orders, sales)
    lineage.run(orders)

    def build(found: AssetRun, names: LineageNames) -> Any:
        if found.run_id == bad:
            raise OverflowError("time out of range")
        return event_of(found, names)

    monkeypatch.setattr(lineage_sensor, "event_of", build)
    assert lineage.tick() == "2 events sent" and {name for name, _ in http.said()} == {"core/orders"}
    (named,) = [r.getMessage() for r in caplog.records if "is skipped" in r.getMessage()]
    assert named == (
        f"run {bad}: the lineage event `START of core/orders` is skipped: it cannot be built: "
        "OverflowError: time out of range"
    )


def test_run_whose_log_cannot_be_read_does_not_hold_back_others(
    home: DagsterInstance, http: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lineage = Lineage(home)
    bad = lineage.run(orders, sales)
    lineage.run(orders)
    fault: Exception = ConnectionError("the storage is away")

    def read(instance: DagsterInstance, record: dg.RunRecord, *more: Any) -> Iterator[AssetRun]:
        if record.dagster_run.run_id == bad:
            raise fault
        return begun(instance, record, *more)

    monkeypatch.setattr(lineage_sensor, "begun", read)
    with pytest.raises(ConnectionError, match="the storage is away"):
        lineage.tick()
    assert http.said() == [], "a fault of the storage is waited for"
    fault = KeyError("no such step")
    assert lineage.tick() == "2 events sent"
    (named,) = [r.getMessage() for r in caplog.records if "is skipped" in r.getMessage()]
    assert named.startswith(f"run {bad}: the lineage event `each other` is skipped: the run's log cannot be read: Key")
    assert lineage.tick() == "0 events sent"


def test_run_id_that_is_no_uuid_gets_one() -> None:
    found = AssetRun("by hand", "job", "core/orders", AssetRunState.START, 0.0, (), AssetVersion("core/orders"))
    facets: Any = event_of(found, LineageNames("shop", "lake")).run.facets
    assert str(uuid5(NAMESPACE_URL, "by hand")) == facets["parent"].run.runId


def test_a_long_history_is_reported_page_by_page(
    http: Receiver, home: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_tidemark.sensors.lineage_sensor._PAGE", 1)
    lineage = Lineage(home)
    for _ in range(3):
        lineage.run(orders)
    for _ in range(3):
        assert lineage.tick() == "2 events sent"
    assert lineage.tick() == "0 events sent" and len(http.events) == 6


def test_without_a_receiver_there_is_no_sensor_and_without_the_extra_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:  # the client adds some
        monkeypatch.delenv(name)
    assert not is_configured() and lineage_sensors(SETTINGS, [], set(), WHOLE_LOCATION) == []
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "console")
    assert is_configured()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not is_configured()
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(LineageMissing, match=r"pip install 'dagster-tidemark\[lineage\]'"):
        emit_with_client()
