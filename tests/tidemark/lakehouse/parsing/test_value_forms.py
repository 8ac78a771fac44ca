"""Numbers and times in a declared form, against Python's decimal and datetime."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagster_tidemark.lakehouse.parsing.value_forms import NumberForm, without_nulls
from dagster_tidemark.lakehouse.readers.declared_forms import forms_of, time_form
from dagster_tidemark.sources.text_formats import Csv, Json
from dagster_tidemark.sources.zone_table import zone_table

GERMAN = NumberForm(",", ".", has_places=True)


def plain(form: object, *texts: str | None) -> list[str | None]:
    found: list[str | None] = form.plain(pa.array(texts, pa.string())).to_pylist()  # type: ignore[attr-defined]
    return found


def german(number: Decimal, *, grouped: bool) -> str:
    """Write a number as a German bank does."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rjust(1 - exponent, "0")
    whole, places = (text[:exponent], text[exponent:]) if exponent else (text, "")
    if grouped:
        whole = f"{int(whole):,}".replace(",", ".")
    return ("-" if sign else "") + whole + ("," + places if places else "")


@given(
    number=st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=2),
    grouped=st.booleans(),
)
def test_formatted_number_is_parsed_to_the_same_number(number: Decimal, grouped: bool) -> None:
    (found,) = plain(GERMAN, german(number, grouped=grouped))
    assert found is not None and Decimal(found) == number


def test_number_in_groups_does_not_begin_with_a_zero() -> None:
    for decimal, group in ((".", ","), (",", "."), (".", "'"), (".", " "), (".", "_")):
        for has_places in (True, False):
            form = NumberForm(decimal, group, has_places=has_places)
            wrong = [f"0{group}500", f"-0{group}250", f"01{group}234", f"00{group}123{group}456"]
            assert plain(form, *wrong, f"12{group}345{group}678") == [None] * 4 + ["12345678"]


@given(text=st.text("0123456789.,-+ eE", max_size=12))
@example(text="2.647")
@example(text="-5,00")
@example(text="12.34,5")
def test_only_well_grouped_number_text_is_parsed(text: str) -> None:
    (found,) = plain(GERMAN, text)
    if found is None:
        return
    read = text.strip()
    body = read.lstrip("+-")
    whole, _, rest = body.partition(",")
    groups = whole.split(".")
    assert len(groups) == 1 or (1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:]))
    assert len(groups) != 2 or "," in body, "one group could be a point before three places"
    assert Decimal(found) == Decimal(read[: len(read) - len(body)] + "".join(groups) + ("." + rest if rest else ""))


@pytest.mark.parametrize(
    ("form", "text", "number"),
    [
        (GERMAN, "1.234.567", "1234567"),
        (NumberForm(",", ".", has_places=False), "2.647", "2647"),
        (NumberForm(",", None, has_places=True), "2.647", None),
        (NumberForm(".", ",", has_places=True), "-5,00", None),
        (NumberForm(".", ",", has_places=True), "1,234.5", "1234.5"),
        (NumberForm(",", " ", has_places=True), "1\u202f234,5", "1234.5"),
        (NumberForm(".", "'", has_places=True), "1'234.50", "1234.50"),
        (GERMAN, "NaN", "NaN"),
        (GERMAN, "five", None),
        (GERMAN, None, None),
    ],
)
def test_number_text_is_parsed_by_its_declared_separators(
    form: NumberForm, text: str | None, number: str | None
) -> None:
    assert plain(form, text) == [number]


@given(at=st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31)))
def test_formatted_time_is_parsed_to_the_same_instant(at: datetime) -> None:
    at = at.replace(microsecond=0)
    for pattern, form in (
        ("dd.MM.yy HH:mm:ss", "%d.%m.%y %H:%M:%S"),
        ("yyyyMMddHHmmss", "%Y%m%d%H%M%S"),
        ("dd/MMM/yyyy:HH:mm:ss", "%d/%b/%Y:%H:%M:%S"),
        ("MM/dd/yyyy hh:mm:ss a", "%m/%d/%Y %I:%M:%S %p"),
        ("EEE, dd MMM yyyy HH:mm:ss", "%a, %d %b %Y %H:%M:%S"),
    ):
        (found,) = plain(time_form(pattern, "timestamp"), at.strftime(form))
        assert found is not None and datetime.fromisoformat(found) == at.replace(tzinfo=UTC), pattern
    loose = f"{at.month}/{at.day}/{at.year} {at.hour}:{at:%M}"
    (found,) = plain(time_form("M/d/yyyy H:mm", "timestamp"), loose)
    assert found is not None and datetime.fromisoformat(found) == at.replace(second=0, tzinfo=UTC)
    for form, per_second in (("epoch seconds", 1), ("epoch millis", 1000), ("epoch micros", 10**6)):
        (found,) = plain(time_form(form, "timestamp"), str(int(at.replace(tzinfo=UTC).timestamp()) * per_second))
        assert found is not None and datetime.fromisoformat(found) == at.replace(tzinfo=UTC), form


