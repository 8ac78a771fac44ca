"""`tidemark incidents`, `acknowledge`, `mute` and the line of `status`, against a stored book."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from dagster_tidemark import Slack, build_definitions
from dagster_tidemark.cli.app import app
from dagster_tidemark.cli.status_view import dead_channels
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.incidents.channels.channel import FakeChannel
from dagster_tidemark.incidents.incident import (
    ArrivalRow,
    ArrivalState,
    CauseKind,
    Incident,
    LateAsset,
    RootCause,
    Trouble,
)
from dagster_tidemark.incidents.lifecycle import reviewed
from dagster_tidemark.incidents.sender import Sender, sent_by, uncovered
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.settings import load_settings
from tests.tidemark.toy_graph import HOURS, asset, lag, source

CHANNEL = FakeChannel()
TROUBLE = Trouble(
    RootCause(
        CauseKind.MISSING, "raw/tills", "no data: raw/tills never had data", 0.0, "raw/tills", "ask the supplier"
    ),
    (LateAsset("marts/sales", ("2026-10-05",), deadline=1_790_000_000.0, is_late=True, owners=("team:sales",)),),
)


@pytest.fixture
def store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IncidentStore]:
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path))
    with dg.DagsterInstance.get() as instance:
        store = IncidentStore(instance, load_settings().code_location)
        look(store, TROUBLE)
        yield store
        for _ in range(2):
            look(store)


def look(store: IncidentStore, *troubles: Trouble) -> Incident | None:
    at = event_time.now() if troubles else event_time.now() + 1e6
    found = store.change(lambda book: reviewed(book, troubles, [CHANNEL.route], at, location=store.location))
    if not troubles:
        store.change(lambda book: reviewed(book, (), [CHANNEL.route], at + 100, location=store.location))
        Sender.started(store, [CHANNEL], load_settings(), lambda: at + 200).send(seconds=10)
    return found.open[0] if found.open else None


def said(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.output


def test_incidents_command_lists_open_incidents_with_cause_and_next_step(store: IncidentStore) -> None:
    (incident,) = store.read().open
    listed = said("incidents")
    for part in (
        incident.id,
        "data of raw/tills is missing",
        "marts/sales",
        "to do: ask the supplier",
        "reported to: fake",
    ):
        assert part in listed
    (found,) = json.loads(said("incidents", "--json"))["incidents"]
    assert found["id"] == incident.id and found["cause"]["kind"] == "missing data"
    assert found["assets"][0]["partitions"] == ["2026-10-05"]
    one = said("incidents", incident.id)
    assert "timeline:" in one and "message opened: fake" in one and "(team:sales)" in one
    assert "no incident i-none" in said("incidents", "i-none", code=2)


def test_incidents_command_lists_a_closed_incident_in_the_history(store: IncidentStore) -> None:
    (incident,) = store.read().open
    look(store)
    assert said("incidents").startswith("no incident is open")
    assert f"{incident.id} closed" in said("incidents", "--history")


def test_acknowledge_command_requires_an_open_incident_a_reason_and_an_end(store: IncidentStore) -> None:
    (incident,) = store.read().open
    assert "no open incident" in said("acknowledge", "i-none", "--because", "x", "--for", "1h", code=2)
    assert "needs a reason" in said("acknowledge", incident.id, "--because", " ", "--for", "4h", code=2)
    assert "either --for" in said("acknowledge", incident.id, "--because", "x", code=2)
    assert "from 1 to" in said("acknowledge", incident.id, "--because", "x", "--for", "0m", code=2)
    assert "from 1 to" in said("acknowledge", incident.id, "--because", "x", "--for", "9999999999d", code=2)
    assert "expected a number" in said("acknowledge", incident.id, "--because", "x", "--for", "soon", code=2)
    assert "zone is missing" in said(
        "acknowledge", incident.id, "--because", "x", "--until", "2050-01-01T00:00", code=2
    )
    assert "has passed" in said("acknowledge", incident.id, "--because", "x", "--until", "2020-01-01T00:00Z", code=2)
    said("acknowledge", incident.id, "--because", "at work", "--for", "4h")
    assert "at work" in said("incidents")


def test_mute_is_listed_by_the_incidents_command_until_it_is_ended(store: IncidentStore) -> None:
    assert "needs a reason" in said("mute", "marts/*", "--for", "1h", code=2)
    said("mute", "marts/*", "--because", "migration", "--for", "2d")
    assert "marts/* (migration)" in said("incidents")
    said("mute", "marts/*", "--end")
    assert "migration" not in said("incidents")
    assert "is not muted" in said("mute", "marts/*", "--end", code=2)


def test_channel_without_its_environment_variable_is_dead_after_a_minute(
    store: IncidentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = Slack(token=dg.EnvVar("NO_SUCH_TOKEN"), channel="#data")
    now = event_time.now()
    Sender.started(store, [slack, CHANNEL], load_settings(), lambda: now - 61).send(seconds=10)
    assert dead_channels(load_settings()) == [
        "channel slack #data: NO_SUCH_TOKEN is not set; set it for the code server"
    ]
    assert "channel slack #data is dead" in said("incidents")
    monkeypatch.setenv("NO_SUCH_TOKEN", "xoxb")
    Sender.started(store, [slack, CHANNEL], load_settings(), lambda: now).send(seconds=10)
    assert dead_channels(load_settings()) == []


def test_code_location_with_channels_has_an_incident_sensor_and_delivery_check() -> None:
    assets = [source("orders", HOURS), asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5))]
    defs = build_definitions(load_settings(), assets, [], [], notify=[CHANNEL])
    names = {each.name for each in defs.sensors or ()}
    assert "incidents" in names
    graph = defs.resolve_asset_graph()
    assert dg.AssetCheckKey(dg.AssetKey(["ops", "incidents"]), "delivery") in graph.asset_check_keys


def test_code_location_without_channels_has_an_incident_sensor_and_asset_without_check() -> None:
    defs = build_definitions(load_settings(), [source("orders", HOURS)], [], [])
    assert "incidents" in {each.name for each in defs.sensors or ()}
    graph, key = defs.resolve_asset_graph(), dg.AssetKey(["ops", "incidents"])
    assert graph.has(key) and not graph.get(key).check_keys


def test_channel_test_message_is_sent_and_uncovered_contracts_are_listed() -> None:
    assets = [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), owners=["team:core"]),
        asset("marts/sales", "core/orders", by=HOURS, freshness_policy=lag(minutes=5)),
    ]
    graph = dg.Definitions(assets).resolve_asset_graph()
    channel = FakeChannel(owners=["team:core"])
    assert sent_by(channel, load_settings(), 1_790_000_000.0) == ""
    assert [each.message.kind for each in channel.sent] == ["opened", "closed"]
    assert channel.sent[0].report.title == "this is a test; nothing is late"
    assert uncovered(graph, [channel]) == ["marts/sales"]
    assert uncovered(graph, [channel, CHANNEL]) == []


def test_status_shows_the_expected_arrivals(store: IncidentStore) -> None:
    row = ArrivalRow("raw/a", ArrivalState.FEWER, ("2026-10-05",), 4, 1_790_000_000.0, None, "2 of 3 files")
    store.change(lambda book: replace(book, arrivals=(row,)))
    shown = CliRunner().invoke(app, ["status", "--arrivals"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "2026-10-05 and 3 more" in shown.output and "fewer than usual: 2 of 3 files" in shown.output
    (told,) = json.loads(CliRunner().invoke(app, ["status", "--arrivals", "--json"]).output)
    assert (told["source"], told["state"], told["count"]) == ("raw/a", "fewer than usual", 4)
    store.change(lambda book: replace(book, arrivals=()))
    assert "no expected arrivals" in CliRunner().invoke(app, ["status", "--arrivals"]).output
