"""Folders of times and keys: there and back for every grain, of any names; and what is refused."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_tidemark import Feed, Grain
from dagster_tidemark.sources.feed import OutsideLayout
from dagster_tidemark.sources.misplaced import (
    BEFORE_START,
    IN_THE_FUTURE,
    OUTSIDE_LAYOUT,
    UNKNOWN_KEY,
    Span,
    place_of,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SPAN = Span.at(NOW, date(2026, 9, 28))
# Written by hand, so that the folders are said in another way than in the code.
WRITTEN = {
    (Grain.HOUR, None): lambda t: f"dt={t:%Y-%m-%d}/hour={t:%H}/",
    (Grain.HOUR, "%Y/%m/%d/%H"): lambda t: f"{t:%Y}/{t:%m}/{t:%d}/{t:%H}/",
    (Grain.HOUR, "%Y%m%dT%H"): lambda t: f"{t:%Y%m%d}T{t:%H}/",
    (Grain.DAY, None): lambda t: f"dt={t:%Y-%m-%d}/",
    (Grain.DAY, "year=%Y/month=%m/day=%d"): lambda t: f"year={t:%Y}/month={t:%m}/day={t:%d}/",
    (Grain.DAY, "a.b+%Y/x%m-%d"): lambda t: f"a.b+{t:%Y}/x{t:%m}-{t:%d}/",
    (Grain.MONTH, None): lambda t: f"month={t:%Y-%m}/",
    (Grain.MONTH, "%Y/%m"): lambda t: f"{t:%Y}/{t:%m}/",
}
KEYS = {Grain.HOUR: "%Y-%m-%d-%H:00", Grain.DAY: "%Y-%m-%d", Grain.MONTH: "%Y-%m-01"}
REGIONS = {"region": ["emea", "apac"]}
BERLIN = "Europe/Berlin"


def feed(grain: Grain, folders: str | None = None, **more: Any) -> Feed:
    prefix = "a/b/" if folders or grain is not Grain.NONE or more else "a/latest.csv"
    return Feed(name="f", prefix=prefix, grain=grain, columns={"x": "bigint"}, folders=folders, **more)


@pytest.mark.parametrize(("grain", "folders"), WRITTEN)
@given(at=st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31, 23)))
def test_partition_key_and_folder_convert_into_each_other(grain: Grain, folders: str | None, at: datetime) -> None:
    of, below = feed(grain, folders), WRITTEN[grain, folders](at)
    key = at.strftime(KEYS[grain])
    assert of.prefix_of(key) == f"a/b/{below}"
    assert of.partition_of(f"a/b/{below}some file.csv") == key
    assert of.classify(f"a/b/{below}too/deep/x.csv").partition == key
    assert f"a/b/{below}".startswith(of.shared_prefix_of(key))
    assert of.prefixes_of_day(at.date()) == [of.shared_prefix_of(key)]
    assert key in of.partitions_of(at.date())
    start, end = of.layout.window(key)
    assert start <= at.replace(tzinfo=UTC) < end or at.year == 9999
    for outside in (f"a/b/{below}", f"a/b/x{below}f.csv", f"a/b/{below}deeper/f.csv", f"b/{below}f.csv", "a/b/f.csv"):
        with pytest.raises(OutsideLayout):
            of.partition_of(outside)


@pytest.mark.parametrize(
    ("grain", "key", "other"),
    [
        (Grain.MONTH, "2026-10-01", "2026-10-15"),
        (Grain.WEEK, "2026-10-12", "2026-10-15"),
        (Grain.HOUR, "2026-10-15-07:00", "2026-10-15-07:15"),
        (Grain.QUARTER_HOUR, "2026-10-15-07:15", "2026-10-15-07:10"),
    ],
)
def test_key_of_a_former_finer_grain_is_no_key(grain: Grain, key: str, other: str) -> None:
    layout = feed(grain).layout
    assert layout.has(key) and not layout.has(other)


def test_monthly_window_ends_at_the_start_of_the_next_month() -> None:
    months = [f"2027-{month:02}-01" for month in range(1, 13)]
    of = feed(Grain.MONTH)
    assert [of.layout.window(month)[1].date().isoformat() for month in months] == [*months[1:], "2028-01-01"]


@pytest.mark.parametrize(
    ("grain", "folders", "said"),
    [
        (Grain.DAY, "dt=%Y-%m", "expected the directives %Y %d %m"),
        (Grain.HOUR, "dt=%Y-%m-%d", "expected the directives"),
        (Grain.MONTH, "%Y/%m/%d", "expected the directives"),
        (Grain.DAY, "%Y/%Y-%m-%d", "once each"),
        (Grain.DAY, "%d/%m/%Y", "coarse before fine"),
        (Grain.DAY, "data/%Y-%m-%d", "expected each to name a time"),
        (Grain.DAY, "%Y-%m-%d/", "expected each to name a time"),
        (Grain.DAY, "%Y-%j", "expected the directives"),
        (Grain.NONE, "%Y", "expected the directives none"),
    ],
)
def test_feed_folders_that_do_not_express_the_grain_are_refused(grain: Grain, folders: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"feed f: .*{said}"):
        feed(grain, folders)


@pytest.mark.parametrize(
    ("grain", "folders", "more", "said"),
    [
        (Grain.DAY, "dt=%Y-%m-%d", {"keys": REGIONS}, r"expected one for each of the declared keys \(region\)"),
        (Grain.DAY, "{region}/dt=%Y-%m-%d", {}, r"expected one for each of the declared keys \(none\)"),
        (Grain.NONE, "{region}/{region}", {"keys": REGIONS}, "expected one for each of the declared keys"),
        (
            Grain.NONE,
            "{region}{area}",
            {"keys": REGIONS | {"area": ["a"]}},
            "expected one for each of the declared keys",
        ),
        (Grain.DAY, "{region}-%Y-%m-%d", {"keys": REGIONS}, "to name a time, coarse before fine, or a key"),
        (Grain.NONE, None, {"keys": {"region": ["a/b"]}}, "key 'a/b' of region cannot be the name of a folder"),
        (Grain.NONE, None, {"keys": {"region": [""]}}, "cannot be the name of a folder"),
        (Grain.NONE, None, {"keys": {"region": "emea"}}, "keys of region: expected a list of strings"),
        (Grain.NONE, None, {"keys": {"region": []}}, "keys of region: expected a list of strings"),
        (Grain.DAY, None, {"keys": REGIONS | {"area": ["a"]}}, "at most two dimensions, found area, day, region"),
        (Grain.DAY, None, {"keys": {"day": ["a"]}}, "time and keys need different names, both are named day"),
        (Grain.HOUR, None, {"timezone": "Europe/Berlinn"}, "unknown timezone 'Europe/Berlinn'"),
        (Grain.HOUR, "%Y-%m-%d %H:%M", {}, "expected the directives %H %Y %d %m"),
    ],
)
def test_invalid_feed_keys_and_time_zones_are_refused(
    grain: Grain, folders: str | None, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=f"feed f: .*{said}"):
        feed(grain, folders, **more)


@pytest.mark.parametrize(
    ("grain", "keys", "folders", "dimensions"),
    [
        (Grain.NONE, REGIONS, "region={region}", ("region",)),
        (Grain.DAY, REGIONS, "dt=%Y-%m-%d/region={region}", ("day", "region")),
        (Grain.WEEK, {"area": ["a"]}, "week=%Y-%m-%d/area={area}", ("area", "week")),
        (Grain.QUARTER_HOUR, {}, "dt=%Y-%m-%d/hour=%H/minute=%M", ("quarter_hour",)),
    ],
)
def test_default_feed_folders_follow_from_grain_and_keys(
    grain: Grain, keys: dict[str, list[str]], folders: str, dimensions: tuple[str, ...]
) -> None:
    layout = feed(grain, keys=keys).layout
    assert (layout.folders, layout.dimensions) == (folders, dimensions)


@pytest.mark.parametrize(
    ("folder", "partition", "begins"),
    [
        ("dt=2026-10-25/hour=01", "2026-10-25-01:00", datetime(2026, 10, 24, 23, tzinfo=UTC)),
        ("dt=2026-10-25/hour=02", "2026-10-25-02:00", datetime(2026, 10, 25, 0, tzinfo=UTC)),
        ("dt=2026-10-25/hour=02+0100", "2026-10-25-02:00+0100", datetime(2026, 10, 25, 1, tzinfo=UTC)),
        ("dt=2026-10-25/hour=03", "2026-10-25-03:00", datetime(2026, 10, 25, 2, tzinfo=UTC)),
        ("dt=2026-10-25/hour=02+0200", None, None),
        ("dt=2026-10-25/hour=03+0100", None, None),
        ("dt=2026-03-29/hour=02", None, None),
        ("dt=2026-03-29/hour=03", "2026-03-29-03:00", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ],
)
def test_repeated_hour_is_the_first_unless_marked_and_skipped_hour_is_misplaced(
    folder: str, partition: str | None, begins: datetime | None
) -> None:
    of, key = feed(Grain.HOUR, timezone=BERLIN), f"a/b/{folder}/x.csv"
    place = place_of(of, key, Span(date.min, date.max))
    assert (place and place.reason) == (None if partition else OUTSIDE_LAYOUT)
    if partition:
        assert (of.partition_of(key), of.layout.window(partition)[0]) == (partition, begins)


def test_utc_day_lists_every_overlapping_day_of_the_feed_time_zone() -> None:
    day = date(2026, 10, 1)
    found = {zone: feed(Grain.DAY, timezone=zone).layout.times.local_days(day) for zone in ("UTC", "Pacific/Auckland")}
    assert found == {"UTC": [day], "Pacific/Auckland": [day, date(2026, 10, 2)]}


@pytest.mark.parametrize(
    ("grain", "folders", "key", "folder", "reason"),
    [
        (Grain.DAY, "%Y/%m/%d", "2026/x.csv", "2026/", OUTSIDE_LAYOUT),
        (Grain.DAY, "%Y/%m/%d", "2026/10/x.csv", "2026/10/", OUTSIDE_LAYOUT),
        (Grain.DAY, "%Y/%m/%d", "2026/13/01/x.csv", "2026/13/", OUTSIDE_LAYOUT),
        (Grain.DAY, "%Y/%m/%d", "2026/02/30/x.csv", "2026/02/30/", OUTSIDE_LAYOUT),
        (Grain.DAY, "%Y/%m/%d", "2026/09/27/x.csv", "2026/09/27/", BEFORE_START),
        (Grain.DAY, "%Y/%m/%d", "2062/01/01/x.csv", "2062/01/01/", IN_THE_FUTURE),
        (Grain.DAY, "%Y/%m/%d", "2026/09/28/x.csv", None, None),
        (Grain.HOUR, "%Y/%m/%d/%H", "2026/09/27/07/x.csv", "2026/09/27/", BEFORE_START),
        (Grain.HOUR, "%Y/%m/%d/%H", "2026/10/01/24/x.csv", "2026/10/01/24/", OUTSIDE_LAYOUT),
        (Grain.MONTH, None, "month=2026-08/x.csv", "month=2026-08/", BEFORE_START),
        (Grain.MONTH, None, "month=2026-09/x.csv", None, None),
        (Grain.MONTH, None, "month=2026-12/x.csv", "month=2026-12/", IN_THE_FUTURE),
        (Grain.MONTH, None, "month=2026-00/x.csv", "month=2026-00/", OUTSIDE_LAYOUT),
        (Grain.WEEK, None, "week=2026-10-06/x.csv", "week=2026-10-06/", OUTSIDE_LAYOUT),
        (Grain.WEEK, None, "week=2026-09-28/x.csv", None, None),
        (Grain.WEEK, None, "week=2026-09-21/x.csv", "week=2026-09-21/", BEFORE_START),
        (Grain.QUARTER_HOUR, "%Y%m%d/%H%M", "20261001/0745/x.csv", None, None),
        (Grain.QUARTER_HOUR, "%Y%m%d/%H%M", "20261001/0746/x.csv", "20261001/0746/", OUTSIDE_LAYOUT),
        (Grain.NONE, "{region}", "emea/x.csv", None, None),
        (Grain.NONE, "{region}", "EMEA/x.csv", "EMEA/", UNKNOWN_KEY),
        (Grain.NONE, "{region}", "x.csv", "", OUTSIDE_LAYOUT),
        (Grain.DAY, "{region}/%Y/%m-%d", "mars/2026/10-01/x.csv", "mars/", UNKNOWN_KEY),
        (Grain.DAY, "{region}/%Y/%m-%d", "emea/2026/09-01/x.csv", "emea/2026/09-01/", BEFORE_START),
        (Grain.DAY, "%Y/%m-%d/{region}", "2026/10-01/mars/x.csv", "2026/10-01/mars/", UNKNOWN_KEY),
        (Grain.DAY, "%Y/%m-%d/{region}", "2026/10-01/apac/x.csv", None, None),
    ],
)
def test_misplaced_file_is_reported_with_the_first_wrong_folder(
    grain: Grain, folders: str | None, key: str, folder: str | None, reason: str | None
) -> None:
    keys = REGIONS if "{region}" in str(folders) else {}
    found = place_of(feed(grain, folders, keys=keys), f"a/b/{key}", SPAN)
    assert (found and found.folder, found and found.reason) == (None if folder is None else f"a/b/{folder}", reason)


def test_file_of_an_unknown_key_is_reported_and_loaded_once_declared() -> None:
    of = feed(Grain.NONE, "region={region}", keys=REGIONS)
    found = place_of(of, "a/b/region=mars/x.csv", SPAN)
    assert found and "has region 'mars', which is not a key of feed f; it is loaded once that is added" in found.message
    more = feed(Grain.NONE, "region={region}", keys={"region": [*REGIONS["region"], "mars"]})
    assert place_of(more, "a/b/region=mars/x.csv", SPAN) is None
    assert more.partition_of("a/b/region=mars/x.csv") == "mars"
