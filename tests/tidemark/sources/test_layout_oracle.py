"""Layouts of any kind against an oracle: Dagster's definitions say which keys there are, `strftime` where they lie."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import product

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_tidemark import Feed, Grain
from dagster_tidemark.sources.feed import OutsideLayout
from dagster_tidemark.sources.listing import FakeBucket
from dagster_tidemark.sources.misplaced import Span, place_of
from dagster_tidemark.sources.partition_listing import Walk, look, look_at_each

FOREVER = Span(date.min, date.max)
FAR = datetime(9990, 1, 1, tzinfo=UTC)  # all times are near
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "America/Sao_Paulo")
# Around the days on which clocks change, and any.
DAYS = st.one_of(
    st.sampled_from([date(2026, 3, 8), date(2026, 3, 29), date(2026, 10, 25), date(2026, 11, 1), date(2026, 9, 27)]),
    st.dates(date(2020, 1, 1), date(2030, 1, 1)),
)
BY_TIME: dict[Grain, tuple[Callable[..., dg.PartitionsDefinition], Sequence[Sequence[str]]]] = {
    Grain.QUARTER_HOUR: (
        lambda start, **more: dg.TimeWindowPartitionsDefinition(
            start=f"{start}-00:00", cron_schedule="*/15 * * * *", fmt="%Y-%m-%d-%H:%M", **more
        ),
        [["dt=%Y-%m-%d", "hour=%H", "minute=%M"], ["%Y%m%d", "%H%M"], ["at=%Y-%m-%dT%H.%M"]],
    ),
    Grain.HOUR: (
        lambda start, **more: dg.HourlyPartitionsDefinition(f"{start}-00:00", **more),
        [["dt=%Y-%m-%d", "hour=%H"], ["%Y", "%m", "%d", "%H"], ["%Y%m%dT%H"], ["%Y-%m", "d%d+%H"]],
    ),
    Grain.DAY: (
        dg.DailyPartitionsDefinition,
        [["dt=%Y-%m-%d"], ["year=%Y", "month=%m", "day=%d"], ["a.b+%Y", "x%m-%d"]],
    ),
    Grain.WEEK: (lambda start, **more: dg.WeeklyPartitionsDefinition(start, day_offset=1, **more), [["week=%Y-%m-%d"]]),
    Grain.MONTH: (dg.MonthlyPartitionsDefinition, [["month=%Y-%m"], ["%Y", "%m"]]),
}
LENGTH = {Grain.MONTH: timedelta(days=70), Grain.WEEK: timedelta(days=30)}
_FREE = st.characters(exclude_categories=["C", "Z"], exclude_characters="/|[],.")  # what Dagster allows, less "..."
KEYS = st.lists(
    st.one_of(
        st.sampled_from(["emea", "emea-2", "2026-10-01", "a.c", "x=y", "%H", "Ü+ (1)"]), st.text(_FREE, min_size=1)
    ),
    min_size=1,
    max_size=4,
    unique=True,
)
AROUND = st.sampled_from([("region=", ""), ("", ""), ("a.", "+(b)"), ("", "x")])


@dataclass
class World:
    """A feed, and of every partition key of its definition where it lies, its day (in its zone) and its window."""

    feed: Feed
    places: dict[str, str]
    days: dict[str, date | None]
    windows: dict[str, tuple[datetime, datetime] | None]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """By time, by one or two names, or by time and a name: Dagster knows two dimensions at most."""
    grain = draw(st.sampled_from([*BY_TIME, Grain.NONE]))
    is_timed = grain is not Grain.NONE
    least, most = (0, 1) if is_timed else (1, 2)
    names = draw(st.lists(st.sampled_from(["region", "area", "Zone"]), min_size=least, max_size=most, unique=True))
    zone = draw(st.sampled_from(ZONES)) if is_timed else "UTC"
    time_name = draw(st.sampled_from([None, "at", "time"]))
    keys = {name: draw(KEYS) for name in names}
    folders: list[tuple[str, str | None, str]] = []  # before a key, the name of keys, behind it
    moments: list[tuple[str, datetime, datetime] | None] = [None]
    if is_timed:
        define, spellings = BY_TIME[grain]
        folders = [(folder, None, "") for folder in draw(st.sampled_from(spellings))]
        start = draw(DAYS)
        by_time = define(str(start.replace(day=1) if grain is Grain.MONTH else start), timezone=zone, end_offset=1)
        until = datetime(start.year, start.month, start.day, tzinfo=UTC) + LENGTH.get(grain, timedelta(days=2))
        moments = [
            (key, *by_time.time_window_for_partition_key(key)[:2])
            for key in by_time.get_partition_keys(current_time=until)
        ]
    for name in names:
        before, behind = draw(AROUND)
        folders.insert(draw(st.integers(0, len(folders))), (before, name, behind))
    written = "/".join(f"{before}{{{name}}}{behind}" if name else before for before, name, behind in folders)
    world = World(
        Feed("f", "a/b/", grain, {"x": "bigint"}, folders=written, keys=keys, timezone=zone, time_name=time_name),
        {},
        {},
        {},
    )
    for moment, of in product(moments, [dict(zip(names, some, strict=True)) for some in product(*keys.values())]):
        key, at, end = moment or ("", None, None)
        parts = of | ({time_name or str(grain): key} if at else {})
        partition = "|".join(parts[name] for name in sorted(parts))
        finest = "%M" if grain is Grain.QUARTER_HOUR else "%H"
        texts = [
            f"{before}{of[name]}{behind}" if name else at.strftime(before.replace(finest, f"{finest}{key[16:]}"))
            for before, name, behind in folders
        ]
        world.places[partition] = f"a/b/{'/'.join(texts)}/"
        world.days[partition] = at.date() if at else None
        world.windows[partition] = (at, end) if at else None
    return world


@given(worlds(), st.data())
@settings(max_examples=120, deadline=None)
def test_file_belongs_to_the_partition_of_its_folder(world: World, data: st.DataObject) -> None:
    feed, places = world.feed, world.places
    assert len(set(places.values())) == len(places), "no two share a place"
    for partition in data.draw(st.lists(st.sampled_from(sorted(places)), min_size=1, max_size=12)):
        below = places[partition]
        assert feed.prefix_of(partition) == below
        assert feed.partition_of(f"{below}some file.csv") == partition
        assert feed.classify(f"{below}too/deep/x.csv").partition == partition
        assert place_of(feed, f"{below}too/deep/x.csv", FOREVER) is None
        assert feed.layout.has(partition)
        assert feed.layout.window(partition) == world.windows[partition]
        with pytest.raises(OutsideLayout):
            feed.partition_of(f"{below}deeper/x.csv")
        day = world.days[partition]
        if day:
            assert [below.startswith(p) for p in feed.prefixes_of_day(day)].count(True) == 1
            assert feed.shared_prefix_of(partition) in feed.prefixes_of_day(day)
            assert partition in feed.partitions_of(day)
            assert not feed.layout.has(partition, day + timedelta(days=40))


@given(worlds())
@settings(max_examples=60, deadline=None)
def test_partitions_of_a_day_equal_those_of_the_dagster_definition(world: World) -> None:
    days = sorted({day for day in world.days.values() if day})
    if not days:
        assert sorted(world.feed.partitions_of(date(2026, 1, 1))) == sorted(world.places)
    for day in days[1:-1]:  # of the first and last the definition has only some
        theirs = {p for p, of in world.days.items() if of == day}
        assert set(world.feed.partitions_of(day)) == theirs
        assert len(world.feed.partitions_of(day)) == len(theirs)


@given(worlds(), st.data())
@settings(max_examples=120, deadline=None)
def test_listed_file_is_either_data_of_one_partition_or_misplaced(world: World, data: st.DataObject) -> None:
    feed, bucket = world.feed, FakeBucket(now=FAR)
    some = data.draw(st.lists(st.sampled_from(sorted(world.places)), min_size=1, max_size=6, unique=True))
    places = [world.places[p] for p in some]
    pieces = sorted({piece for place in places for piece in place.removeprefix("a/b/").split("/") if piece})
    odd = st.sampled_from([*pieces, "dt=2026-13-01", "hour=24", "x", "region=mars", "minute=07", "02+0100", ""])
    others = ["a/b/" + "".join(f"{piece}/" for piece in data.draw(st.lists(odd, max_size=4))) for _ in range(8)]
    for folder in {*places, *others}:
        for name in ("a.csv", "b.txt", "_SUCCESS"):
            bucket.put(folder + name, b"1")
    walk = Walk(bucket, feed)
    found = dict(walk)

    for key in bucket.objects:
        homes = [p for p, listing in found.items() if key in {o.key for o in listing.objects}]
        inside = [p for p, listing in found.items() if key in {o.key for o in listing.misplaced}]
        place = place_of(feed, key, Span(date.min, FAR.date()))
        is_beside = place is not None and place.folder in walk.beside
        if key.endswith("_SUCCESS"):
            assert not homes and not inside
        else:
            assert len(homes) + len(inside) + is_beside == 1, key
        for partition in homes + inside:
            assert key.startswith(feed.prefix_of(partition))
            assert (feed.prefix_of(partition) == key.rpartition("/")[0] + "/") or partition in inside
            assert feed.partition_of(f"{feed.prefix_of(partition)}x") == partition
        assert homes or not any(key == f"{place}a.csv" for place in places)
    assert set(some) <= set(found)
    for partition in some:
        alone = look(bucket, feed, partition)
        assert (alone.objects, alone.misplaced) == (found[partition].objects, found[partition].misplaced)
    together = look_at_each(bucket, feed, some)
    assert {p: listing.objects for p, listing in together.items()} == {p: found[p].objects for p in some}
    for day in {world.days[p] for p in some} - {None}:
        of_day = dict(Walk(bucket, feed, prefixes=feed.prefixes_of_day(day)))
        assert of_day.keys() <= set(feed.partitions_of(day)), "no other day's are looked at"
        assert {p: of_day[p].objects for p in some if world.days[p] == day} == {
            p: found[p].objects for p in some if world.days[p] == day
        }
