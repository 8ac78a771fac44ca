"""Cursors and tags that another release or a person wrote are ignored and logged, and the next tick works."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_events.declared import listener
from dagster_tidemark.asset_events.listen import ListenerPosition
from dagster_tidemark.event_log.observations import when_listed
from dagster_tidemark.incidents.channels.channel import FakeChannel
from dagster_tidemark.incidents.contents import _history
from dagster_tidemark.sensors.asset_event_sensors import listener_sensor
from dagster_tidemark.sensors.contract_sensor import contract_checks, contract_sensor
from dagster_tidemark.sensors.freshness_sensor import freshness_sensor
from dagster_tidemark.sensors.incident_sensor import incident_sensor
from dagster_tidemark.sensors.landing import loads_for_misplaced
from dagster_tidemark.sensors.lineage_sensor import LineagePosition, lineage_sensors
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import load_settings
from dagster_tidemark.tags import ARRIVED_AT, LISTED_AT
from tests.tidemark.event_log.test_state_of_other_releases import TEXTS
from tests.tidemark.toy_graph import small

SETTINGS = load_settings()
SCOPE = LocationScope(settings=SETTINGS)
DEFS = dg.Definitions([*small(), *contract_checks(small())])


class NoLedger:
    """No feed was ever observed."""


@dg.sensor(name="landing")
def landing(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    loads_for_misplaced(context, NoLedger(), [])  # type: ignore[arg-type]
    return dg.SkipReason("nothing is misplaced")


def listens() -> dg.SensorDefinition:
    return listener_sensor(listener(assets=["core/*"], name="crm")(lambda event: None), SETTINGS, scope=SCOPE)


SENSORS: dict[str, Callable[[], dg.SensorDefinition]] = {
    "contracts": contract_sensor,
    "freshness_report": lambda: freshness_sensor(SCOPE),
    "incidents": lambda: incident_sensor([FakeChannel()], SETTINGS, scope=SCOPE),
    "landing": lambda: landing,
    "lineage": lambda: lineage_sensors(SETTINGS, [], (), SCOPE)[0],
    "listener": listens,
}
FORMS_WITHOUT_FAULT = {
    ("contracts", "other members"),
    ("incidents", "another kind of JSON"),
    ("incidents", "other members"),
}
"""JSON that the sensor can compare with its present state, and finds to differ."""


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    with dg.instance_for_test() as made:
        yield made


def tick(sensor: dg.SensorDefinition, instance: dg.DagsterInstance, cursor: str | None) -> str | None:
    """Evaluate the sensor and return its next cursor."""
    with dg.build_sensor_context(instance, cursor, repository_def=DEFS.get_repository_def()) as context:
        return sensor.evaluate_tick(context).cursor


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("name", SENSORS)
def test_cursor_of_another_release_is_ignored_and_named(
    name: str, form: str, instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    sensor = SENSORS[name]()
    cursor = tick(sensor, instance, TEXTS[form])
    said = [line for line in capfd.readouterr().err.splitlines() if "cursor of this sensor is ignored" in line]
    assert len(said) == ((name, form) not in FORMS_WITHOUT_FAULT), said
    assert all(TEXTS[form][:20] in line for line in said)
    assert cursor != TEXTS[form], "it is replaced"
    tick(sensor, instance, cursor)
    assert "cursor of this sensor is ignored" not in capfd.readouterr().err


@pytest.mark.parametrize("told", ["", "yesterday", "nan", "inf", "1e30"])
def test_unreadable_time_in_the_tags_of_an_observation_counts_as_none(told: str) -> None:
    assert when_listed({LISTED_AT: told}) is None
    said = {"files": dg.MetadataValue.int(1), "bytes": dg.MetadataValue.int(2)}
    seen = dg.AssetObservation("raw/orders", metadata=said, tags={ARRIVED_AT: told})
    assert [version.arrived_at for version in _history([(7.0, seen)], [])] == [7.0]


POSITION = LineagePosition(1_790_000_000.0, ["run-1"], {"run-2": 1_790_000_001.0})


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        ({"at": 1_790_000_000.0, "begun": ["run-1"], "ended": {"run-2": 1_790_000_001.0}}, POSITION),
        ({"at": 1_790_000_000.0, "begun": ["run-1"], "ended": {"run-2": 1_790_000_001.0}, "new": 7}, POSITION),
        ({"at": 1_790_000_000.0}, LineagePosition(1_790_000_000.0)),
    ],
)
def test_position_of_lineage_with_more_or_fewer_members_is_kept(cursor: dict[str, Any], expected: object) -> None:
    assert LineagePosition.of(cursor) == expected


@pytest.mark.parametrize("at", [None, "now", float("inf"), float("nan"), 1e30])
def test_position_of_lineage_without_a_time_is_refused(at: object) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        LineagePosition.of({"at": at, "begun": [], "ended": {}})


def test_position_of_a_listener_with_more_members_is_kept() -> None:
    failed = {"asset": "core/a", "since": 1.0, "next_at": 2.0, "tries": 3, "why": "OSError"}
    said = {"after": 5, "done": {"7": 1.0}, "failed": {"6": failed}, "assets": ["core/a"]}
    more = {**said, "failed": {"6": {**failed, "new": 7}}, "new": 7}
    assert ListenerPosition.of(more) == ListenerPosition.of(said)
    assert json.loads(ListenerPosition.of(more).text()) == said
