"""Reasons why a contract's state is unknown: no recent look, or a service that runs need cannot be reached.

Belongs here: the records of completed looks in the instance's storage, and the doubts that follow from their age. They
are read without the code location, so that `tidemark status` gets the same answer while the code server is down. Does
not belong here: the looks (`sensors`), and the state as of a recent look (`planner.contract_status`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.event_log import adapter
from dagster_tidemark.event_log.beats import SILENT_SECONDS, Beat
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.decisions import RANGES, Standing
from dagster_tidemark.planner.wording import moment, names
from dagster_tidemark.tags import LOOKED, PREFIX

LOOK_SECONDS = 25.0
"""Longest age of a look that counts (seconds): sensors tick at least every ten seconds, and `status` names a fault
within 30 seconds."""
_HINDERED_SECONDS = 12.0  # for a shift that reports a fault; without one it may be working on a large batch
LANDING, CONTRACTS, STREAMS = "landing", "contracts", "streams"


@dataclass(frozen=True)
class Looked:
    """The last look of one looker.

    Args:
        at: Time of its completion (Unix seconds); 0 if no look was completed.
        hindrance: The fault that has prevented looks since then; empty if there is none.
        parts: Faults of single parts, by part.
    """

    at: float = 0.0
    hindrance: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PostOf:
    """A stream's table, and the keys of its shifts' reports."""

    stream: str
    asset: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Watched:
    """Sources outside the event log.

    Args:
        location: The code location, in the keys of its records.
        feeds: The sources that the landing sensor looks at, by feed.
        posts: The streams with a shift.
    """

    location: str = ""
    feeds: Mapping[str, str] = field(default_factory=dict)
    posts: tuple[PostOf, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the members for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Watched:
        """Build it from the result of `as_dict`."""
        posts = tuple(PostOf(post["stream"], post["asset"], tuple(post["keys"])) for post in found["posts"])
        return cls(found["location"], found["feeds"], posts)


@dataclass(frozen=True)
class Doubt:
    """The reason why a state is unknown, and its start (Unix seconds)."""

    since: float
    reason: str


@dataclass(frozen=True)
class Doubts:
    """The doubts of a moment: about everything, by sensor, by source and by asset."""

    general: tuple[Doubt, ...] = ()
    sensors: Mapping[str, Doubt] = field(default_factory=dict)
    sources: Mapping[str, Doubt] = field(default_factory=dict)
    assets: Mapping[str, Doubt] = field(default_factory=dict)

    def about(self, asset: str, sensor: str, sources: Collection[str]) -> Doubt | None:
        """Return the combined doubt about an asset, its sensor and its sources, or None."""
        found = [
            *self.general,
            *(self.sensors[name] for name in (sensor, RANGES) if name in self.sensors),
            *(self.sources[source] for source in sorted(sources) if source in self.sources),
            *([self.assets[asset]] if asset in self.assets else []),
        ]
        if not found:
            return None
        return Doubt(min(doubt.since for doubt in found), names(dict.fromkeys(doubt.reason for doubt in found)))


def in_doubt(standing: Standing, doubt: Doubt | None) -> Standing:
    """Add a doubt to a standing. A met contract becomes unknown; a breached one stays breached and names the doubt."""
    if doubt is None or standing.verdict is FreshnessStatus.NOT_JUDGED:
        return standing
    if standing.verdict is FreshnessStatus.BREACHED:
        return replace(standing, reason=f"{standing.reason}; {doubt.reason}")
    return replace(standing, verdict=FreshnessStatus.UNKNOWN, reason=told(doubt))


def told(doubt: Doubt) -> str:
    """Return a doubt in words."""
    return f"unknown since {moment(doubt.since)}: {doubt.reason}"


def note_look(instance: DagsterInstance, location: str, looker: str, looked: Looked) -> None:
    """Record a look. A look with a hindrance keeps the time of the last complete one."""
    key = _key(location, looker)
    if looked.hindrance:
        looked = Looked(_read(adapter.saved(instance, key)).at, looked.hindrance, looked.parts)
    adapter.save(instance, key, json.dumps(asdict(looked)))


def doubts(instance: DagsterInstance, watched: Watched, now: float) -> Doubts:
    """Collect the doubts of a moment."""
    posts = [key for post in watched.posts for key in post.keys]
    keys = [_key(watched.location, looker) for looker in (LANDING, STREAMS, _BUCKET, *_PROBED)]
    saved = adapter.saved_values(instance, [*posts, *keys]) if watched.location else {}
    general = [_of_world(name, _read(saved.get(_key(watched.location, name))), now) for name in _PROBED]
    bucket = _read(saved.get(_key(watched.location, _BUCKET))).hindrance
    sensors = _of_sensors(instance, now)
    landing = _read(saved.get(_key(watched.location, LANDING)))
    sources = _of_landing(watched, landing, bucket, sensors.get(LANDING), now)
    refused = _read(saved.get(_key(watched.location, STREAMS))).parts
    off = sensors[STREAMS].reason if STREAMS in sensors else ""
    for post in watched.posts:
        if doubt := _of_post(post, saved, refused.get(post.stream, off), now):
            sources[post.asset] = doubt
    return Doubts(
        tuple(doubt for doubt in general if doubt is not None),
        sensors,
        sources,
        _of_queue(instance, now),
    )


_PROBED, _BUCKET = ("Spark", "catalog"), "S3"
"""Services that `sensors.contract_sensor` tries to reach, by record. A bucket that fails concerns assets of feeds."""


def _of_world(name: str, looked: Looked, now: float) -> Doubt | None:
    return Doubt(looked.at or now, f"{name}: {looked.hindrance}") if looked.hindrance else None


def _of_landing(watched: Watched, looked: Looked, bucket: str, sensor: Doubt | None, now: float) -> dict[str, Doubt]:
    """Return the doubts about the sources of feeds.

    Args:
        sensor: The doubt about the landing sensor itself, if there is one.
    """
    if not watched.feeds:
        return {}
    if looked.hindrance:
        return dict.fromkeys(watched.feeds.values(), Doubt(looked.at or now, looked.hindrance))
    if looked.at == 0.0:
        doubt = Doubt(now, f"sensor {LANDING} has not looked at the bucket yet")
        return dict.fromkeys(watched.feeds.values(), doubt)
    if sensor is not None or now - looked.at > LOOK_SECONDS:
        last = f"sensor {LANDING} last looked at the bucket {span(now - looked.at)} ago"
        said = sensor.reason if sensor else last  # the sensor does not tick: it is off, or each tick fails
        doubt = Doubt(looked.at, f"{said}: {_BUCKET}: {bucket}" if bucket else said)
        return dict.fromkeys(watched.feeds.values(), doubt)
    return {watched.feeds[feed]: Doubt(looked.at, why) for feed, why in looked.parts.items() if feed in watched.feeds}


def _of_post(post: PostOf, saved: Mapping[str, str], starts_none: str, now: float) -> Doubt | None:
    """Return a doubt about a stream's table if none of its shifts has taken messages lately, or None.

    Args:
        starts_none: The reason why the sensor starts no shift; empty if it does.
    """
    beats = [beat for key in post.keys if (beat := Beat.read(saved.get(key)))]
    latest = max(beats, key=lambda beat: beat.at, default=None)
    why = f": {starts_none}" if starts_none else ""
    if latest is None:
        return Doubt(now, f"no shift of {post.asset} has reported yet{why}")
    if now - latest.at > SILENT_SECONDS:
        return Doubt(latest.at, f"the shift of {post.asset} has not reported for {span(now - latest.at)}{why}")
    looked = [float(beat.facts.get("looked_at", beat.at)) for beat in beats if now - beat.at <= SILENT_SECONDS]
    hindrances = [str(beat.facts["hindrance"]) for beat in beats if beat.facts.get("hindrance")]
    if now - max(looked) > (_HINDERED_SECONDS if hindrances else SILENT_SECONDS):
        said = f"the shift of {post.asset} has not taken messages for {span(now - max(looked))}"
        return Doubt(max(looked), f"{said}: {hindrances[0]}" if hindrances else said)
    return None


def _of_sensors(instance: DagsterInstance, now: float) -> dict[str, Doubt]:
    silent = [tick for tick in adapter.sensor_ticks(instance) if tick.is_off or now - tick.at > LOOK_SECONDS]
    return {tick.sensor.removeprefix(PREFIX): Doubt(tick.at, _silent(tick, now)) for tick in silent}


def _silent(tick: adapter.SensorTick, now: float) -> str:
    if tick.is_off:
        return f"sensor {tick.sensor} is switched off"
    said = f"sensor {tick.sensor} last ticked {span(now - tick.at)} ago"
    return f"{said}, since then it fails: {tick.error}" if tick.error else said


def _of_queue(instance: DagsterInstance, now: float) -> dict[str, Doubt]:
    """Return doubts about assets whose run waits in a queue that is full and does not move."""
    slots = adapter.queue_limit(instance)
    queued = [run for run in adapter.queued_runs(instance) if now - run.since > LOOK_SECONDS]
    if slots is None or not queued:
        return {}
    started = adapter.starts_of_running(instance)
    if len(started) < slots or now - max(started, default=0.0) <= LOOK_SECONDS:
        return {}
    reason = f"queue of runs full: {len(started)} of {slots} slots"
    return {asset: Doubt(run.since, reason) for run in _oldest_first(queued) for asset in run.assets}


def _oldest_first(queued: Iterable[adapter.QueuedRun]) -> list[adapter.QueuedRun]:
    return sorted(queued, key=lambda run: -run.since)  # the oldest is written last, and stays


def _key(location: str, looker: str) -> str:
    return f"{LOOKED}{location}/{looker}"


def _read(text: str | None) -> Looked:
    try:
        return Looked(**json.loads(text or ""))
    except (TypeError, ValueError):
        return Looked()
