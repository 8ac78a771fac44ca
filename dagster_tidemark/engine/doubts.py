"""Causes that make a contract's state unknown: a sensor or shift is silent, or a service that runs need is unreachable.

Each sensor records its completed checks of its sources. Belongs here: these records in the instance's storage, and the
doubts that follow from their age. Reading them does not need the code location, so `tidemark status` gives the same
answer while the code server is down. Does not belong here: the sensors (`sensors`), and the state of contracts as of a
recent check (`planner.contract_status`).

A fault is reported as one cause, however many sensors and assets it affects.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store, run_storage, sensor_states
from dagster_tidemark.engine import complete_listings
from dagster_tidemark.engine.complete_listings import FeedListing
from dagster_tidemark.engine.override_store import OverrideStore, pause_of_stream
from dagster_tidemark.event_log.beats import SILENT_SECONDS, Beat
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.decisions import RANGES, ContractStatus
from dagster_tidemark.planner.overrides import Override
from dagster_tidemark.planner.wording import moment, names
from dagster_tidemark.tags import LOOKED, PREFIX

LOOK_SECONDS = 25.0
"""Seconds after which a check is too old. Sensors tick at least every ten seconds, and `status` must report a fault
within 30 seconds."""
_HINDERED_SECONDS = 12.0  # for a shift that reports a fault; others may be writing a large batch
LANDING, CONTRACTS, STREAMS, ASSET_EVENTS = "landing", "contracts", "streams", "asset_events"
QUEUE = "run queue"
SENSORS = "sensors"
"""Identity of the fault that sensors do not tick. It does not depend on the number of sensors."""


@dataclass(frozen=True)
class Looked:
    """The last check of sources by a sensor, or the last probe of a service.

    Args:
        at: Time of its completion (Unix seconds); 0 if none was completed.
        hindrance: The fault that has prevented checks since then; empty if there is none.
        parts: Faults of single feeds or streams, by name.
        backlog: Why more messages waited than the last check read; empty if the check read all of them.
    """

    at: float = 0.0
    hindrance: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    backlog: str = ""


@dataclass(frozen=True)
class PostOf:
    """A stream, its table, and the keys of the reports of its shifts."""

    stream: str
    asset: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Watched:
    """Sources that the sensors and shifts of a code location watch.

    Args:
        location: The code location, as in the keys of its records.
        feeds: Source assets that the sensor `landing` watches, by feed.
        posts: Streams that shifts read.
        reported: External assets whose events the sensor `asset_events` receives.
        sensors: Optional sensors that the location declares: `lineage`, `maintenance`, `freshness_report`.
        home: Dagster's name of the location, from its workspace; empty if it is not known.
    """

    location: str = ""
    feeds: Mapping[str, str] = field(default_factory=dict)
    posts: tuple[PostOf, ...] = ()
    reported: tuple[str, ...] = ()
    sensors: tuple[str, ...] = ()
    home: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the members for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Watched:
        """Build it from the result of `as_dict`."""
        posts = tuple(PostOf(post["stream"], post["asset"], tuple(post["keys"])) for post in found["posts"])
        reported, sensors = tuple(found.get("reported", ())), tuple(found.get("sensors", ()))
        return cls(found["location"], found["feeds"], posts, reported, sensors, found.get("home", ""))


@dataclass(frozen=True)
class Cause:
    """A reason why states are unknown.

    Args:
        name: Short name, the only part that appears in the reasons of contracts.
        since: Start of the cause (Unix seconds).
        said: The cause in words.
        remedy: Next step for a person; empty if `said` includes it.
        fault: Identity of the fault if the name lists affected sensors, because that list may change.
        lasting: The cause in words without an age, if `said` has one, because an age differs at each look.
        is_pause: True if a person has paused the stream.
        until: End of the pause; None if it has none.
    """

    name: str
    since: float
    said: str
    remedy: str = ""
    fault: str = ""
    lasting: str = ""
    is_pause: bool = False
    until: float | None = None

    @property
    def identity(self) -> str:
        """Text that stays the same while the cause lasts."""
        return self.fault or self.name

    @property
    def without_age(self) -> str:
        """The cause in words that stay the same while it lasts."""
        return self.lasting or self.said


@dataclass(frozen=True)
class Doubts:
    """Causes at one time: for all assets, by sensor, by source and by asset."""

    general: tuple[Cause, ...] = ()
    sensors: Mapping[str, Cause] = field(default_factory=dict)
    sources: Mapping[str, Cause] = field(default_factory=dict)
    assets: Mapping[str, Cause] = field(default_factory=dict)

    def about(self, asset: str, sensor: str, sources: Collection[str]) -> tuple[Cause, ...]:
        """Return the causes that concern an asset, its sensor or its sources, each once."""
        found = [
            *self.general,
            *(self.sensors[name] for name in (sensor, RANGES) if name in self.sensors),
            *(self.sources[source] for source in sorted(sources) if source in self.sources),
            *([self.assets[asset]] if asset in self.assets else []),
        ]
        return tuple(dict.fromkeys(found))


def in_doubt(standing: ContractStatus, causes: Sequence[Cause]) -> ContractStatus:
    """Add causes to a contract's status. A met contract, or one at risk, becomes unknown; a breached one stays so."""
    if not causes or standing.verdict is FreshnessStatus.NOT_JUDGED:
        return standing
    said = names(dict.fromkeys(cause.said for cause in causes))
    if standing.verdict is FreshnessStatus.BREACHED:
        return replace(standing, reason=f"{standing.reason}; {said}")
    return replace(standing, verdict=FreshnessStatus.UNKNOWN, reason=f"unknown since {_since(causes)}: {said}")


