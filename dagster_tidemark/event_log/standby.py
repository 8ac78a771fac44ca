"""The choice of the working code server of a location, if several tick: the one that began to tick last works.

During a deploy an old and a new code server may answer the daemon in turn, and so may two that run by mistake. Each
writes a heartbeat into a record of the instance's storage. A server that finds a living server after it in the record
requests no run. It works again when the heartbeat of the other has stopped. The order is that of first ticks, so the
clocks of hosts do not matter.

Dagster's default launcher may start a run with the old code during a deploy, even if the new code server requested it.
Such a run would build partitions back to old code, so a run compares its code with the record when it starts. Code that
no server has loaded, such as edited files on a laptop, is not replaced code.

Belongs here: the record, its order, and the sentences about servers and daemons that run by mistake. Does not belong
here: what a server on standby leaves undone (`sensors`), and shifts (`streams.shift_lease`).
"""

import json
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dagster import DagsterInstance, DagsterRun, SensorEvaluationContext

from dagster_tidemark.dagster_internals import instance_store, run_storage
from dagster_tidemark.errors import Transient
from dagster_tidemark.event_log.deployed import code_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import TICKING

SILENT_SECONDS = 30.0
"""A server whose heartbeat has not changed for this long has ended, hangs, or gets no ticks."""
SETTLE_SECONDS = 30.0
"""How long runs with the code of a replaced server may still appear after its last heartbeat."""
DEPLOY_SECONDS = 300.0
"""Two servers that tick for longer than this run by mistake."""
_LOOK_SECONDS = 2.0
_BEAT_SECONDS = 5.0
_PAUSED_SECONDS = 15.0  # after a pause without looks, the others seem silent although this server was absent
_TURNS_SECONDS = 120.0  # each daemon sends a heartbeat every half minute
_MISTAKE_SECONDS = 120.0
_MOST = 8
_TRIES = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TickingServer:
    """A code server in the record.

    Args:
        order: Place in the order of first ticks. The highest one works.
        beat: Number of heartbeats.
        host: Name of its host, for messages.
        pid: Its process id on that host.
    """

    order: int
    beat: int
    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.host} (pid {self.pid})"


@dataclass(frozen=True)
class Record:
    """The code servers of a location by id, and sentences about processes that run by mistake.

    Args:
        at: Time of the sentences (Unix seconds).
        code: Hash of the code of the server that works.
        replaced: Hashes of the code of servers that worked before, newest first.
    """

    servers: dict[str, TickingServer] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()
    at: float = 0.0
    code: str = ""
    replaced: tuple[str, ...] = ()

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str | None) -> "Record":
        """Read a record from the text that `str` returns. Text of other releases counts as empty."""
        try:
            found: dict[str, Any] = json.loads(text or "")
            servers = {name: TickingServer(**each) for name, each in found["servers"].items()}
            replaced = tuple(map(str, found.get("replaced", ())))
            return cls(servers, tuple(found["mistakes"]), float(found["at"]), str(found.get("code", "")), replaced)
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()

    def replaced_by(self, code: str) -> tuple[str, ...]:
        """Return the replaced code after a server with this code has begun to work."""
        before = (self.code, *self.replaced) if self.code != code else self.replaced
        return tuple(each for each in before if each not in ("", code))[:_MOST]


def mistakes(instance: DagsterInstance, now: float) -> list[str]:
    """Return a sentence for each group of code servers, daemons or code locations that runs by mistake."""
    homes: dict[str, list[str]] = {}
    lines = list[str]()
    for key, text in instance_store.saved_under(instance, TICKING).items():
        record = Record.read(text)
        if now - record.at <= _MISTAKE_SECONDS:
            lines += record.mistakes
            package, _, home = key.removeprefix(TICKING).partition("/")
            homes.setdefault(package, []).append(home)
    for package, found in homes.items():
        if len(found) > 1:
            named = ", ".join(sorted(found))
            lines.append(
                f"the code locations {named} load one package, {package}, and share its stored state; "
                "give each location its own package"
            )
    return list(dict.fromkeys(lines))


