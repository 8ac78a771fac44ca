"""The table `ops.incidents`, in a real catalog: each closed incident is one row, also after the catalog was away."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from dagster_tidemark.incidents import history_table
from dagster_tidemark.incidents.channels.channel import FakeChannel
from dagster_tidemark.incidents.history_table import INCIDENTS_TABLE, IncidentHistory
from dagster_tidemark.incidents.incident import CauseKind, LateAsset, RootCause, Trouble
from dagster_tidemark.incidents.lifecycle import reviewed
from dagster_tidemark.incidents.routing import Route
from dagster_tidemark.incidents.sender import Sender
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.sensors.incident_sensor import incident_sensor
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import Settings, load_settings
from tests.tidemark.incidents.test_sender import NOW

ROUTES = [FakeChannel().route]


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    (tmp_path / "warehouse").mkdir()
    changes = {"catalog_uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    return load_settings().model_copy(update=changes)


def passes(store: IncidentStore, subject: str, at: float = NOW, routes: Sequence[Route] = ROUTES) -> None:
    """Let an incident open and close; its messages wait to be sent."""
    assets = (
        LateAsset("core/a", deadline=NOW - 60, is_late=True, owners=("team:core",)),
        LateAsset("marts/b", deadline=NOW + 600, owners=("team:sales",)),
    )
    trouble = Trouble(RootCause(CauseKind.FAILING, subject, f"{subject} fails", at, subject), assets)
    for second, found in ((0, [trouble]), (100, []), (200, [])):
        store.change(lambda book, f=found, t=at + second: reviewed(book, f, routes, t, location="here"))  # type: ignore[misc]


def sent(store: IncidentStore) -> None:
    Sender.started(store, [FakeChannel()], load_settings(), lambda: NOW + 300).send(seconds=10)


def rows(settings: Settings) -> list[dict[str, object]]:
    found: list[dict[str, object]] = Appendable(open_lake(settings), INCIDENTS_TABLE).rows().to_pylist()
    return sorted(found, key=lambda row: str(row["cause_subject"]))


def test_closed_incident_is_one_row_with_its_cause_assets_and_messages(store: IncidentStore, lake: Settings) -> None:
    history = IncidentHistory(store, lake)
    passes(store, "core/a")
    assert history.record(is_new=False) == "" and not Path(lake.warehouse, "ops").exists(), "its messages still wait"
    sent(store)
    assert history.record(is_new=True) == history.record(is_new=True) == ""
    assert IncidentHistory(store, lake).record(is_new=False) == "", "another process finds the row"
    (row,) = rows(lake)
    (closed,) = store.closed()
    assert row == {
        "incident_id": closed.id,
        "code_location": store.location,
        "opened_at": datetime.fromtimestamp(NOW, UTC),
        "closed_at": datetime.fromtimestamp(NOW + 200, UTC),
        "cause_kind": "failing asset",
        "cause_subject": "core/a",
        "cause": "core/a fails",
        "was_late": True,
        "first_deadline_at": datetime.fromtimestamp(NOW - 60, UTC),
        "asset_count": 2,
        "assets": "core/a, marts/b",
        "owners": "team:core, team:sales",
        "acknowledged_because": None,
        "messages_sent": 2,
    }


def test_incidents_that_close_while_the_catalog_is_away_are_written_when_it_answers(
    store: IncidentStore, lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = IncidentHistory(store, lake)

    def _away(_: Settings) -> None:
        raise ConnectionError("the catalog is away")

    with monkeypatch.context() as patch:
        patch.setattr(history_table, "open_lake", _away)
        for subject in ("core/a", "core/b"):
            passes(store, subject)
            sent(store)
            assert "takes no closed incidents: ConnectionError: the catalog is away" in history.record(is_new=True)
    assert history.record(is_new=True), "it rests for a minute"
    history._again_at = 0.0  # the minute is over
    assert history.record(is_new=False) == ""
    assert [row["cause_subject"] for row in rows(lake)] == ["core/a", "core/b"]


def test_sensor_writes_an_incident_to_the_lake_after_its_last_message(
    store: IncidentStore, lake: Settings, instance: dg.DagsterInstance
) -> None:
    settings = lake.model_copy(update={"code_location": store.location})
    passes(store, "core/a")
    sensor = incident_sensor([FakeChannel()], settings, scope=LocationScope(settings=settings))
    sensor(dg.build_sensor_context(instance))
    assert [row["messages_sent"] for row in rows(lake)] == [2]


def test_location_without_channels_keeps_closed_incidents_in_the_lake_and_not_in_its_book(
    store: IncidentStore, lake: Settings, instance: dg.DagsterInstance
) -> None:
    settings = lake.model_copy(update={"code_location": store.location})
    passes(store, "core/a", routes=())
    result = incident_sensor([], settings, scope=LocationScope(settings=settings))(dg.build_sensor_context(instance))
    assert [(row["cause_subject"], row["messages_sent"]) for row in rows(lake)] == [("core/a", 0)]
    assert store.read().incidents == () and len(store.closed()) == 1
    assert isinstance(result, dg.SensorResult) and [type(each) for each in result.asset_events] == [dg.AssetObservation]


def test_idle_sensor_reads_the_book_once_in_each_tick(
    store: IncidentStore, lake: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = lake.model_copy(update={"code_location": store.location})
    sensor, reads = incident_sensor([FakeChannel()], settings, scope=LocationScope(settings=settings)), list[str]()
    sensor(dg.build_sensor_context(instance))
    read = IncidentStore._read
    monkeypatch.setattr(IncidentStore, "_read", lambda self: reads.append(self.location) or read(self))  # type: ignore[func-returns-value]
    sensor(dg.build_sensor_context(instance))
    assert reads == [store.location]