def brief(state: str, reason: str, causes: Sequence[Cause]) -> tuple[str, str]:
    """Return a contract's state and reason with the causes added. The reason has only their short names."""
    said = names(dict.fromkeys(cause.name for cause in causes))
    if state in (FreshnessStatus.MET, FreshnessStatus.AT_RISK, FreshnessStatus.UNKNOWN):
        return str(FreshnessStatus.UNKNOWN), f"unknown since {_since(causes)}: {said}"
    return state, f"{reason}; in doubt since {_since(causes)}: {said}"


def _since(causes: Sequence[Cause]) -> str:
    return moment(min(cause.since for cause in causes))


def note_look(instance: DagsterInstance, location: str, looker: str, looked: Looked) -> None:
    """Record a check. The record keeps the time of the last completed check if this one was not completed.

    A check is not completed if a fault prevented it, or if it left messages unread.
    """
    key = _key(location, looker)
    if looked.hindrance or looked.backlog:
        looked = replace(looked, at=_read(instance_store.saved(instance, key)).at)
    # During a deploy, an earlier version also reads this record. It knows only the other members.
    members = {name: value for name, value in asdict(looked).items() if value or name != "backlog"}
    instance_store.save(instance, key, json.dumps(members))


def doubts(instance: DagsterInstance, watched: Watched, now: float) -> Doubts:
    """Return the causes at a time (Unix seconds)."""
    posts = [key for post in watched.posts for key in post.keys]
    keys = [_key(watched.location, looker) for looker in (LANDING, STREAMS, ASSET_EVENTS, _BUCKET, *_PROBED)]
    listed = [complete_listings.key_of(watched.location, feed) for feed in watched.feeds]
    saved = instance_store.saved_values(instance, [*posts, *keys, *listed]) if watched.location else {}
    general = [_of_service(name, _read(saved.get(_key(watched.location, name))), now) for name in _PROBED]
    bucket = _read(saved.get(_key(watched.location, _BUCKET))).hindrance
    sensors = _of_sensors(instance, watched.home or watched.location, now)
    landing = _read(saved.get(_key(watched.location, LANDING)))
    sources = _of_landing(watched, landing, bucket, sensors.get(LANDING), now)
    listings = complete_listings.listings_in(saved, watched.location, watched.feeds)
    sources = _of_first_listings(watched, listings) | _since_listings(sources, watched, landing, listings)
    received = _read(saved.get(_key(watched.location, ASSET_EVENTS)))
    sources |= _of_reported(watched.reported, received, sensors.get(ASSET_EVENTS), now)
    refused = _read(saved.get(_key(watched.location, STREAMS))).parts
    overrides = OverrideStore(instance).read() if watched.posts else ()
    for post in watched.posts:
        pause = pause_of_stream(overrides, watched.location, post.stream, now)
        if pause is not None:
            sources[post.asset] = _of_pause(post, pause)
        elif cause := _of_post(post, saved, refused.get(post.stream, ""), sensors.get(STREAMS), now):
            sources[post.asset] = cause
    return Doubts(
        tuple(cause for cause in general if cause is not None),
        sensors,
        sources,
        _of_queue(instance, now),
    )


