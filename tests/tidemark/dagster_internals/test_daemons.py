"""Contract of the heartbeats of Dagster's daemon."""

import time

import dagster as dg
from dagster._daemon.controller import DEFAULT_HEARTBEAT_INTERVAL_SECONDS
from dagster._daemon.types import DaemonHeartbeat

from dagster_tidemark.dagster_internals import instance_store


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
