"""Health of a deployment's parts, for `/healthz`: storage, daemon, sensors, shifts, queue, services, channels.

Belongs here: the verdict on each part, from the state that `tidemark status` reads. Does not belong here: reading it
(`platform_state`). A part whose state is not known is never `ok`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dagster_tidemark.cli.monitoring.cached_look import LookResult
from dagster_tidemark.cli.monitoring.platform_state import PlatformState
from dagster_tidemark.engine.doubts import CONTRACTS, LANDING, LOOK_SECONDS, QUEUE, Cause
from dagster_tidemark.incidents.sender import dead
from dagster_tidemark.planner.wording import names

BEAT_SECONDS = 45.0
"""A daemon without a heartbeat for this many seconds is dead or hangs. A healthy one sends one every 30 seconds."""
_SLOW_BEATS = {"SCHEDULER": 100.0}  # it sleeps until the next minute begins
STALE_SECONDS = 40.0
"""A look that began longer ago says nothing about the present. In a large deployment a look takes some seconds."""
STORAGE, DAEMON, TABLES = "storage", "daemon", "table metadata"
_SERVICES = ("Spark", "catalog")
_NO_LOOK = "not known, because Dagster's storage cannot be read"


class PartState(StrEnum):
    """State of a part."""

    OK = "ok"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class HealthPart:
    """A part of the deployment.

    Args:
        since: Time since which the part is not ok, or is paused (Unix seconds); None otherwise, or if it is not known.
        said: The fault, or the pause by a person, in words.
        remedy: The next step for a person.
    """

    part: str
    state: PartState
    since: float | None = None
    said: str = ""
    remedy: str = ""


def parts(look: LookResult[PlatformState], tables: LookResult[Any], now: float) -> list[HealthPart]:
    """Return the state of each part at a time.

    Args:
        look: The last look at Dagster's storage.
        tables: The last look at the metadata of the tables.
    """
    state = look.fresh(now, STALE_SECONDS)
    if state is None or look.failing_since is not None:
        said = look.said or "no look at Dagster's storage has been completed"
        remedy = "check the database of DAGSTER_HOME/dagster.yaml; restart this process if it stays"
        storage = HealthPart(STORAGE, PartState.DOWN, look.failing_since or look.at, said, remedy)
        blind = [DAEMON, f"sensor {CONTRACTS}", QUEUE, *_SERVICES]
        return [storage, *(HealthPart(name, PartState.UNKNOWN, storage.since, _NO_LOOK) for name in blind)]
    return [
        HealthPart(STORAGE, PartState.OK),
        _daemon(state),
        *_sensors(state),
        *_services(state),
        *_sources(state),
        _of_cause(QUEUE, next(iter(state.doubts.assets.values()), None)),
        *_channels(state),
        _tables(tables),
    ]


def is_healthy(found: Sequence[HealthPart]) -> bool:
    """Return True if each part is ok."""
    return all(part.state is PartState.OK for part in found)


def _daemon(state: PlatformState) -> HealthPart:
    silent = {kind: at for kind, at in state.beats.items() if state.at - at > _SLOW_BEATS.get(kind, BEAT_SECONDS)}
    if state.beats and not silent:
        return HealthPart(DAEMON, PartState.OK)
    since = min((at for at in silent.values() if at), default=None)
    said = f"no heartbeat lately of: {names(sorted(silent)) or 'any daemon'}"
    return HealthPart(DAEMON, PartState.DOWN, since, said, "start dagster-daemon, or end the hanging process")


def _sensors(state: PlatformState) -> list[HealthPart]:
    found = []
    for sensor in state.expected_sensors:
        part, cause = f"sensor {sensor}", state.doubts.sensors.get(sensor)
        if sensor == CONTRACTS and cause is None:
            found.append(_contracts(state, part))
        elif cause is None and sensor not in state.ticks:
            found.append(HealthPart(part, PartState.UNKNOWN, None, f"{part} has not completed a tick yet"))
        else:
            found.append(_of_cause(part, cause))
    return found


def _contracts(state: PlatformState, part: str) -> HealthPart:
    remedy = "check the sensor's ticks in the UI, under Automation"
    if state.evaluated_at is None:
        return HealthPart(part, PartState.UNKNOWN, None, f"{part} has not run yet", remedy)
    if state.at - state.evaluated_at > LOOK_SECONDS:
        return HealthPart(part, PartState.DOWN, state.evaluated_at, f"{part} has not run since then", remedy)
    return HealthPart(part, PartState.OK)


def _services(state: PlatformState) -> list[HealthPart]:
    """Return the services that the sensor `contracts` probes. Without this sensor their state is unknown."""
    by_name = {cause.name: cause for cause in state.doubts.general}
    is_probed = state.evaluated_at is not None and state.at - state.evaluated_at <= LOOK_SECONDS
    said = f"not known, because the sensor {CONTRACTS} does not run"
    return [
        _of_cause(name, by_name.get(name))
        if name in by_name or is_probed
        else HealthPart(name, PartState.UNKNOWN, state.evaluated_at, said)
        for name in _SERVICES
    ]


def _sources(state: PlatformState) -> list[HealthPart]:
    """Return the landing bucket, and the shifts of each stream."""
    of_feeds = next((cause for feed in state.feeds if (cause := state.doubts.sources.get(feed))), None)
    streams = [
        _of_cause(f"stream {stream}", state.doubts.sources.get(asset))
        for asset, stream in sorted(state.streams.items(), key=lambda each: each[1])
    ]
    return [*([_of_cause(LANDING, of_feeds)] if state.feeds else []), *streams]


def _channels(state: PlatformState) -> list[HealthPart]:
    silent = dead(state.book, state.at)
    return [
        HealthPart(f"channel {name}", PartState.DOWN, each.failing_since, each.error, "tidemark alert test")
        if name in silent
        else HealthPart(f"channel {name}", PartState.OK)
        for name, each in sorted(state.book.channels.items())
    ]


def _tables(look: LookResult[Any]) -> HealthPart:
    remedy = "check the catalog and the warehouse from this host"
    if look.failing_since is None:
        faults = {asset: each for asset, each in (look.value or {}).items() if isinstance(each, str)}
        if faults:
            said = f"the metadata of {names(sorted(faults))} cannot be read ({names(sorted(set(faults.values())))})"
            return HealthPart(TABLES, PartState.DOWN, look.at, said, remedy)
        return HealthPart(TABLES, PartState.OK if look.at is not None else PartState.UNKNOWN)
    return HealthPart(TABLES, PartState.DOWN, look.failing_since, look.said, remedy)


def _of_cause(part: str, cause: Cause | None) -> HealthPart:
    if cause is None:
        return HealthPart(part, PartState.OK)
    state = PartState.OK if cause.is_pause else PartState.DOWN
    return HealthPart(part, state, cause.since, cause.without_age, cause.remedy)