def since_look(found: Doubts, looked_at: float, now: float) -> Doubts:
    """Add a cause that concerns all assets, if the sensor `contracts` has not completed a tick lately."""
    if now - looked_at <= LOOK_SECONDS:
        return found
    name = f"sensor {CONTRACTS}"
    lasting = f"{name} has not run since {moment(looked_at)}"
    late = Cause(name, looked_at, f"{name} last ran {span(now - looked_at)} ago", fault=SENSORS, lasting=lasting)
    return replace(found, general=(*found.general, found.sensors.get(CONTRACTS, late)))


_PROBED, _BUCKET = ("Spark", "catalog"), "S3"
"""Services that `sensors.contract_sensor` probes. An unreachable bucket concerns only the assets of feeds."""


_SERVICE = "check that {} runs, and that the settings have its address and credentials"
_START_SECONDS = 60.0
"""A sensor that was switched on ends its first tick within this time and its interval, in seconds."""
_TICKS = "check the sensor's ticks in the UI, under Automation"


def _of_service(name: str, looked: Looked, now: float) -> Cause | None:
    return (
        Cause(name, looked.at or now, f"{name}: {looked.hindrance}", _SERVICE.format(name))
        if looked.hindrance
        else None
    )


def _of_landing(watched: Watched, looked: Looked, bucket: str, sensor: Cause | None, now: float) -> dict[str, Cause]:
    """Return the causes that concern the sources of feeds.

    Args:
        sensor: The cause that concerns the landing sensor itself, if there is one.
    """
    if not watched.feeds:
        return {}
    name = f"sensor {LANDING}"
    if looked.hindrance:
        remedy = "check the bucket, its queue and the credentials"
        cause = Cause("landing bucket", looked.at or now, looked.hindrance, remedy)
    elif sensor is None and (waiting := _of_backlog("backlog of notifications", looked, now)):
        cause = waiting
    elif looked.at == 0.0:
        cause = Cause(name, now, f"{name} has not checked the bucket yet", _TICKS)
    elif sensor is not None and not bucket:
        cause = sensor  # it does not tick: it is off, or each tick fails
    elif sensor is not None or now - looked.at > LOOK_SECONDS:
        said = sensor.said if sensor else f"{name} last checked the bucket {span(now - looked.at)} ago"
        lasting = sensor.without_age if sensor else f"{name} has not checked the bucket since {moment(looked.at)}"
        cause = Cause(name, looked.at, said, _TICKS, lasting=lasting)
        if bucket:
            why = f"{_BUCKET}: {bucket}"
            cause = Cause(_BUCKET, looked.at, f"{said}: {why}", _SERVICE.format(_BUCKET), lasting=f"{lasting}: {why}")
    else:
        parts = {feed: why for feed, why in looked.parts.items() if feed in watched.feeds}
        remedy = "check the feed's prefix, its queue and the credentials"
        return {watched.feeds[feed]: Cause(f"feed {feed}", looked.at, why, remedy) for feed, why in parts.items()}
    return dict.fromkeys(watched.feeds.values(), cause)


def _since_listings(
    found: Mapping[str, Cause], watched: Watched, looked: Looked, listed: Mapping[str, FeedListing]
) -> dict[str, Cause]:
    """Return the causes that concern the sources of feeds, with each complete listing as a completed check.

    The fault of the sensor stays a cause: nobody checks the source after the listing.

    Args:
        listed: Records of complete listings, by feed.
    """
    sources = dict(found)
    for feed, source in watched.feeds.items():
        cause, at = found.get(source), listed[feed].at
        if cause is not None and at > looked.at:
            seen = f"; its feed was listed completely at {moment(at)}"
            sources[source] = replace(cause, since=at, said=cause.said + seen, lasting=cause.without_age + seen)
    return sources


