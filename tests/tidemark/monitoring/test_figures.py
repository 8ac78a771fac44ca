"""`tidemark metrics`: the figures are those of `status --json`, and /healthz is red for each fault, also when blind."""

import json
import re
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import dagster as dg
import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorStatus, InstigatorType, TickData, TickStatus
from dagster._daemon.types import DaemonHeartbeat
from dagster_postgres import utils as postgres_utils
from prometheus_client.parser import text_string_to_metric_families
from pyiceberg.exceptions import NoSuchTableError
from typer.testing import CliRunner

from dagster_tidemark.cli.app import app
from dagster_tidemark.cli.contract_rows import kept_rows
from dagster_tidemark.cli.monitoring import platform_state
from dagster_tidemark.cli.monitoring.cached_look import CachedLook, LookResult
from dagster_tidemark.cli.monitoring.health import HealthPart, PartState, is_healthy, parts
from dagster_tidemark.cli.monitoring.metric_families import METRICS, Picture
from dagster_tidemark.cli.monitoring.platform_state import PlatformState, share_within, state_of
from dagster_tidemark.cli.monitoring.server import MetricsServer, Monitor
from dagster_tidemark.cli.monitoring.table_figures import TableFigures, table_figures
from dagster_tidemark.cli.storage import StorageUnreachable
from dagster_tidemark.engine import saved_overview
from dagster_tidemark.engine.doubts import CONTRACTS, LANDING, QUEUE, Cause, Doubts, Looked, PostOf, Watched, note_look
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.engine.saved_overview import Kept, StandingRow
from dagster_tidemark.incidents.incident import Book, ChannelState
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.lakehouse.maintenance.due import Action, DueAction
from dagster_tidemark.lakehouse.stored_tables import CatalogUnreadable
from dagster_tidemark.maintenance.maintenance_overview import MaintenanceOverview, keep_overview
from dagster_tidemark.planner.overrides import Override, OverrideKind
from dagster_tidemark.settings import Settings
from tests.checkout import CHECKOUT
from tests.tidemark.checks import test_doubts
from tests.tidemark.checks.test_doubts import beat

LOCATION = "grocer"
NOW, DAY = 1_800_000_000.0, 86_400.0
SETTINGS = Settings(code_location=LOCATION)
WATCHED = Watched(LOCATION, {"orders": "raw/orders"}, (PostOf("readings", "raw/readings", ("post",)),))
SENSORS = ("automation", "catch_up", "dead_runs", "landing", "streams", CONTRACTS)
PAGE = CHECKOUT / "docs" / "monitoring.md"


def row(asset: str, state: str = "met", **more: Any) -> StandingRow:
    empty = StandingRow(
        asset, "within 5 min", state, None, 0, None, "", (), False, False, True, "automation", ("raw/orders",)
    )
    return replace(empty, **more)


def rows(now: float) -> tuple[StandingRow, ...]:
    return (
        row("core/orders", oldest=now - 90, pending=2, due=now + 30),
        row("marts/sales", "breached", oldest=now - 900, pending=1, due=now - 60),
        row("raw/readings", contract="", state="", sources=("raw/readings",)),
    )


