"""What a random graph is made of, as plain data: grains, mappings, tables, events.

The generator writes it, Dagster's definitions are made from it, and the oracle judges by it alone.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

Target = tuple[str, str | None]

STATIC = ("eu", "us", "asia")
POOL = ("oslo", "rome", "lima", "kiev")
DYNAMIC = "cities"
TIMES = ("quarters", "hours", "days", "plain days", "weekdays", "weeks", "months")
GRAINS = (*TIMES, "static", "dynamic", "days x static", "days x dynamic", "single")
LENGTH = {"quarters": 0.25, "hours": 1, "days": 24, "plain days": 24, "weekdays": 24, "weeks": 168, "months": 720}
"""Hours, about: which of two grains of time is the finer one."""


@dataclass(frozen=True)
class Read:
    """An input.

    Args:
        way: How partitions map, one of `mappings.WAYS`.
    """

    key: str
    way: str = ""
    use_latest: bool = False
    ripple_days: int | None = None


@dataclass(frozen=True)
class Table:
    """An asset.

    Args:
        kind: `source` (observed by the landing sensor), `external` (reported by others) or `table`.
        contract: ("lag", seconds), ("cron", schedule, bound in seconds, zone), or None.
        policy: Its backfill policy: none, one run for all, or so many partitions a run.
        condition: `derived`, `nightly` (derived and a tick), `missing` (derived or missing), `idle` (derived and not in
            progress), `none`, `raises`.
        code: Its code version.
        constant: A rebuild gives the same content, whatever it read.
        optional: A run may succeed without writing it.
        group: The operation it is built by together with others, which cannot be split; none if it has its own.
        broken: Why nothing is expected of it but to be named.
        plannable: Whether Dagster can plan a run of it without config.
        seconds: What a run takes; None: as all others.
        passes: Its runs pass all others in the queue: that they wait for a slot does not excuse it.
    """

    key: str
    grain: str
    reads: tuple[Read, ...] = ()
    kind: str = "table"
    contract: tuple[Any, ...] | None = None
    asap: bool = False
    every_input: bool = False
    policy: int | str | None = "single"
    condition: str = "derived"
    code: str | None = "1"
    constant: bool = False
    check: bool = False
    optional: bool = False
    group: str | None = None
    broken: str = ""
    plannable: bool = True
    seconds: float | None = None
    passes: bool = False

    @property
    def outside(self) -> bool:
        return self.kind != "table"


@dataclass(frozen=True)
class Event:
    """Something that happens: `what` is a method of `play.Day`, `of` its arguments; `at` in seconds after the start."""

    at: float
    what: str
    of: tuple[Any, ...] = ()


@dataclass(frozen=True)
class World:
    """A graph and what happens to it.

    Args:
        begin: The first moment, UTC.
        zone: Of the partitions of time.
        offset: The `end_offset` of the partitions of time: 1, 0 or -1.
        hours: How long things happen; then there is quiet.
        keys: The dynamic keys that exist at the beginning.
        static: The static keys that its code declares.
        slots: How many runs can be under way at once.
        check_seconds: The shortest and the longest evaluation of a check.
    """

    seed: int
    begin: datetime
    zone: str
    offset: int
    hours: float
    tables: tuple[Table, ...]
    events: tuple[Event, ...] = ()
    keys: tuple[str, ...] = POOL[:2]
    static: tuple[str, ...] = STATIC
    slots: int = 4
    check_seconds: tuple[float, float] = (0.0, 0.0)
    _by_key: dict[str, Table] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._by_key.update({table.key: table for table in self.tables})

    def table(self, key: str) -> Table:
        return self._by_key[key]

    def with_code(self, codes: dict[str, str | None]) -> "World":
        """The same graph with other code."""
        tables = tuple(replace(t, code=codes.get(t.key, t.code)) for t in self.tables)
        return replace(self, tables=tables, _by_key={})


def definition(world: World, grain: str) -> dg.PartitionsDefinition | None:
    """Dagster's definition of a grain: short, so that what reads all of it stays small."""
    local = world.begin.astimezone(UTC).replace(tzinfo=None)
    midnight = datetime(local.year, local.month, local.day)

    def _by(cron: str, start: datetime, fmt: str) -> dg.TimeWindowPartitionsDefinition:
        return dg.TimeWindowPartitionsDefinition(
            cron_schedule=cron, start=f"{start:{fmt}}", fmt=fmt, timezone=world.zone, end_offset=world.offset
        )

    of_time = {
        "quarters": lambda: _by("*/15 * * * *", local - timedelta(hours=2), "%Y-%m-%d-%H:%M"),
        "hours": lambda: dg.HourlyPartitionsDefinition(
            f"{local - timedelta(hours=8):%Y-%m-%d-%H:00}", timezone=world.zone, end_offset=world.offset
        ),
        "days": lambda: dg.DailyPartitionsDefinition(
            f"{midnight - timedelta(days=4):%Y-%m-%d}", timezone=world.zone, end_offset=world.offset
        ),
        "plain days": lambda: _by("0 0 * * *", midnight - timedelta(days=4), "%Y%m%d"),
        "weekdays": lambda: _by("0 0 * * 1-5", midnight - timedelta(days=9), "%Y-%m-%d"),
        "weeks": lambda: dg.WeeklyPartitionsDefinition(
            f"{midnight - timedelta(days=22):%Y-%m-%d}", timezone=world.zone, end_offset=world.offset
        ),
        "months": lambda: dg.MonthlyPartitionsDefinition(
            f"{midnight - timedelta(days=70):%Y-%m}-01", timezone=world.zone, end_offset=world.offset
        ),
    }
    if grain in of_time:
        return of_time[grain]()  # type: ignore[no-untyped-call]
    if grain == "single":
        return None
    if grain == "static":
        return dg.StaticPartitionsDefinition(list(world.static))
    if grain == "dynamic":
        return dg.DynamicPartitionsDefinition(name=DYNAMIC)
    _, other = grain.split(" x ")
    days, of_other = definition(world, "days"), definition(world, other)
    assert days is not None and of_other is not None
    return dg.MultiPartitionsDefinition({"day": days, "of": of_other})