def _of_first_listings(watched: Watched, listed: Mapping[str, FeedListing]) -> dict[str, Cause]:
    """Return the causes that files of a feed may lie in the bucket, and no listing has reported them yet.

    Args:
        listed: Records of complete listings, by feed.
    """
    found = {}
    for feed, source in watched.feeds.items():
        if (begun_at := listed[feed].begun_at) > 0.0:
            said = f"feed {feed} is listed completely for the first time"
            remedy = "wait: each tick of the sensor landing lists more files"
            name = f"first listing of {feed}"
            found[source] = Cause(name, begun_at, f"{said}: {listed[feed].progress}", remedy, lasting=said)
    return found


def _of_backlog(name: str, looked: Looked, now: float) -> Cause | None:
    """Return the cause that messages have waited for long, although each tick reads some; None if they have not."""
    if not looked.backlog or now - looked.at <= LOOK_SECONDS:
        return None
    since = f"since {moment(looked.at)}" if looked.at else "yet"
    said = f"{name}: {looked.backlog}, and the queue was not read to its end {since}"
    return Cause(name, looked.at or now, said, "wait: each tick reads more of it")


def _of_reported(assets: Collection[str], looked: Looked, sensor: Cause | None, now: float) -> dict[str, Cause]:
    """Return the causes that concern external assets whose events come from a queue.

    Args:
        sensor: The cause that concerns the sensor of the queue itself, if there is one.
    """
    name = f"sensor {ASSET_EVENTS}"
    if looked.hindrance:
        remedy = "check the queue and the credentials"
        cause = Cause("queue of asset events", looked.at or now, looked.hindrance, remedy)
    elif sensor is None and (waiting := _of_backlog("backlog of asset events", looked, now)):
        cause = waiting
    elif looked.at == 0.0:
        cause = Cause(name, now, f"{name} has not checked its queue yet", _TICKS)
    elif sensor is not None:
        cause = sensor
    elif now - looked.at > LOOK_SECONDS:
        cause = Cause(name, looked.at, f"{name} last checked its queue {span(now - looked.at)} ago", _TICKS)
    else:
        return {}
    return dict.fromkeys(assets, cause)


def _of_pause(post: PostOf, pause: Override) -> Cause:
    said, remedy = f"{post.stream} is paused {pause.told()}", f"end the pause: tidemark resume {pause.what}"
    return Cause(f"pause of {post.stream}", pause.at, said, remedy, is_pause=True, until=pause.until)


def _of_post(post: PostOf, saved: Mapping[str, str], refused: str, sensor: Cause | None, now: float) -> Cause | None:
    """Return a cause that concerns a stream's table if none of its shifts has taken messages lately, or None.

    Args:
        refused: The reason why the sensor starts no shift; empty if it does.
        sensor: The cause that concerns the sensor itself, if there is one. Then the sensor starts no shift either.
    """
    beats = [beat for key in post.keys if (beat := Beat.read(saved.get(key)))]
    latest = max(beats, key=lambda beat: beat.at, default=None)
    if sensor is not None and (latest is None or now - latest.at > SILENT_SECONDS):
        return sensor
    why = f": {refused}" if refused else ""
    shift, remedy = f"shift of {post.asset}", f"check the newest run of shift_{post.stream}"
    if latest is None:
        return Cause(shift, now, f"no {shift} has reported yet{why}", remedy)
    if now - latest.at > SILENT_SECONDS:
        said, lasting = f"has not reported for {span(now - latest.at)}", f"has not reported since {moment(latest.at)}"
        return Cause(shift, latest.at, f"the {shift} {said}{why}", remedy, lasting=f"the {shift} {lasting}{why}")
    looked = [float(beat.facts.get("looked_at", beat.at)) for beat in beats if now - beat.at <= SILENT_SECONDS]
    hindrances = [str(beat.facts["hindrance"]) for beat in beats if beat.facts.get("hindrance")]
    if now - max(looked) > (_HINDERED_SECONDS if hindrances else SILENT_SECONDS):
        said = f"the {shift} has not read all messages for {span(now - max(looked))}"
        lasting, why = f"the {shift} has not read all messages since {moment(max(looked))}", ""
        if hindrances:
            why = f": {hindrances[0]}"
        return Cause(shift, max(looked), said + why, remedy, lasting=lasting + why)
    return None