@pytest.fixture(scope="module")
def home() -> Iterator[DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def instance(home: DagsterInstance) -> DagsterInstance:
    IncidentStore(home, LOCATION).change(lambda _: Book())
    healthy(home)
    return home


def ticked(
    instance: DagsterInstance,
    sensor: str,
    at: float,
    status: InstigatorStatus = InstigatorStatus.RUNNING,
    every: int = 1,
) -> None:
    """Record a complete tick of a sensor."""
    test_doubts.ticked(instance, sensor, at, status, every=every)
    origin = RemoteInstigatorOrigin(
        RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__"), sensor
    )
    tick = TickData(
        *(origin.get_id(), sensor, InstigatorType.SENSOR, TickStatus.SUCCESS, at - 0.5, [], []),
        end_timestamp=at,
        selector_id=origin.get_selector().get_id(),
    )
    instance.create_tick(tick)


def healthy(instance: DagsterInstance) -> None:
    """Give the instance what a running platform would have recorded a moment ago."""
    now = time.time()
    note_look(instance, LOCATION, LANDING, Looked(now))
    for name in ("Spark", "catalog"):
        note_look(instance, LOCATION, name, Looked(now))
    facts = {"looked_at": now, "began_at": now - 300, "committed_at": now - 4, "rows_per_second": 12.5, "refused": 3}
    beat(instance, now, backlog=7, oldest_at=now - 5, waiting_since=now - 5, lag_seconds=1.5, **facts)
    for sensor in SENSORS:
        ticked(instance, sensor, now)
    for kind in instance.get_required_daemon_types():
        instance.add_daemon_heartbeat(DaemonHeartbeat(now, kind, "id", []))
    saved_overview.keep(instance, LOCATION, Kept(now, "code", WATCHED, rows(now)))
    ages = {"arrived within a day": 3, "arrived within a week": 0, "arrived earlier": 2}
    rejected = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(["core", "orders"]),
        check_name="quarantine",
        passed=False,
        metadata={"files": ["a.csv"], "rows": 5, **ages},
    )
    instance.report_runless_asset_event(rejected)


def look(instance: DagsterInstance) -> LookResult[PlatformState]:
    began = time.time()
    return LookResult(state_of(instance, SETTINGS), began, 0.1, None, "")


TABLES = LookResult({"core/orders": TableFigures(12, 3, 4, 1, 2048, 100)}, time.time(), 0.1, None, "")


def red(found: list[HealthPart]) -> dict[str, str]:
    assert is_healthy(found) == all(part.state is PartState.OK for part in found)
    return {part.part: f"{part.state}: {part.said}" for part in found if part.state is not PartState.OK}


def health_of(instance: DagsterInstance) -> dict[str, str]:
    return red(parts(look(instance), TABLES, time.time()))


def test_a_healthy_deployment_has_each_part_ok(instance: DagsterInstance) -> None:
    found = parts(look(instance), TABLES, time.time())
    assert red(found) == {}
    assert [part.part for part in found] == [
        *("storage", "daemon", "sensor automation", "sensor contracts", "sensor catch_up", "sensor dead_runs"),
        *("sensor landing", "sensor streams", "Spark", "catalog", "landing", "stream readings", "run queue"),
        "table metadata",
    ]


def test_each_dead_or_hung_part_is_named_within_a_minute(instance: DagsterInstance) -> None:
    past = time.time() - 50  # the worst case: it died just after its last sign of life, and the answer is 5 s old
    instance.add_daemon_heartbeat(DaemonHeartbeat(past, "QUEUED_RUN_COORDINATOR", "id", []))
    assert health_of(instance) == {"daemon": "down: no heartbeat lately of: QUEUED_RUN_COORDINATOR"}
    healthy(instance)
    instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - 90, "SCHEDULER", "id", []))
    assert health_of(instance) == {}, "the scheduler sleeps for up to a minute"
    instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - 110, "SCHEDULER", "id", []))
    assert health_of(instance).keys() == {"daemon"}
    healthy(instance)
    for sensor in SENSORS:
        ticked(instance, sensor, past)
        assert f"sensor {sensor}" in health_of(instance)
        healthy(instance)
    ticked(instance, "landing", time.time(), InstigatorStatus.STOPPED)
    assert health_of(instance)["sensor landing"] == "down: sensor landing is switched off"
    healthy(instance)
    beat(instance, past)
    assert "the shift of raw/readings has not reported since" in health_of(instance)["stream readings"]
    healthy(instance)
    for service in ("Spark", "catalog"):
        note_look(instance, LOCATION, service, Looked(time.time(), "unreachable at spark:15002"))
        assert health_of(instance) == {service: f"down: {service}: unreachable at spark:15002"}
        healthy(instance)
    note_look(instance, LOCATION, LANDING, Looked(time.time(), "no such bucket"))
    assert health_of(instance) == {"landing": "down: no such bucket"}
    healthy(instance)
    assert health_of(instance) == {}


