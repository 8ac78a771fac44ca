"""Hostile files and messages, written from the specification alone: rows, entries and reasons are as it says.

Files go through the load twice: read in the process, as small ones are, and by workers, as large ones are. Each case
has a partition of its own, so one that breaks a load is found by loading its batch one by one.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load, Loaded, run_load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.sensors.landing import Received
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Grain, Partition
from dagster_tidemark.sources.notification_queue import Message
from dagster_tidemark.sources.partition_listing import look_beside_all
from dagster_tidemark.sources.s3 import S3Bucket
from dagster_tidemark.sources.s3_events import LandingZone
from tests.proof.conftest import Report
from tests.proof.hostile import changes_of_files
from tests.proof.hostile.changes import CHANGED
from tests.proof.hostile.changes_of_files import Change
from tests.proof.hostile.corpus import FILES, MESSAGES, FileCase
from tests.proof.hostile.corpus_model import COLUMNS, good
from tests.tidemark.lakehouse.conftest import renamed
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines

START = date(2026, 9, 28)
FIRST = datetime(2026, 10, 5, tzinfo=UTC)
TOGETHER = 40
LOADS = {
    "orders": Load(feeds.ORDERS, schemas.ORDERS, order_lines, "1"),
    "customers": Load(feeds.CUSTOMERS, schemas.CUSTOMERS, lambda rows: rows, "1"),
    "prices": Load(feeds.PRICES, schemas.PRICES, lambda rows: rows, "1"),
}


def as_changed(case: FileCase, change: Change) -> FileCase:
    """A case with what is expected of it now."""

    def row(start: datetime, number: int, differs: Mapping[str, Any]) -> tuple[Any, ...]:
        values = good(start, number) | dict(differs)
        if "ordered_at" in differs:
            values["ordered_at"] = start + differs["ordered_at"]
        return tuple(values[column] for column in COLUMNS)

    return dataclasses.replace(
        case,
        rows=lambda start: {row(start, number, differs) for number, differs in change.rows.items()},
        entries=lambda _: Counter(change.entries),
    )


@dataclass(frozen=True)
class Placed:
    """A case in a partition of its own."""

    case: FileCase
    load: Load
    start: datetime

    @property
    def partition(self) -> Partition:
        grain = self.load.feed.grain
        if grain is Grain.NONE:
            return None
        return f"{self.start:%Y-%m-%d-%H:%M}" if grain is Grain.HOUR else f"{self.start:%Y-%m-%d}"

    def key(self, name: str) -> str:
        """The whole key of one of its files."""
        feed = self.load.feed
        return feed.prefix + name[1:] if name.startswith("/") else feed.prefix_of(self.partition) + name


@pytest.fixture(scope="module")
def landing(cloud: Settings) -> S3Bucket:
    return S3Bucket(lambda: boto3.client("s3", **cloud.aws_options()), cloud.landing_bucket)


def placed(feed: str, changes: Mapping[str, Change]) -> Iterator[list[Placed]]:
    """The cases of a feed, in batches that share a table."""
    of_feed = [case for case in FILES if case.feed == feed]
    cases = [as_changed(case, changes[case.name]) if case.name in changes else case for case in of_feed]
    if feed == "customers":  # the one file there is
        yield from ([Placed(case, renamed(LOADS[feed]), FIRST)] for case in cases)
        return
    load = renamed(LOADS[feed])
    if feed == "prices":
        starts = [FIRST + timedelta(days=n) for n in range(len(cases))]
    else:  # never the first nor the last hour of a day: cases speak of the hours before and after
        starts = [FIRST + timedelta(days=n // 22, hours=1 + n % 22) for n in range(len(cases))]
    everything = [Placed(case, load, start) for case, start in zip(cases, starts, strict=True)]
    yield from (everything[n : n + TOGETHER] for n in range(0, len(everything), TOGETHER))


def outcome(spark: SparkSession, landing: S3Bucket, batch: Sequence[Placed]) -> dict[str, str]:
    """Case to what is not as expected; empty where all is."""
    unsent: dict[str, str] = {}
    for at in batch:
        for name, body in at.case.files(at.start).items():
            try:
                landing._client.put_object(Bucket=landing.name, Key=at.key(name), Body=body)
            except Exception as refused:  # the local cloud takes no such key
                unsent[at.case.name] = f"cannot be sent: {refused}"
    load = batch[0].load
    broken = _loaded(spark, landing, load, [at for at in batch if at.case.name not in unsent])
    rows, entries = _rows(spark, load), _entries(spark, load)
    return {
        at.case.name: unsent.get(at.case.name) or broken.get(at.case.name) or _difference(at, rows, entries)
        for at in batch
    }


def _loaded(spark: SparkSession, landing: S3Bucket, load: Load, batch: Sequence[Placed]) -> dict[str, str]:
    try:
        beside = look_beside_all(landing, load.feed, start=START)
        partitions = [at.partition for at in batch]
        loaded = run_load(spark, landing, load, partitions, run_id=batch[0].case.name, misplaced=beside.values())
    except Exception as error:
        if len(batch) == 1:
            return {batch[0].case.name: f"the load fails: {type(error).__name__}: {str(error)[:300]}"}
        half = len(batch) // 2
        return _loaded(spark, landing, load, batch[:half]) | _loaded(spark, landing, load, batch[half:])
    return _unaccounted(spark, load, batch, loaded)


def _unaccounted(spark: SparkSession, load: Load, batch: Sequence[Placed], loaded: Loaded) -> dict[str, str]:
    """Cases of which rows are unaccounted for, as the load says, or as table and quarantine counted anew say."""
    in_table = Counter(row.source_file for row in spark.table(load.table.identifier).select("source_file").collect())
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}' AND row_number IS NOT NULL")
    rejected = Counter(row.source_file for row in entries.select("source_file").collect())
    cases = {at.partition: at.case.name for at in batch}
    return {
        cases[of.partition]: f"rows unaccounted for: {of}; {in_table[of.key]} and {rejected[of.key]} when counted anew"
        for of in loaded.accounts
        if of.unaccounted or (of.in_table, of.rejected) != (in_table[of.key], rejected[of.key])
    }


def _rows(spark: SparkSession, load: Load) -> dict[Partition, list[tuple[Any, ...]]]:
    found: dict[Partition, list[tuple[Any, ...]]] = defaultdict(list)
    of_customers = load.feed.grain is Grain.NONE
    rows = spark.table(load.table.identifier).selectExpr(
        f"{load.table.partition_key_sql} AS partition", *load.feed.columns
    )
    for partition, *values in rows.collect():
        # Of customers only the day of a time is compared.
        found[partition].append(
            tuple(f"{v:%Y-%m-%d}" if of_customers and isinstance(v, datetime) else v for v in values)
        )
    return found


def _entries(spark: SparkSession, load: Load) -> Counter[tuple[str, str]]:
    entered = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").select("source_file", "reason")
    return Counter((entry.source_file, entry.reason) for entry in entered.collect())


def _difference(at: Placed, rows: dict[Partition, list[tuple[Any, ...]]], entries: Counter[tuple[str, str]]) -> str:
    expected = at.case.entries(at.start)
    keys = {at.key(name): name for name in [*at.case.files(at.start), *(name for name, _ in expected)]}
    found = Counter({(keys[key], reason): n for (key, reason), n in entries.items() if key in keys})
    with_others = {name for name, reason in found if reason != "no rows"}
    found = Counter({(name, why): n for (name, why), n in found.items() if why != "no rows" or name not in with_others})
    stand, ought = (
        sorted(map(_comparable, rows.get(at.partition, []))),
        sorted(map(_comparable, at.case.rows(at.start))),
    )
    said = []
    if stand != ought:
        said.append(f"rows {[r for r in stand if r not in ought]} instead of {[r for r in ought if r not in stand]}")
    if found != expected:
        said.append(f"entries {dict(found - expected)} instead of {dict(expected - found)}")
    return "; ".join(said)[:600]


def _comparable(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(_as_text, row))


def _as_text(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
    return f"{value.normalize() + 0:f}" if isinstance(value, Decimal) else str(value)


@pytest.mark.parametrize("small", [small_files.SMALL, 0], ids=["fetched", "scanned"])
def test_hostile_files_load_as_specified(
    spark: SparkSession,
    landing: S3Bucket,
    report: Report,
    monkeypatch: pytest.MonkeyPatch,
    small: int,
) -> None:
    monkeypatch.setattr(small_files, "SMALL", small)
    changes = changes_of_files.CHANGES
    found: dict[str, str] = {}
    for feed in LOADS:
        for batch in placed(feed, changes):
            found |= outcome(spark, landing, batch)
    changed = {name: change.why for name, change in changes.items()} | CHANGED
    _judge("files-" + ("fetched" if small else "scanned"), found, changed, report)


def test_hostile_messages_are_read_as_specified(report: Report) -> None:
    zone = LandingZone("landing", feeds.FEEDS, START)
    found: dict[str, str] = {}
    for case in MESSAGES:
        received = Received()
        try:
            received.add(Message(case.body, "1"), zone)
        except Exception as error:
            found[case.name] = f"{type(error).__name__}: {error}"
            continue
        hints = frozenset((feed.name, partition) for feed, partition in received.notified)
        said = (hints, bool(received.refused), len(received.strays))
        expected = (case.hints, case.stays, case.strays)
        found[case.name] = "" if said == expected else f"{said} instead of {expected}"
    _judge("messages", found, CHANGED, report)


# As they were written, before anything was mended; of scanned files after what the fetched ones had shown was mended.
IN_THE_FIRST_RUN = {"files-fetched": "422 of 489", "files-scanned": "431 of 489", "messages": "148 of 162"}


def _judge(kind: str, found: dict[str, str], changed: Mapping[str, str], report: Report) -> None:
    different = {name: said for name, said in found.items() if said}
    report(
        f"hostile-{kind}",
        {
            "cases": len(found),
            "as expected": len(found) - len(different),
            "as expected in the first run": IN_THE_FIRST_RUN[kind],
            "expectations changed since they were written": {n: why for n, why in changed.items() if n in found},
            "different": different,
        },
    )
    assert not different, f"{len(different)} of {len(found)}: {sorted(different)}"