def _of_sensors(instance: DagsterInstance, location: str, now: float) -> dict[str, Cause]:
    """Return a cause for each sensor that does not tick. Sensors with the same fault have the same cause."""
    ticks = sensor_states.sensor_ticks(instance, location)
    quiet = [tick for tick in ticks if tick.is_off or now - tick.at > max(LOOK_SECONDS, 2 * tick.every)]
    no_code = any(tick.unreachable and not tick.is_off for tick in quiet)
    kinds: dict[tuple[bool, str, str], list[sensor_states.SensorTick]] = {}
    for tick in sorted(quiet, key=lambda tick: tick.sensor):
        # A tick that has not finished has no error yet. If the code server is unreachable, that is why.
        away = no_code and not tick.is_off and (tick.unreachable or not tick.error)
        alone = tick.is_off or (_is_starting(tick, now) and not away)
        kind = (away, tick.sensor if alone else "", "" if away or alone else tick.error)
        kinds.setdefault(kind, []).append(tick)
    causes = {kind: _of_ticks(ticks, kind[0], now) for kind, ticks in kinds.items()}
    return {tick.sensor.removeprefix(PREFIX): causes[kind] for kind, ticks in kinds.items() for tick in ticks}


def _is_starting(tick: sensor_states.SensorTick, now: float) -> bool:
    """Return True if a sensor that had ticked before was switched off and on, and its next tick may still come."""
    return not tick.is_off and 0.0 < tick.at < tick.started and now - tick.started <= _START_SECONDS + tick.every


def _of_ticks(ticks: Sequence[sensor_states.SensorTick], away: bool, now: float) -> Cause:
    """Return the cause of sensors with the same fault."""
    name = f"sensor{'s' if len(ticks) > 1 else ''} {names(tick.sensor for tick in ticks)}"
    since, last = min(tick.at for tick in ticks) or now, max(tick.at for tick in ticks)
    if away:
        said = next((tick.error for tick in ticks if tick.error), "") or "Dagster's daemon cannot reach it"
        return Cause("code server", since, f"code server: {said}", "check its log, fix the code, and start it again")
    if ticks[0].is_off:
        return Cause(name, since, f"{name} is switched off", f"switch it on: dagster sensor start {ticks[0].sensor}")
    if _is_starting(ticks[0], now):  # for an incident this is still the fault "switched off"
        return Cause(name, since, f"{name} was switched on, and has not ticked yet")
    have = "have" if len(ticks) > 1 else "has"
    said = lasting = f"{name} has not completed a tick yet"
    if last:
        # Ticks that fail move `last` on; the time of the first silent sensor stays.
        said, lasting = f"{name} last ticked {span(now - last)} ago", f"{name} {have} not ticked since {moment(since)}"
    if error := ticks[0].error:
        why = f" and {have} failed since: {error}"
        return Cause(name, since, said + why, _TICKS, SENSORS, lasting + why)
    return Cause(name, since, said, "check that Dagster's daemon and the code server run", SENSORS, lasting)


def _of_queue(instance: DagsterInstance, now: float) -> dict[str, Cause]:
    """Return the cause for each asset whose run waits in a full queue, if no run of the queue starts."""
    slots = run_storage.queue_limit(instance)
    queued = [run for run in run_storage.queued_runs(instance) if now - run.since > LOOK_SECONDS]
    if slots is None or not queued:
        return {}
    started = run_storage.starts_of_running(instance)
    if len(started) < slots or now - max(started, default=0.0) <= LOOK_SECONDS:
        return {}
    since, said = min(run.since for run in queued), f"run queue full: {len(started)} of {slots} slots"
    cause = Cause(QUEUE, since, said, "terminate hanging runs, or raise max_concurrent_runs")
    return {asset: cause for run in queued for asset in run.assets}


def _key(location: str, looker: str) -> str:
    return f"{LOOKED}{location}/{looker}"


def _read(text: str | None) -> Looked:
    said = instance_store.members_of(text)
    try:
        parts = {str(name): str(fault) for name, fault in said.get("parts", {}).items()}
        return Looked(float(said.get("at", 0.0)), str(said.get("hindrance", "")), parts, str(said.get("backlog", "")))
    except instance_store.UNREADABLE:  # another release wrote it
        return Looked()
