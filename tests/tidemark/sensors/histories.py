"""Histories of a landing zone on the shipped fakes, and whether tables end as a fresh full load would leave them.

The way from message to decision is the project's own: hints, consumer, observing, the removal rule, the plan of a
load. What the fakes stand in for is shown on the real thing elsewhere: the queue and the bucket (`sources`), the event
log (`automation`), the table (`lakehouse`, and `kill` for dying in between).
"""

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from dagster_tidemark.event_log.observations import Tags
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, LoadStep, Where, held_keys, steps
from dagster_tidemark.lakehouse.loading.load_state import LoadState
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sensors import change_detection, landing
from dagster_tidemark.settings import Boundary
from dagster_tidemark.sources import removals
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import BucketUnavailable, FakeBucket, Listing, ObjectUnavailable
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.sources.notification_queue import FakeMessageSource, Message, holding
from dagster_tidemark.sources.partition_listing import Walk, look
from dagster_tidemark.sources.s3_events import LandingZone
from dagster_tidemark.tags import OUTCOME
from tests.toys.feeds import ORDERS

HOURS = ("2026-10-01-07:00", "2026-10-01-08:00", "2026-10-02-07:00")
NAMES = ("a.csv", "b ü+.csv", "c.csv")
_BAD = "bad"
_CODE = "1"


class Crash(BaseException):
    """The process died. A BaseException: whatever the code catches, it does not survive this."""


class FakeLedger:
    """An event log in memory."""

    start = date.min

    def __init__(self) -> None:
        self.tags: dict[Partition, Tags] = {}

    def latest(self, feed: Feed, partitions: Collection[Partition] | None = None) -> Mapping[Partition, Tags]:
        return {p: tags for p, tags in self.tags.items() if partitions is None or p in partitions}

    def report(self, observations: Sequence[dg.AssetObservation]) -> None:
        for observation in observations:
            self.tags[observation.partition] = observation.tags
            landing.reached("after_observation")

    def tell(self, feed: Feed, alarm: str | None) -> None:
        """Nobody reads checks here."""

    def misplaced(self, feed: Feed) -> Mapping[str, Misplaced] | None:
        return None

    def tell_misplaced(self, feed: Feed, folders: Mapping[str, Misplaced]) -> None:
        """Nobody reads checks here."""


@dataclass
class FaultyBucket(FakeBucket):
    """A bucket that may be away, and has objects that are not given.

    Args:
        away: So many lists fail.
        archived: Keys of objects that are there and are not given.
    """

    away: int = 0
    archived: set[str] = field(default_factory=set)

    def list(self, prefix: str) -> Listing:
        if self.away:
            self.away -= 1
            raise BucketUnavailable("a fault of the history")
        return super().list(prefix)


@dataclass(frozen=True)
class Row:
    """A row of the table: what it says and where it is from."""

    value: str
    arrived_at: datetime
    key: str
    version: str

    def beats(self, other: "Row") -> bool:
        return (self.arrived_at, self.key) > (other.arrived_at, other.key)


@dataclass(frozen=True)
class Entry:
    """What the quarantine holds of a file: its bad rows, or nothing but that it left no row."""

    version: str
    bad: tuple[str, ...]
    whole: bool


@dataclass
class Table:
    """A core table and its quarantine, by partition."""

    rows: dict[Partition, dict[str, Row]] = field(default_factory=dict)
    entries: dict[Partition, dict[str, Entry]] = field(default_factory=dict)

    def known(self, partition: Partition) -> list[KnownFile]:
        rows = {(row.key, row.version) for row in self.rows.get(partition, {}).values()}
        entries = self.entries.get(partition, {}).items()
        return [
            *(KnownFile(key, version, _CODE, Where.TABLE) for key, version in sorted(rows)),
            *(
                KnownFile(key, entry.version, _CODE, Where.WHOLE_FILE if entry.whole else Where.REJECTED_ROWS)
                for key, entry in entries
            ),
        ]

    def said(self) -> dict[Partition, tuple[dict[str, str], dict[str, tuple[str, ...]]]]:
        """What it tells a reader: rows, and rejected rows by file."""
        found = {}
        for partition in sorted({*self.rows, *self.entries}, key=str):
            rows = {key: f"{row.value} of {row.key}" for key, row in self.rows.get(partition, {}).items()}
            bad = {key: entry.bad for key, entry in self.entries.get(partition, {}).items() if entry.bad}
            if rows or bad:
                found[partition] = (rows, bad)
        return found