def test_a_deliberate_pause_of_a_stream_is_named_and_raises_no_alarm(instance: DagsterInstance) -> None:
    now = time.time()
    asleep = rows(now)[0], row("core/readings", sources=("raw/readings",)), rows(now)[2]
    saved_overview.keep(instance, LOCATION, Kept(now, "code", WATCHED, asleep))
    beat(instance, now - 90, backlog=7, committed_at=now - 90, began_at=now - 300)
    pause = Override("1", OverrideKind.PAUSE, "readings", (), "anna", "moves", now - 90, streams=("readings",))
    store = OverrideStore(instance)
    store.change(lambda _: [replace(pause, location=LOCATION)])
    try:
        found = parts(look(instance), TABLES, time.time())
        (paused,) = [part for part in found if part.part == "stream readings"]
        assert red(found) == {} and "readings is paused by anna" in paused.said and "tidemark resume" in paused.remedy
        with served(monitor_of(instance)) as url:
            figures = series(get(f"{url}/metrics")[1])
    finally:
        store.change(lambda _: [])
    assert of(figures, "tidemark_stream_behind", stream="readings") == 0
    assert of(figures, "tidemark_asset_contract_state", asset="core/readings", state="unknown") == 1
    assert of(figures, "tidemark_asset_paused", asset="core/readings") == 1
    assert of(figures, "tidemark_asset_paused", asset="core/orders") == 0


def test_optional_sensors_have_a_part_with_a_limit_of_two_intervals(instance: DagsterInstance) -> None:
    now = time.time()
    optional = {"lineage": 5, "maintenance": 60, "freshness_report": 60}
    saved_overview.keep(instance, LOCATION, Kept(now, "code", replace(WATCHED, sensors=tuple(optional)), rows(now)))
    missing = {f"sensor {name}": f"unknown: sensor {name} has not completed a tick yet" for name in optional}
    assert health_of(instance) == missing
    for name, every in optional.items():
        ticked(instance, name, now - 24 if name == "lineage" else now - 115, every=every)
    assert health_of(instance) == {}
    ticked(instance, "lineage", now - 26, every=5)
    assert list(health_of(instance)) == ["sensor lineage"]
    for name, every in optional.items():
        ticked(instance, name, now - 121, every=every)
    assert list(health_of(instance)) == [f"sensor {name}" for name in optional]
    for name, every in optional.items():
        ticked(instance, name, now + 3600, every=every)


def test_a_full_queue_in_which_no_run_ends_is_down(instance: DagsterInstance) -> None:
    found = look(instance)
    assert found.value is not None
    full = Cause(QUEUE, time.time() - 30, "run queue full: 2 of 2 slots", "terminate hanging runs")
    state = replace(found.value, doubts=Doubts(assets={"core/orders": full}))
    assert red(parts(replace(found, value=state), TABLES, time.time())) == {QUEUE: f"down: {full.said}"}


def test_a_dead_channel_is_down(instance: DagsterInstance) -> None:
    book = Book(channels={"slack": ChannelState(time.time() - 61, "refused: 404"), "log": ChannelState()})
    IncidentStore(instance, LOCATION).change(lambda _: book)
    ticked(instance, "incidents", time.time())
    assert health_of(instance) == {"channel slack": "down: refused: 404"}