@given(day=st.dates(date(1, 1, 1), date(9999, 12, 31)))
def test_formatted_date_is_parsed_to_the_same_date(day: date) -> None:
    text = f"{day.day:02}.{day.month:02}.{day.year:04}"
    assert plain(time_form("dd.MM.yyyy", "date"), text) == [day.isoformat()]


@pytest.mark.parametrize(
    ("pattern", "kind", "text", "found"),
    [
        ("dd.MM.yy", "date", "08.12.25", "2025-12-08"),
        ("dd.MM.yyyy", "date", "08.12.25", None),
        ("dd.MM.yyyy", "date", "30.02.2025", None),
        ("dd.MM.yyyy", "date", "29.02.2000", "2000-02-29"),
        ("dd.MM.yyyy", "date", "2025-12-08", None),
        ("M/d/yyyy", "date", "13/2/2016", None),
        ("dd.MM.yyyy HH:mm", "date", "08.12.2025 13:00", "2025-12-08 13:00:00.000000"),
        ("dd/MMM/yyyy:HH:mm:ss Z", "timestamp", "10/Oct/2000:13:55:36 -0700", "2000-10-10 20:55:36.000000Z"),
        ("yyyy-MM-dd[ HH:mm]", "timestamp", "2025-12-08", "2025-12-08 00:00:00.000000Z"),
        ("yyyy-MM-dd HH:mm:ss.S", "timestamp", "2026-01-01 00:00:00.1234567", "2026-01-01 00:00:00.1234567Z"),
        ("epoch seconds", "timestamp", "1664582400000", None),
        ("epoch seconds", "timestamp", "-1.5", "1969-12-31 23:59:58.500000Z"),
        ("epoch seconds", "timestamp", "1e9", None),
        ("epoch nanos", "timestamp", "1664582400123456789", "2022-10-01 00:00:00.123456789Z"),
        ("epoch millis", "date", "1664582400000", "2022-10-01"),
    ],
)
def test_time_text_is_parsed_by_its_declared_pattern(pattern: str, kind: str, text: str, found: str | None) -> None:
    assert plain(time_form(pattern, kind), text) == [found]


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Casablanca"])
@given(local=st.datetimes(datetime(1950, 1, 1), datetime(2090, 1, 1)))
@example(local=datetime(2026, 10, 25, 2, 30))
@example(local=datetime(2026, 3, 29, 2, 30))
def test_ambiguous_local_time_is_parsed_as_the_first_instant(name: str, local: datetime) -> None:
    zone = ZoneInfo(name)
    (found,) = plain(time_form(None, "timestamp", zone_table(name)), local.isoformat())
    instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    exists = instant.astimezone(zone).replace(tzinfo=None) == local
    assert (found is not None) is exists
    if found is not None:
        assert datetime.fromisoformat(found) == instant


def test_time_with_an_offset_ignores_the_declared_time_zone() -> None:
    berlin = zone_table("Europe/Berlin")
    assert plain(time_form(None, "timestamp", berlin), "2026-03-29T02:30:00+05:00") == ["2026-03-28 21:30:00.000000Z"]
    assert plain(time_form(None, "timestamp", berlin), "2026-07-01") == ["2026-06-30 22:00:00.000000Z"]


def test_time_zone_table_contains_each_offset_change() -> None:
    table, zone = zone_table("Europe/Berlin"), ZoneInfo("Europe/Berlin")
    for begin, offset in zip(table.begins[1:], table.offsets[1:], strict=True):
        at = datetime.fromtimestamp(begin, UTC)
        assert at.astimezone(zone).utcoffset() == timedelta(seconds=offset)
        assert (at - timedelta(seconds=1)).astimezone(zone).utcoffset() != timedelta(seconds=offset)


def test_only_columns_with_a_declared_format_get_a_format_parser() -> None:
    columns = {"a": "bigint", "b": "decimal(8,2)", "c": "date", "d": "timestamp", "e": "string", "f": "boolean"}
    assert forms_of(columns, None) == {} and forms_of(columns, Csv(separator=";")) == {}
    assert list(forms_of(columns, Csv(decimal=",", times={"c": "dd.MM.yy"}))) == ["a", "b", "c"]
    assert list(forms_of(columns, Json(timezone="Europe/Berlin"))) == ["d"]


def test_null_markers_are_matched_exactly() -> None:
    texts = pa.array(["-", "--", " -", r"\N", None, "x"], pa.string())
    assert without_nulls(texts, "string", ("-", r"\N")).to_pylist() == [None, "--", " -", None, None, "x"]
    # In a column of numbers, `  -999` would be the number -999.
    assert without_nulls(texts, "bigint", ("-", r"\N")).to_pylist() == [None, "--", None, None, None, "x"]


def test_column_with_several_time_patterns_accepts_only_consistent_values() -> None:
    form = time_form(("dd/MM/yyyy", "MM/dd/yyyy", "yyyy-MM-dd"), "date")
    texts = "13/02/2020", "02/13/2020", "2020-02-13", "02/02/2020", "01/02/2020", "x"
    assert plain(form, *texts) == [*["2020-02-13"] * 3, "2020-02-02", None, None]
