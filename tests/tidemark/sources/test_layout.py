"""Folders of time: there and back for every grain, of any names; and what is refused."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tidemark import Feed, Grain
from pipelines.tidemark.sources.feed import OutsideLayout
from pipelines.tidemark.sources.misplaced import BEFORE_START, IN_THE_FUTURE, OUTSIDE_LAYOUT, Span, place_of

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


def feed(grain: Grain, folders: str | None = None) -> Feed:
    prefix = "a/latest.csv" if grain is Grain.NONE else "a/b/"
    return Feed(name="f", prefix=prefix, grain=grain, columns={"x": "bigint"}, folders=folders)


@pytest.mark.parametrize(("grain", "folders"), WRITTEN)
@given(at=st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31, 23)))
def test_a_partition_lies_where_its_key_says(grain: Grain, folders: str | None, at: datetime) -> None:
    of, below = feed(grain, folders), WRITTEN[grain, folders](at)
    key = at.strftime(KEYS[grain])
    assert of.prefix_of(key) == f"a/b/{below}"
    assert of.partition_of(f"a/b/{below}some file.csv") == key
    assert of.partition_around(f"a/b/{below}too/deep/x.csv") == key
    assert f"a/b/{below}".startswith(of.prefix_of_day(at.date()))
    assert key in of.partitions_of(at.date())
    assert of.end_of(key) > at.replace(tzinfo=UTC) or at.year == 9999
    for outside in (f"a/b/{below}", f"a/b/x{below}f.csv", f"a/b/{below}deeper/f.csv", f"b/{below}f.csv", "a/b/f.csv"):
        with pytest.raises(OutsideLayout):
            of.partition_of(outside)


def test_a_month_ends_where_the_next_begins() -> None:
    months = [f"2027-{month:02}-01" for month in range(1, 13)]
    of = feed(Grain.MONTH)
    assert [of.end_of(month).date().isoformat() for month in months] == [*months[1:], "2028-01-01"]


@pytest.mark.parametrize(
    ("grain", "folders", "said"),
    [
        (Grain.DAY, "dt=%Y-%m", "have the directives %Y %d %m"),
        (Grain.HOUR, "dt=%Y-%m-%d", "have the directives"),
        (Grain.MONTH, "%Y/%m/%d", "have the directives"),
        (Grain.DAY, "%Y/%Y-%m-%d", "once each"),
        (Grain.DAY, "%d/%m/%Y", "coarse before fine"),
        (Grain.DAY, "data/%Y-%m-%d", "each folder names a time"),
        (Grain.DAY, "%Y-%m-%d/", "each folder names a time"),
        (Grain.DAY, "%Y-%j", "have the directives"),
        (Grain.NONE, "%Y", "have the directives none"),
    ],
)
def test_folders_that_do_not_say_the_time_are_refused_by_feed(grain: Grain, folders: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"feed f: .*{said}"):
        feed(grain, folders)


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
    ],
)
def test_what_is_misplaced_is_told_with_the_first_folder_that_is_wrong(
    grain: Grain, folders: str | None, key: str, folder: str | None, reason: str | None
) -> None:
    found = place_of(feed(grain, folders), f"a/b/{key}", SPAN)
    assert (found and found.folder, found and found.reason) == (folder and f"a/b/{folder}", reason)