def test_nothing_is_ok_while_the_storage_or_the_contracts_sensor_says_nothing(instance: DagsterInstance) -> None:
    now = time.time()
    for blind in (
        LookResult[PlatformState](None, None, None, None, ""),
        LookResult[PlatformState](None, None, None, now - 9, "no answer for 9 s"),
        replace(look(instance), at=now - 41),
        replace(look(instance), failing_since=now, said="gone"),
    ):
        found = parts(blind, TABLES, now)
        assert {part.state for part in found} == {PartState.DOWN, PartState.UNKNOWN} and len(found) > 5
    with dg.instance_for_test() as empty:
        found = parts(look(empty), TABLES, time.time())
        assert {part.part for part in found if part.state is PartState.OK} <= {"storage", "run queue", "table metadata"}
    old = time.time() - 50
    saved_overview.keep(instance, LOCATION, Kept(old, "code", WATCHED, rows(old)))
    assert {"sensor contracts", "Spark", "catalog"} <= health_of(instance).keys()


def test_unreadable_tables_are_named(instance: DagsterInstance) -> None:
    failing = LookResult[Any](None, None, None, 5.0, "the metadata of core.orders cannot be read (OSError)")
    assert list(red(parts(look(instance), failing, time.time()))) == ["table metadata"]


def test_one_unreadable_table_is_named_and_the_others_keep_their_figures(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = threading.Barrier(4)

    class Lake:
        def load_table(self, name: str) -> Any:
            at_once.wait(30)  # tables are read at the same time
            if name == "core.gone":
                raise NoSuchTableError
            if name == "core.bad":
                raise OSError("https://u:hunter2@store")
            return SimpleNamespace(current_snapshot=lambda: None, metadata=SimpleNamespace(snapshots=[1, 2]))

    monkeypatch.setattr("dagster_tidemark.lakehouse.stored_tables.opened_catalog", lambda _: Lake())
    found = table_figures(SETTINGS, ["core/orders", "core/bad", "core/gone", "core/sales", "flat"])
    empty = TableFigures(0, 2, 0, 0, 0, 0)
    assert found == {"core/orders": empty, "core/bad": "OSError", "core/sales": empty}
    tables = LookResult(found, time.time(), 0.1, None, "")
    said = "down: the metadata of core/bad cannot be read (OSError)"
    assert red(parts(look(instance), tables, time.time())) == {"table metadata": said}
    picture = Picture(time.time(), None, found, (), {})
    (spec,) = (spec for spec in METRICS if spec.name == "tidemark_table_snapshots")
    assert list(spec.read(picture)) == [(("core/orders",), 2.0), (("core/sales",), 2.0)]


def test_due_maintenance_of_each_table_is_a_figure(instance: DagsterInstance) -> None:
    (spec,) = (spec for spec in METRICS if spec.name == "tidemark_table_maintenance_due")

    def due() -> dict[tuple[str, ...], float]:
        return dict(spec.read(Picture(time.time(), look(instance).value, None, (), {})))

    assert due() == {}, "the sensor has not run"
    actions = [DueAction("core.orders", action, "why") for action in (Action.COMPACT, Action.EXPIRE)]
    old = DueAction("ops.quarantine", Action.EXPIRE, "why")
    found = MaintenanceOverview(time.time(), "", (*actions, old), {"raw.readings": "OSError"})
    keep_overview(instance, LOCATION, found)
    assert due() == {("core/orders",): 2.0, ("marts/sales",): 0.0, ("ops/quarantine",): 1.0}
    keep_overview(instance, LOCATION, replace(found, at=time.time() - 901))
    assert due() == {}


# Over HTTP.


@contextmanager
def served(monitor: Monitor) -> Iterator[str]:
    with MetricsServer(("127.0.0.1", 0), monitor) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_the_server_listens_on_an_address_of_ipv6() -> None:
    platform, tables = CachedLook[Any](dict, every=1.0, limit=0.2), CachedLook[Any](dict, every=1.0, limit=0.2)
    with (
        MetricsServer(("::1", 0), Monitor(platform, tables)) as server,
        socket.create_connection(server.server_address[:2], timeout=5) as connection,
    ):
        assert connection.family is socket.AF_INET6


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with closing(error):
            return error.code, error.read().decode()


def monitor_of(instance: DagsterInstance) -> Monitor:
    return Monitor(
        CachedLook(lambda: state_of(instance, SETTINGS), every=0.0, limit=10.0),
        CachedLook(lambda: dict[str, TableFigures | str](TABLES.value or {}), every=0.0, limit=10.0),
    )


def series(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Mapping[Any, float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def test_figures_equal_the_rows_of_status_and_vanish_with_their_asset(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(platform_state, "now", lambda: now)
    kept = saved_overview.kept(instance, LOCATION)
    assert kept is not None
    said = {each["asset"]: each for each in (row.as_dict() for row in kept_rows(instance, kept, None, now, {}))}
    with served(monitor_of(instance)) as url:
        status, text = get(f"{url}/metrics")
        assert status == 200
        found = series(text)
        for asset, each in said.items():
            assert of(found, "tidemark_asset_lag_seconds", asset=asset) == each["lag"]
            assert of(found, "tidemark_asset_pending_partitions", asset=asset) == each["pending"]
            due = of(found, "tidemark_asset_due_in_seconds", asset=asset)
            assert due == (None if each["due"] is None else each["due"] - now)
            states = {
                s
                for s in ("met", "breached", "unknown")
                if of(found, "tidemark_asset_contract_state", asset=asset, state=s)
            }
            assert states == ({each["state"]} if each["state"] else set())
        assert said["marts/sales"]["state"] == "breached" and said["core/orders"]["lag"] > 80
        stream = said["raw/readings"]["stream"]
        names = {"backlog": "backlog_messages", "oldest": "oldest_message_seconds", "lag": "lag_seconds"}
        names |= {"rate": "rows_per_second", "refused": "rejected_messages", "is_behind": "behind"}
        for member, name in names.items():
            assert of(found, f"tidemark_stream_{name}", stream="readings") == float(stream[member])
        assert of(found, "tidemark_table_commits_total", asset="core/orders") == 12
        assert of(found, "tidemark_quarantine_rows", asset="core/orders") == said["core/orders"]["rows_rejected"] == 5
        assert of(found, "tidemark_quarantine_entries", asset="core/orders", age="earlier") == 2
        assert of(found, "tidemark_look_ok", look="platform") == 1
        assert {key for key, value in found.items() if key[0] == "tidemark_part_ok" and not value} == set()
        saved_overview.keep(instance, LOCATION, Kept(now, "code", WATCHED, rows(now)[:1]))
        assert "marts/sales" not in get(f"{url}/metrics")[1]


def test_health_over_http_is_503_with_the_part_and_200_without_a_fault(instance: DagsterInstance) -> None:
    with served(monitor_of(instance)) as url:
        status, text = get(f"{url}/healthz")
        assert (status, json.loads(text)["healthy"]) == (200, True)
        ticked(instance, "automation", time.time() - 50)
        status, text = get(f"{url}/healthz")
        (fault,) = [part for part in json.loads(text)["parts"] if part["state"] != "ok"]
        assert status == 503 and fault["part"] == "sensor automation" and time.time() - fault["since"] > 49
        assert get(f"{url}/")[0] == 404


def test_a_hanging_storage_turns_health_red_and_a_scrape_answers_without_old_figures() -> None:
    held = threading.Event()

    def hang() -> PlatformState:
        held.wait(60)
        raise OSError

    monitor = Monitor(CachedLook(hang, every=1.0, limit=0.2), CachedLook(dict, every=1.0, limit=0.2))
    try:
        with served(monitor) as url:
            began = time.monotonic()
            status, text = get(f"{url}/healthz")
            scraped = get(f"{url}/metrics")
            assert status == 503 and scraped[0] == 200 and time.monotonic() - began < 5
            assert json.loads(text)["parts"][0]["part"] == "storage"
            found = series(scraped[1])
            assert of(found, "tidemark_look_ok", look="platform") == 0
            assert of(found, "tidemark_part_ok", part="storage") == 0
            assert not any(name.startswith(("tidemark_asset", "tidemark_stream")) for name, _ in found)
    finally:
        held.set()


def test_no_fault_holds_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    login = {"username": "a", "password": "hunter2", "hostname": "127.0.0.1", "db_name": "c", "port": 1}
    (tmp_path / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_db: {login}}}}}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    # Dagster tries five times, with pauses of 11 s in all. tests/tidemark/checks/test_doubts.py waits for them.
    monkeypatch.setattr(postgres_utils, "time", SimpleNamespace(sleep=lambda _: None))
    settings = Settings(catalog_uri="jdbc:postgresql://127.0.0.1:1/lake?user=u&password=hunter2", state_dir=tmp_path)
    with pytest.raises(StorageUnreachable) as storage:
        platform_state.platform_state(settings)
    with pytest.raises(CatalogUnreadable) as catalog:
        table_figures(settings, ["core/orders"])
    for error in (storage.value, catalog.value):
        assert "hunter2" not in str(error) and "127.0.0.1" in str(error)


# The list of metrics.


def test_the_page_lists_each_metric_with_its_labels_and_meaning() -> None:
    lines = re.findall(r"^\| `(tidemark_\w+)` \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.M)
    listed = [(name, labels, meaning) for name, labels, meaning in lines]
    assert listed == [
        (spec.name, ", ".join(f"`{label}`" for label in spec.labels) or "none", spec.meaning) for spec in METRICS
    ]


RULES_FILE = "prometheus-rules.yaml"
RULES = yaml.safe_load((CHECKOUT / "deploy" / RULES_FILE).read_text())["groups"][0]["rules"]
PANELS = json.loads((CHECKOUT / "deploy" / "grafana-dashboard.json").read_text())["panels"]
LABELS = {spec.name: set(spec.labels) for spec in METRICS}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        *((rule["expr"], rule["annotations"]["summary"]) for rule in RULES),
        *((target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]),
    ],
)
def test_a_query_names_metrics_and_labels_that_exist(query: str, text: str) -> None:
    used = set(re.findall(r"\btidemark_\w+", query))
    assert used and used <= LABELS.keys()
    named = set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text))
    named |= {label for part in re.findall(r"\btidemark_\w+\{(.*?)\}", query) for label in re.findall(r"(\w+)=", part)}
    assert named <= set().union(*(LABELS[name] for name in used))