class World:
    """A bucket, its notifications, who reads them, and the table."""

    def __init__(self) -> None:
        self.bucket = FaultyBucket(now=datetime(2026, 10, 3, tzinfo=UTC))
        self.bodies: dict[str, dict[str, str]] = {}
        self.queue = FakeMessageSource(max_receives=1000)
        self.ledger = FakeLedger()
        self.table = Table()
        self.taken: dict[Partition, str] = {}  # the data version a partition's last recorded run was created upon
        self.alarmed = False
        self.lost = False  # whether a notification was
        self.crash_at: Boundary | None = None
        self._random = random.Random(0)

    # what senders do
    def put(self, hour: str, name: str, body: Mapping[str, str], told: int) -> None:
        key, text = ORDERS.prefix_of(hour) + name, json.dumps(dict(body), sort_keys=True)
        self.bucket.put(key, text.encode())
        self.bodies[self.bucket.objects[key].etag] = dict(body)
        self._tell(key, told)

    def delete(self, hour: str, name: str, told: int) -> None:
        key = ORDERS.prefix_of(hour) + name
        if key in self.bucket.objects:
            self.bucket.delete(key)
            self._tell(key, told)

    def rename(self, hour: str, name: str, told: int) -> None:
        """To an ending that is none of data, or back."""
        key = ORDERS.prefix_of(hour) + name
        other = f"{key}.zst"
        if other in self.bucket.objects:
            key, other = other, key
        if key in self.bucket.objects:
            body = json.dumps(self.bodies[self.bucket.objects[key].etag], sort_keys=True)
            self.bucket.put(other, body.encode())
            self.bucket.delete(key)
            self._tell(other, told)
            self._tell(key, told)

    def archive(self, hour: str, name: str) -> None:
        """An object is there and not given until the end of the history."""
        self.bucket.archived.add(ORDERS.prefix_of(hour) + name)

    def outage(self, lists: int) -> None:
        """So many of the next lists fail."""
        self.bucket.away = lists

    def _tell(self, key: str, times: int) -> None:
        s3 = {"bucket": {"name": "landing"}, "object": {"key": key.replace("+", "%2B").replace(" ", "+")}}
        self.lost |= not times
        for _ in range(times):
            self.queue.send(json.dumps({"Records": [{"eventTime": self.bucket.now.isoformat(), "s3": s3}]}))

    def shuffle(self) -> None:
        self._random.shuffle(self.queue.waiting)

    def wait(self, seconds: float) -> None:
        self.bucket.now += timedelta(seconds=seconds)
        self.queue.redeliver()

    # what the platform does
    def reached(self, boundary: Boundary) -> None:
        if self.crash_at == boundary:
            raise Crash(boundary)

    def tick(self) -> None:
        zone = LandingZone("landing", [ORDERS])
        with holding(self.queue) as hold:
            done = landing.take(hold, zone, self.bucket, self.ledger)
        assert done.received.refused == []
        self.alarmed |= bool(done.found.alarms)

    def reconcile(self, *, accept: bool = False) -> None:
        found = change_detection.look_at_feed(self.ledger, self.bucket, ORDERS, accept_removals=accept)
        self.alarmed |= bool(found.alarms)

    def pending(self) -> list[Partition]:
        return [p for p, tags in self.ledger.tags.items() if self.taken.get(p) != tags["dagster/data_version"]]

    def run(self) -> None:
        for partition in self.pending():
            created_upon = self.ledger.tags[partition]["dagster/data_version"]
            self._load(partition)
            self.reached("before_recorded")
            self.taken[partition] = created_upon

    def _load(self, partition: Partition) -> None:
        listing = look(self.bucket, ORDERS, partition)
        listed = [SourceFile(o.key, o.source_version, o.last_modified, partition, o.size) for o in listing.objects]
        known = {partition: self.table.known(partition)}
        archived = {file: "archived" for file in listed if file.key in self.bucket.archived}
        alarm, accepted = None, [p for p, t in self.ledger.tags.items() if t.get(OUTCOME) == removals.ACCEPTED]
        if known[partition] and not listed:
            alarm = self._alarm(partition, accepted)
            self.alarmed |= alarm is not None
        fates = removals.decide(
            ORDERS,
            held_keys(ORDERS, known),
            {partition: [f.key for f in listed]},
            now=listing.listed_at,
            alarmed=alarm,
            accepted=accepted,
        )
        to_do = steps({partition: listed}, known, fates, _CODE)
        found = LoadState(None, {partition: listed}, None, known, {}, (), fates, alarm, to_do)
        wanted = {file for step in to_do.values() for file in step.read}
        if not_given := {file: reason for file, reason in archived.items() if file in wanted}:
            found = found.without(not_given, _CODE)
        if (step := found.steps.get(partition)) is not None:
            self._do(self.table, partition, step, found.listed[partition])
        if any(not found.is_held(file) for file in not_given):
            raise ObjectUnavailable(min(file.key for file in not_given), "archived")

    def _alarm(self, partition: Partition, accepted: Collection[Partition]) -> str | None:
        walk = Walk(self.bucket, ORDERS)
        holding = {partition for partition, listing in walk if listing.objects}
        rows = {p for p, rows in self.table.rows.items() if rows}
        missing = {p for p in {*rows, partition} if p not in holding} - set(accepted)
        now = walk.listed_at
        return removals.alarm(ORDERS, holding=holding, vanished=dict.fromkeys(missing, now), now=now)

    def _do(self, table: Table, partition: Partition, step: LoadStep, listed: Sequence[SourceFile]) -> None:
        bodies = {f: self.bodies[self.bucket.objects[f.key].etag] for f in step.read}
        entries = {k: e for k, e in table.entries.get(partition, {}).items() if k in step.left}
        for file, body in bodies.items():
            if bad := tuple(sorted(key for key, value in body.items() if value == _BAD)):
                entries[file.key] = Entry(file.version, bad, whole=len(bad) == len(body))
        table.entries[partition] = entries
        self.reached("between_quarantine_and_table")
        before = table.rows.get(partition, {})
        rows = {} if step.replaces else {k: r for k, r in before.items() if (r.key, r.version) not in step.outdated}
        for file, body in bodies.items():
            for key, value in body.items():
                row = Row(value, file.arrived_at, file.key, file.version)
                if value != _BAD and (key not in rows or row.beats(rows[key])):
                    rows[key] = row
        self.reached("before_commit")
        table.rows[partition] = rows
        self.reached("after_commit")
        left = {(row.key, row.version) for row in rows.values()}
        for file in listed:
            entry = entries.get(file.key)
            if (file.key, file.version) not in left and not (entry and entry.whole):
                bad = entry.bad if entry and entry.version == file.version else ()
                entries[file.key] = Entry(file.version, bad, whole=True)

    # what must hold
    def settle(self) -> None:
        """Nobody sends or dies any more and all is given; lost notifications are found by a reconcile."""
        self.crash_at, self.bucket.away = None, 0
        self.bucket.archived.clear()
        for _ in range(3):
            self.wait(5)
            self.tick()
        assert self.queue.waiting == [] and self.queue.in_flight == {}
        if self.lost:  # else nothing but the notifications may be needed
            self.reconcile()
        self.run()
        if self.alarmed:
            self.wait(5)
            self.reconcile(accept=True)
            self.run()
        assert self.pending() == []

    def full_load(self) -> Table:
        """What a fresh load of the bucket gives."""
        fresh = Table()
        for partition, listing in Walk(self.bucket, ORDERS):
            files = [SourceFile(o.key, o.source_version, o.last_modified, partition, o.size) for o in listing.objects]
            self._do(fresh, partition, LoadStep(tuple(files), replaces=True), files)
        return fresh


def copies(messages: Sequence[Message], times: int) -> list[Message]:
    """Each of some messages several times, as a queue delivers them: with a receipt of their own."""
    return [Message(m.body, f"{m.receipt}-{n}") for n in range(times) for m in messages]
