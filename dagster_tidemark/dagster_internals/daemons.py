"""Heartbeats of Dagster's daemon."""

import dagster as dg


def heartbeats(instance: dg.DagsterInstance) -> dict[str, float]:
    """Return the time (Unix seconds) of the last heartbeat of each daemon that the instance needs.

    A daemon that has never sent one has the time 0. A healthy daemon sends one every 30 seconds.
    """
    found = instance.get_daemon_heartbeats()
    return {kind: found[kind].timestamp if kind in found else 0.0 for kind in instance.get_required_daemon_types()}


def sensor_daemon(instance: dg.DagsterInstance) -> str:
    """Return the id of the daemon that sent the last heartbeat of sensors; empty if none has. Each start has its id."""
    found = instance.get_daemon_heartbeats().get("SENSOR")
    return found.daemon_id or "" if found else ""
