"""Contract of the instance's own storage, and of the heartbeats of Dagster's daemon."""

import json
import time

import dagster as dg
import pytest
from dagster._daemon.controller import DEFAULT_HEARTBEAT_INTERVAL_SECONDS
from dagster._daemon.types import DaemonHeartbeat

from dagster_tidemark.dagster_internals import instance_store


def test_dagster_instance_identity_is_stable_and_unique(instance: dg.DagsterInstance) -> None:
    assert instance_store.identity_of(instance) == instance_store.identity_of(instance)
    with dg.DagsterInstance.ephemeral() as other:
        assert instance_store.identity_of(other) != instance_store.identity_of(instance)


def test_saved_values_are_found_by_key_prefix(instance: dg.DagsterInstance) -> None:
    for key in ("tidemark/history/a_b", "tidemark/history/axb", "other/x"):
        instance_store.save(instance, key, f"text of {key}")
    assert set(instance_store.saved_under(instance, "tidemark/history/")) == {
        "tidemark/history/a_b",
        "tidemark/history/axb",
    }
    assert instance_store.saved_under(instance, "tidemark/history/a_") == {
        "tidemark/history/a_b": "text of tidemark/history/a_b"
    }


def test_saved_value_overwrites_the_previous_one(instance: dg.DagsterInstance) -> None:
    for text in ("first", "second"):
        instance_store.save(instance, "tidemark/a", text)
    assert instance_store.saved(instance, "tidemark/a") == "second"
    assert instance_store.saved(instance, "tidemark/b") is None
    assert instance_store.saved_values(instance, ["tidemark/a", "tidemark/b"]) == {"tidemark/a": "second"}


def test_saved_value_is_replaced_only_if_it_is_the_expected_one(instance: dg.DagsterInstance) -> None:
    assert instance_store.replace_saved(instance, "tidemark/a", None, "first")
    assert not instance_store.replace_saved(instance, "tidemark/a", None, "other")
    assert not instance_store.replace_saved(instance, "tidemark/a", "unknown", "other")
    assert instance_store.saved(instance, "tidemark/a") == "first"
    assert instance_store.replace_saved(instance, "tidemark/a", "first", "second")
    assert instance_store.saved(instance, "tidemark/a") == "second"


def test_heartbeats_are_those_of_the_needed_daemons_and_0_without_one() -> None:
    with dg.instance_for_test(overrides={"run_monitoring": {"enabled": True}}) as instance:
        assert set(instance_store.heartbeats(instance).values()) == {0.0}
        now = time.time()
        instance.add_daemon_heartbeat(DaemonHeartbeat(now, "SENSOR", "id", []))
        instance.add_daemon_heartbeat(DaemonHeartbeat(now, "NOT_NEEDED", "id", []))
        found = instance_store.heartbeats(instance)
        assert found["SENSOR"] == now and "NOT_NEEDED" not in found
        assert {"SCHEDULER", "QUEUED_RUN_COORDINATOR", "MONITORING"} <= found.keys()


def test_a_daemon_sends_a_heartbeat_every_half_minute() -> None:
    assert DEFAULT_HEARTBEAT_INTERVAL_SECONDS == 30


def test_the_sensor_daemon_is_known_by_the_id_of_its_last_heartbeat() -> None:
    with dg.instance_for_test() as instance:
        assert instance_store.sensor_daemon(instance) == ""
        for sender in ("one", "two"):
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), "SENSOR", sender, []))
            assert instance_store.sensor_daemon(instance) == sender


def test_members_of_a_saved_value_in_any_other_form_are_none() -> None:
    assert instance_store.members_of('{"a": 1}') == {"a": 1}
    for text in (None, "", "[1]", "7", "null", "{"):
        assert instance_store.members_of(text) == {}


@pytest.mark.parametrize("text", ["{}", "null", '{"at": null}', '{"at": {}}', '{"at": "soon"}', "7", "{"])
def test_errors_of_reading_another_form_are_those_of_an_unreadable_value(text: str) -> None:
    with pytest.raises(instance_store.UNREADABLE):
        float(json.loads(text)["at"])
