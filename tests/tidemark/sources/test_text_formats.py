"""Declared forms of text files: a wrong or contradicting option is refused by name."""

from typing import Any

import pytest

from dagster_tidemark import Csv, Feed, FixedWidth, Grain, Json
from dagster_tidemark.sources.feed import require_readable
from dagster_tidemark.sources.time_patterns import pattern_fault

COLUMNS = {"booked_on": "date", "amount": "decimal(18,2)", "note": "string"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"separator": ";;"}, "expected separator as one ASCII character, found ';;'"),
        ({"separator": None}, "expected separator as one ASCII character, found None"),
        ({"quote": "''"}, "expected quote as one ASCII character or None"),
        ({"quote": ","}, "separator and quote are both ','"),
        ({"escape": '"'}, "quote and escape are both"),
        ({"header": ""}, "expected header as True, False, or the text"),
        ({"header": 3}, "expected header as True, False, or the text"),
        ({"skip_lines": -1}, "expected skip_lines as a number of lines, found -1"),
        ({"skip_lines": True}, "expected skip_lines as a number of lines, found True"),
        ({"skip_lines": 2, "header": "id"}, "skip_lines=2 and header='id' both say"),
        ({"fields": ("a",)}, "say header=False"),
        ({"header": False, "fields": ("a", "a")}, "fields has 'a' twice"),
        ({"header": False, "fields": "ab"}, "expected fields as a tuple"),
        ({"decimal": ";"}, "expected decimal as '.' or ','"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        ({"thousands": "x"}, "expected thousands as one of"),
        ({"nulls": "-"}, "expected nulls as a tuple of texts"),
        ({"nulls": ("",)}, "an empty text is always a missing value"),
        ({"times": {"a": "dd.MM"}}, "times of 'a': 'dd.MM' has no year"),
        ({"times": "dd.MM.yy"}, "expected times as a mapping"),
        ({"timezone": "Berlin"}, "timezone 'Berlin' is unknown"),
        ({"trailing_separator": 1}, "expected trailing_separator as True or False"),
    ],
)
def test_invalid_csv_option_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="format csv: ") as refused:
        Csv(**options)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "expected columns as widths such as"),
        ({"columns": ("id",)}, "expected columns as widths such as"),
        ({"columns": {"id": 0}}, "expected columns as widths such as"),
        ({"columns": {"id": True}}, "expected columns as widths such as"),
        ({"columns": {"id": (0, 6)}}, "expected columns as widths such as"),
        ({"columns": {"id": (1, 2, 3)}}, "expected columns as widths such as"),
        ({"columns": {"id": (1, "6")}}, "expected columns as widths such as"),
        ({"columns": {"id": (1, 6), "name": 20}}, "expected columns as widths only, or places only"),
        ({"columns": {"name": (6, 20), "id": (1, 6)}}, "the columns 'id' and 'name' share character 6 of a line"),
        ({"columns": {"rest": (6, None), "id": (9, 2)}}, "the columns 'rest' and 'id' share character 9 of a line"),
        ({"columns": {"id": 6}, "skip_lines": -1}, "expected skip_lines as a number of lines"),
        ({"columns": {"id": 6}, "is_trimmed": 1}, "expected is_trimmed as True or False"),
        ({"columns": {"id": 6}, "decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
    ],
)
def test_invalid_fixed_width_option_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="format fixed_width: ") as refused:
        FixedWidth(**options)
    assert said in str(refused.value)


def test_widths_and_places_of_fixed_width_are_the_same_lines() -> None:
    widths, places = FixedWidth(columns={"id": 6, "name": 20}), FixedWidth(columns={"id": [1, 6], "name": (7, 20)})  # type: ignore[dict-item]
    assert widths.spans == places.spans == {"id": (0, 6), "name": (6, 26)}
    assert places.options == {"columns": {"id": (1, 6), "name": (7, 20)}}


def test_invalid_json_option_is_refused() -> None:
    for rows in ("", "a..b", 3):
        with pytest.raises(ValueError, match=r"format json: expected rows as the place of an array"):
            Json(rows=rows)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": 3}, r"expected format as Csv(...), Json(...), FixedWidth(...) or a registered format's name"),
        ({"format": Csv(times={"note": "dd.MM.yy"})}, "times names 'note', which is a string"),
        ({"format": Csv(times={"when": "dd.MM.yy"})}, "times names 'when', which is not in columns"),
        ({"format": Csv(timezone="Europe/Berlin")}, "no column is a timestamp"),
        ({"format": Csv(decimal=","), "columns": {"note": "string"}}, "no column is a number"),
        ({"format": Csv(quote=None), "multiline": True}, "multiline=True and quote=None"),
        ({"format": Csv(header=False, fields=("note", "amount"))}, "'booked_on' is in columns and not in fields"),
        ({"format": FixedWidth(columns={"note": 9})}, "'booked_on', 'amount' is in columns and not in fields"),
        (
            {"format": FixedWidth(columns=dict.fromkeys(COLUMNS, 9)), "multiline": True},
            "a line of fixed width is a row",
        ),
        ({"format": "fixed_width"}, "needs the places of values: let it say FixedWidth(...)"),
        ({"names": {"note": "text"}}, "names of 'note'"),
        ({"names": {"text": ["note"]}}, "names has 'text', which is not in columns"),
        ({"names": {"note": ["amount"]}}, "'amount' is a name of 'note' and of 'amount'"),
    ],
)
def test_format_option_that_contradicts_the_feed_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="feed bookings: ") as refused:
        Feed("bookings", "bookings/", Grain.DAY, **{"columns": COLUMNS} | options)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("YYYY-MM-dd", "'YYYY' in 'YYYY-MM-dd' is unknown"),
        ("dMyyyy", "digits of M follow d"),
        ("yyyy-MM-dd HH:mm a", "h and a belong together"),
        ("yyyy-MM-dd mm", "has a minute and no hour"),
        ("yyyy-MM-dd yy", "has the year twice"),
        ("yyyy-MM-dd[ HH:mm", "a bracket without the other one"),
        ("epoch", "'epoch' is unknown; write one of 'epoch seconds'"),
        (5, "a pattern is a text"),
    ],
)
def test_invalid_time_pattern_is_refused(pattern: object, said: str) -> None:
    assert said in pattern_fault(pattern)


def test_feed_suffixes_are_free_and_case_insensitive() -> None:
    feed = Feed("bookings", "bookings/", Grain.DAY, COLUMNS, format=Csv(), suffixes=(".TXT", ".dat.gz"))
    require_readable(feed)
    named = ("a.txt", "a.TXT", "b.DAT.GZ", "a.csv", "_a.txt")
    assert [feed.is_named_like_data(f"bookings/dt=2026-10-01/{name}") for name in named] == [True] * 3 + [False] * 2
    usual = Feed("bookings", "bookings/", Grain.DAY, COLUMNS)
    assert all(usual.is_named_like_data(f"bookings/{name}") for name in ("a.CSV", "a.Csv.Gz", "a.PARQUET", "a.json"))
    assert Feed("b", "b/", Grain.DAY, COLUMNS, format=Csv()).endings == (".csv", ".csv.gz")


def test_unknown_feed_format_is_refused() -> None:
    with pytest.raises(ValueError, match="feed bookings: format 'orcs' is not registered; there are csv, json"):
        require_readable(Feed("bookings", "bookings/", Grain.DAY, COLUMNS, format="orcs"))