@pytest.mark.parametrize(
    ("results", "share"),
    [
        ([], None),
        ([(NOW - 100, True)], 1.0),
        ([(NOW - 25, False), (NOW - 100, True)], 0.75),
        ([(NOW - 2 * DAY, False)], 0.0),
        ([(NOW - DAY / 2, True), (NOW - 2 * DAY, False)], 0.5),
    ],
)
def test_share_of_time_within_contract_is_computed_over_the_last_day(
    results: list[tuple[float, bool]], share: float | None
) -> None:
    assert share_within(results, NOW) == (None if share is None else pytest.approx(share))


def test_the_page_gives_prometheus_the_file_of_rules() -> None:
    assert f"rule_files: [{RULES_FILE}]" in PAGE.read_text()


def test_each_alarm_has_a_severity_and_each_panel_a_place() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    assert {rule["labels"]["severity"] for rule in RULES} == {"page", "ticket"}
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS}
    assert len(places) == len({panel["id"] for panel in PANELS}) == len(PANELS)
    shown = {name for panel in PANELS for t in panel["targets"] for name in re.findall(r"tidemark_\w+", t["expr"])}
    for subject in ("asset_lag", "asset_within", "asset_due_in", "run_queue_oldest", "sensor_tick", "table_commits"):
        assert any(subject in name for name in shown), subject


def test_metrics_command_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dagster_tidemark.cli.monitoring.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    done = CliRunner().invoke(app, ["metrics"])
    assert done.exit_code == 2 and done.stderr.endswith("pip install 'dagster-tidemark[metrics]'\n")