@dataclass
class _Watched:
    """Another server, as this one sees it: time of the first look, last heartbeat, and time of its last change."""

    order: int
    first: float
    beat: int
    changed: float

    @property
    def has_beaten(self) -> bool:
        return self.changed > self.first


@dataclass
class Standby:
    """Decides whether this code server works or stands by.

    Args:
        key: Key of the record in the instance's storage.
        clock: Returns monotonic seconds.
        code: Hash of this server's code.
    """

    key: str
    clock: Callable[[], float] = time.monotonic
    code: str = ""
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _others: dict[str, _Watched] = field(default_factory=dict)
    _place: int | None = None
    _looked: float = float("-inf")
    _beaten: float = float("-inf")
    _reason: str = ""
    _senders: list[tuple[str, float]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reason(self, instance: DagsterInstance) -> str:
        """Return why this server stands by; empty if it works. Each sensor may tick in its own thread."""
        with self._lock:
            return self._looked_reason(instance)

    def _looked_reason(self, instance: DagsterInstance) -> str:
        now = self.clock()
        if now - self._looked < _LOOK_SECONDS:
            return self._reason
        if (gap := now - self._looked) > _PAUSED_SECONDS:
            self._forgive(gap - _PAUSED_SECONDS)
        self._looked = now
        for _ in range(_TRIES):
            text = instance_store.saved(instance, self.key)
            record = Record.read(text)
            alive = self._alive(record, now)
            if self._id in record.servers and now - self._beaten < _BEAT_SECONDS:
                break
            if instance_store.replace_saved(instance, self.key, text, str(self._beat(instance, record, alive, now))):
                self._beaten, self._place = now, self._order(record)
                break
        else:  # others write at the same moments; the next look tries again
            return self._reason
        last = max(alive.values(), key=lambda each: each.order, default=None)
        works = last is None or last.order < self._order(record)
        self._reason = "" if works else f"stands by: the code server on {last} began to tick later"
        return self._reason

    def _forgive(self, seconds: float) -> None:
        """Subtract a time without looks from the silence of the other servers."""
        for each in self._others.values():
            each.first, each.changed = each.first + seconds, each.changed + seconds

    def is_settling(self) -> bool:
        """Return True if runs with the code of a replaced server may still appear.

        Dagster's default launcher starts a run on the host of any server of the address, even of one on standby.
        """
        with self._lock:
            now, place = self.clock(), self._place
            older = [each for each in self._others.values() if place is not None and each.order < place]
        return any(each.has_beaten and now - each.changed <= SETTLE_SECONDS for each in older)

    def _order(self, record: Record) -> int:
        """Return the place of this server. It keeps it, even if its entry is gone because it was frozen for long."""
        if self._place is not None:
            return self._place
        return max((each.order for each in record.servers.values()), default=0) + 1

    def _alive(self, record: Record, now: float) -> dict[str, TickingServer]:
        """Return the other servers whose heartbeat has changed lately, or that were not seen before."""
        others = {name: each for name, each in record.servers.items() if name != self._id}
        for name, each in others.items():
            watched = self._others.setdefault(name, _Watched(each.order, now, each.beat, now))
            if watched.beat != each.beat:
                watched.beat, watched.changed = each.beat, now
        return {name: each for name, each in others.items() if now - self._others[name].changed <= SILENT_SECONDS}

    def _beat(self, instance: DagsterInstance, record: Record, alive: dict[str, TickingServer], now: float) -> Record:
        """Return the record with the next heartbeat of this server."""
        before = record.servers.get(self._id)
        me = TickingServer(self._order(record), before.beat + 1 if before else 0, platform.node(), os.getpid())
        kept = sorted(record.servers, key=lambda name: (name in alive, record.servers[name].order))[-_MOST:]
        servers = {name: record.servers[name] for name in kept} | {self._id: me}
        if any(each.order > me.order for each in alive.values()):
            return replace(record, servers=servers)  # the server that works writes the rest
        found = (*self._servers_by_mistake(alive, me), *self._daemons_by_mistake(instance, now))
        for line in set(found) - set(record.mistakes):
            logger.warning("%s", line)
        return Record(servers, found, time.time(), self.code, record.replaced_by(self.code))

    def _servers_by_mistake(self, alive: dict[str, TickingServer], me: TickingServer) -> tuple[str, ...]:
        """Return a sentence if another server ticks for longer than a deploy takes."""
        lasting = {name for name, watched in self._others.items() if watched.changed - watched.first >= DEPLOY_SECONDS}
        others = sorted((each for name, each in alive.items() if name in lasting), key=lambda each: each.order)
        if not others:
            return ()
        named = ", ".join(map(str, others))
        return (f"{len(others) + 1} code servers tick for one location: {me} works, on standby: {named}; stop these",)

    def _daemons_by_mistake(self, instance: DagsterInstance, now: float) -> tuple[str, ...]:
        """Return a sentence if heartbeats of two daemons take turns. A restarted daemon has another id, but once."""
        sender = instance_store.sensor_daemon(instance)
        if sender and (not self._senders or self._senders[-1][0] != sender):
            self._senders = [*self._senders[-_MOST:], (sender, now)]
        recent = {name for name, at in self._senders[:-1] if now - at <= _TURNS_SECONDS}
        if not self._senders or self._senders[-1][0] not in recent:
            return ()
        return ("2 daemons run on this instance, because their heartbeats take turns; stop one",)


_standbys: dict[tuple[str, str], Standby] = {}


def standby_of(context: SensorEvaluationContext, settings: Settings | None) -> Standby | None:
    """Return this process's standby for a sensor's code location.

    Return None without settings or a stored instance, and for a preview of the sensor.
    """
    if settings is None or not context.instance.is_persistent or is_preview(context):
        return None
    key = key_of(settings, location_of(context))
    made = Standby(key, code=code_of(settings))
    return _standbys.setdefault((instance_store.identity_of(context.instance), key), made)


def location_of(context: SensorEvaluationContext) -> str:
    """Return the name of a sensor's code location; empty if it is unknown."""
    return context.code_location_origin.location_name if context.code_location_origin is not None else ""


def is_preview(context: SensorEvaluationContext) -> bool:
    """Return True if a person evaluates the sensor (`dagster sensor preview`, *Test sensor*), and no daemon.

    The process of a preview is not deployed: it ends after one tick.
    """
    return context.last_sensor_start_time is None


def key_of(settings: Settings, home: str) -> str:
    """Return the key of the record of a code location with this name.

    Two locations of a workspace that load one package are no doubles of each other.
    """
    return f"{TICKING}{settings.code_location}/{home}"


def reason_to_stand_by(context: SensorEvaluationContext, settings: Settings | None) -> str:
    """Return why this code server may request no runs at a sensor's tick; empty if it may."""
    found = standby_of(context, settings)
    return "" if found is None else found.reason(context.instance)


class ReplacedCode(Transient):
    """Error of a run that was started with the code of a replaced code server. A new run has the new code."""

    def __init__(self) -> None:
        super().__init__(
            "expected the deployed code, found the code of a code server that a newer one has replaced: this run "
            "builds nothing, and its work is requested again; end the old code server if it still runs, or reload the "
            "code location if its files have changed"
        )


def has_replaced_code(instance: DagsterInstance, run: DagsterRun, settings: Settings) -> bool:
    """Return True if this process, which executes a run, has replaced code."""
    record = Record.read(instance_store.saved(instance, key_of(settings, run_storage.location_of(run) or "")))
    return bool(record.replaced) and code_of(settings) in record.replaced  # the hash reads every file
