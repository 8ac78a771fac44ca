"""Finds the form of a sample's values, with evidence: missing values, numbers, dates and times.

A wrong guess would change values. So a form is proposed only if the text of each cell can be seen in its loaded value,
and no cell of a text column becomes null, in the sample or later. Otherwise the column stays as it is written, and a
line names the option that decides. Does not belong here: the form of the file (`sniffing`), types and keys
(`column_types`, `row_key`).
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.value_forms import NumberForm, ValueForm, group_mark
from dagster_tidemark.lakehouse.readers.declared_forms import time_form
from dagster_tidemark.lakehouse.readers.file_format import UntypedText
from dagster_tidemark.scaffold.column_types import is_code, type_of, words_of
from dagster_tidemark.sources.text_formats import AnyText, Csv, FixedWidth, is_number

Rows = Sequence[Mapping[str, object]]

_NULLS = (r"\N", "NULL", "null", "N/A", "n/a", "NA", "#N/A", "-", "--", "None")
_NUMBER = re.compile("[+-]?\\d[\\d.,' \u00a0\u202f\u2019]*", re.ASCII)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", re.ASCII)
"""A number whose points may separate groups of digits, or be decimal points."""
_VALUE = re.compile(r"[+-]?[\d.,]*\d[\d.,]*|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}.*")
_FORMS = ((",", "."), (",", " "), (",", None), (".", ","), (".", "'"))
"""Decimal mark and mark between groups of digits, in forms other than `1234.56`."""

_DAYS = ("dd.MM.yyyy", "dd.MM.yy", "d.M.yyyy", "yyyy/MM/dd", "dd-MMM-yyyy", "dd MMM yyyy")
_EITHER = (("dd/MM/yyyy", "MM/dd/yyyy"), ("d/M/yyyy", "M/d/yyyy"), ("dd-MM-yyyy", "MM-dd-yyyy"))
"""Pairs of patterns that both fit many values. One is proposed only if some value does not fit the other."""

_OF_DAY = (" HH:mm", " HH:mm:ss", " H:mm", " H:mm:ss", ", HH:mm", " hh:mm:ss a", " h:mm a")
_LOGS = ("dd/MMM/yyyy:HH:mm:ss Z", "EEE, dd MMM yyyy HH:mm:ss Z", "yyyyMMddHHmmss")
_LAST_SHORT_YEAR = "2068"
"""The last year that two digits mean everywhere. `69` is 2069 to a pattern, and 1969 to many other programs."""

_EPOCHS = {10: ("epoch seconds", 0), 13: ("epoch millis", 3), 16: ("epoch micros", 6)}
_FIRST_YEAR, _END_YEAR = 1990, 2100
_IS_TIME = {"time", "timestamp", "datetime", "ts", "epoch", "date", "dt", "at", "created", "updated", "datum"}
_MAY_BE_TIME = _IS_TIME | {"day", "start", "end"}
"""Words of names of times. The last three also name places, and numbers of a range."""

_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "epoch seconds"),
    **dict.fromkeys(("ms", "milli", "millis", "milliseconds"), "epoch millis"),
    **dict.fromkeys(("us", "micro", "micros", "microseconds"), "epoch micros"),
    **dict.fromkeys(("ns", "nano", "nanos", "nanoseconds"), "epoch nanos"),
}
_SUFFIXES = {"utc", "gmt", "unix"}
_NO_TIME = {
    *("by", "user", "customer", "client", "account", "count", "counter", "amount", "sum", "total", "price", "size"),
    *("id", "ids", "uuid", "guid", "key", "code", "no", "nr", "number", "num", "ref", "version", "serial", "index"),
    *("duration", "elapsed", "cpu", "run", "wait", "response", "processing", "latency", "uptime", "offset"),
}
"""Words of names of numbers: ids, amounts and durations, also if a word such as `created` or `time` is beside them."""


def values_found(
    format: AnyText, rows: Rows, names: Sequence[str], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return options for missing values, and numbers and times not as `1234.56` and ISO 8601, and the evidence.

    A text such as `NA` means a missing value only in columns of numbers and times: it may be a country in another one.

    Args:
        format: The options known so far.
        given: The user's options, which are not inferred.
    """
    columns = {name: [str(row[name]) for row in rows if row.get(name) not in (None, "")] for name in names}
    marks = _marks(format, columns) if given.keys().isdisjoint(("nulls", "typed_nulls")) else {}
    others = {
        name: [v for v in values if v not in (*format.nulls, *format.typed_nulls, *marks.get(name, ()))]
        for name, values in columns.items()
    }
    found, evidence = _forms(format, others, given)
    declared = replace(format, **found, typed_nulls=(*format.typed_nulls, *dict.fromkeys(chain(*marks.values()))))
    typed = [name for name in marks if not is_text(declared, rows, name, given)]
    kept: dict[str, str] = {}  # each mark, and the first column that has it
    for name in typed:
        kept = dict.fromkeys(marks[name], name) | kept
    about = [f"typed_nulls {mark!r}: it stands among the numbers or times of {name}" for mark, name in kept.items()]
    return found | ({"typed_nulls": tuple(kept)} if kept else {}), [*about, *evidence]


def in_plain_form(
    format: AnyText | None, rows: list[dict[str, object]], names: Sequence[str], given: Mapping[str, Any]
) -> tuple[list[dict[str, object]], dict[str, str]]:
    """Return rows with texts that Spark can cast, and the types of the columns with a declared form of times.

    Numbers that a load would reject, or that may be others, become texts.
    """
    if format is None:
        return rows, {}
    kinds: dict[str, str] = {}
    for name in names:
        texts = pa.array([None if (v := row.get(name)) is None else str(v) for row in rows], pa.string())
        form: ValueForm
        if name in format.times:
            pattern = format.times[name]
            patterns = [pattern] if isinstance(pattern, str) else pattern
            is_day = not any(each.startswith("epoch") or set("Hh").intersection(each) for each in patterns)
            kinds[name] = "date" if is_day else "timestamp"
            form = time_form(pattern, kinds[name])
        elif isinstance(format, Csv | FixedWidth) and format.is_number_written and not is_code(name):
            form = NumberForm(format.decimal, format.thousands, has_places=True)
        elif _is_open(format, given) and _is_ambiguous(texts.drop_null().to_pylist()):
            _make_texts(rows, name)
            continue
        else:
            continue
        plain = form.plain(texts)
        if plain.null_count == texts.null_count:
            for row, value in zip(rows, plain.to_pylist(), strict=True):
                if value is not None:
                    row[name] = UntypedText(value)
        elif name not in format.times and is_number(type_of(name, [row.get(name) for row in rows])):
            _make_texts(rows, name)
    return rows, kinds


def _is_open(format: AnyText, given: Mapping[str, Any]) -> bool:
    """Return True if points may separate groups of digits: semicolons are usual where commas are decimal marks."""
    is_known = format.is_number_written or not given.keys().isdisjoint(("decimal", "thousands"))
    return isinstance(format, Csv) and format.separator == ";" and not is_known


def _make_texts(rows: list[dict[str, object]], name: str) -> None:
    for row in rows:
        row[name] = None if (value := row.get(name)) is None else str(value)


def _marks(format: AnyText, columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the texts that may mean a missing value, such as `n/a`, in columns whose other values may be numbers or
    times."""
    found = {}
    for name, values in columns.items():
        marks = [mark for mark in _NULLS if mark in values and mark not in format.nulls]
        others = [value for value in values if value not in marks and value not in format.nulls]
        if marks and others and all(_VALUE.fullmatch(value) for value in others):
            found[name] = marks
    return found


def is_text(format: AnyText, rows: Rows, name: str, given: Mapping[str, Any]) -> bool:
    """Return True if a column becomes a column of texts, also with the texts for missing values of other columns."""
    if name in given.get("times", ()):
        return False
    nulls = ("", *format.nulls, *format.typed_nulls)
    values = [{name: None if (v := row.get(name)) in nulls else v} for row in rows]
    plain, times = in_plain_form(format, values, [name], given)
    return name not in times and type_of(name, [row[name] for row in plain]) == "string"


def _forms(
    format: AnyText, columns: Mapping[str, Sequence[str]], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the options and evidence for numbers and times.

    Args:
        columns: The texts of each column, without the missing ones.
    """
    options: dict[str, Any] = {}
    evidence: list[str] = []
    columns = {name: values for name, values in columns.items() if name not in given.get("times", ())}
    if isinstance(format, Csv | FixedWidth) and given.keys().isdisjoint(("decimal", "thousands")):
        options, evidence = _numbers(columns)
        if not options and _is_open(format, given):
            evidence = _doubts({name: values for name, values in columns.items() if not is_code(name)})
    times: dict[str, str] = {}
    for name, values in columns.items():
        pattern, doubt = _pattern(name, values)
        if doubt:
            evidence.append(doubt)
        elif pattern:
            times[name] = pattern
            century = "" if "yy" not in pattern or "yyyy" in pattern else "; its years are 2000 to 2099"
            evidence.append(f"times of {name}: {pattern}, as {values[0]!r}{century}")
    return options | ({"times": times} if times else {}), evidence


def _numbers(columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], list[str]]:
    """Return the marks of numbers. They hold for every column of numbers, so each of these must have this form."""
    columns = {name: values for name, values in columns.items() if values and not is_code(name)}
    for decimal, thousands in _FORMS:
        form = NumberForm(decimal, thousands, has_places=True)
        texts = {
            name: values
            for name, values in columns.items()
            if all(_NUMBER.fullmatch(v) for v in values) and not form.plain(pa.array(values)).null_count
        }
        grouped = [
            n for n, vs in texts.items() if thousands and any(re.search(rf"\d{group_mark(thousands)}\d", v) for v in vs)
        ]
        decimals = (
            [name for name, values in texts.items() if any("," in v for v in values)] if decimal == "," else grouped
        )
        # A mark before exactly three digits proves nothing: it may separate groups of digits.
        alone = r",\d{1,2}$|,\d{4,}$|\..*," if decimal == "," else r",\d{3}[.,]|['\u2019]\d{3}"
        sure = [n for n in decimals if any(re.search(alone, v) for v in columns[n])]
        if not sure or (thousands and not grouped) or _has_plain_numbers(columns, form):
            continue
        mark = "," if decimal == "," else group_mark(thousands or "")
        shown = next(v for v in columns[sure[0]] if re.search(mark, v))
        options = {"decimal": decimal} if decimal == "," else {}
        of_groups = {"thousands": thousands} if thousands else {}
        said = ", ".join(f"{name} {mark!r}" for name, mark in (options | of_groups).items())
        others = {name: values for name, values in columns.items() if decimal == "," and name not in texts}
        doubts = _doubts(others)
        return options | of_groups, [f"{said}: {sure[0]} holds {shown!r}", *doubts]
    return {}, []


def _has_plain_numbers(columns: Mapping[str, Sequence[str]], form: NumberForm) -> bool:
    """Return True if a column holds numbers such as `1.5` and `1e5`, which a load by this form would reject.

    Beside decimal commas, `1.234` is no sure number: it becomes a text.
    """
    for name, values in columns.items():
        if form.decimal == "," and _is_ambiguous(values):
            continue
        if form.plain(pa.array(values)).null_count and is_number(type_of(name, [*map(UntypedText, values)])):
            return True
    return False


def _is_ambiguous(values: Sequence[str]) -> bool:
    """Return True if numbers have points that may separate groups of digits, such as `1.234`."""
    return any("." in v for v in values) and all(_GROUPED.fullmatch(v) or v.lstrip("+-").isdigit() for v in values)


def _doubts(columns: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"{name} stays text: {next(v for v in values if '.' in v)!r} has a group of digits or decimal places; for "
        "decimal places give --decimal ."
        for name, values in columns.items()
        if _is_ambiguous(values)
    ]


def _pattern(name: str, values: Sequence[str]) -> tuple[str | None, str]:
    """Return the pattern of times that all values of a column fit, or None; and the doubt about a likely pattern."""
    if not values:
        return None, ""
    texts = pa.array(values, pa.string())
    if all(value.isascii() and value.isdigit() for value in values):
        pattern, is_sure = _pattern_of_digits(name, values, texts)
        if not pattern or is_sure:
            return pattern, ""
        return None, (
            f"{name} stays as it is written: {values[0]} is {_read(pattern, values[0])} by {pattern!r}, but the name "
            f"or another value does not confirm times; if it holds times, give --time {_option(name, pattern)}"
        )
    if is_code(name) or not any(mark in values[0] for mark in "./- ") or not values[0][-1:].isalnum():
        return None, ""
    for day in _DAYS:
        for pattern in (day, *(day + time for time in _OF_DAY)):
            if _fits(pattern, texts):
                return _with_known_century(name, pattern, values, texts)
    for either in _either(texts):
        if len(either) == 1:
            return either[0], ""
        if re.match(r"\d{1,2}[/-]\d{1,2}[/-]\d{4}", values[0]):
            return None, (f"{name} stays text: {' and '.join(either)} both fit {values[0]!r}; give --time {name}=FORM")
    return next((pattern for pattern in _LOGS if _fits(pattern, texts)), None), ""


def _pattern_of_digits(name: str, values: Sequence[str], texts: pa.StringArray) -> tuple[str | None, bool]:
    """Return the pattern of times without marks, or None; and False if a number is as likely.

    Any number of ten digits that begins with 1 is a time in epoch seconds. So an epoch needs a name that says so, and
    likely years.
    """
    words = words_of(name)
    lengths = {len(value) for value in values}
    if len(lengths) > 1 or _MAY_BE_TIME.isdisjoint(words):
        return None, False
    (length,) = lengths
    if length == 8 and _fits("yyyyMMdd", texts) and all("1900" <= value[:4] <= "2100" for value in values):
        return "yyyyMMdd", words[-1] in _MAY_BE_TIME
    if length == 14 and _fits("yyyyMMddHHmmss", texts):
        return "yyyyMMddHHmmss", words[-1] in _MAY_BE_TIME
    if length not in _EPOCHS:
        return None, False
    pattern, places = _EPOCHS[length]
    while words and words[-1] in _SUFFIXES:
        words.pop()
    unit = _UNITS[words.pop()] if len(words) > 1 and words[-1] in _UNITS else pattern
    is_named = unit == pattern and words[-1:] and words[-1] in _IS_TIME and _NO_TIME.isdisjoint(words)
    begin, end = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (_FIRST_YEAR, _END_YEAR))
    is_likely = [begin <= int(value) / 10**places < end for value in values]
    if not is_named and not all(is_likely):
        return None, False
    return pattern, bool(is_named) and all(is_likely)


def _with_known_century(
    name: str, pattern: str, values: Sequence[str], texts: pa.StringArray
) -> tuple[str | None, str]:
    """Return a pattern, or None and the doubt if the century of a year with two digits is uncertain."""
    if "yyyy" in pattern:
        return pattern, ""
    read = time_form(pattern, "date").plain(texts).to_pylist()
    late = next((n for n, day in enumerate(read) if str(day)[:4] > _LAST_SHORT_YEAR), None)
    if late is None:
        return pattern, ""
    return None, (
        f"{name} stays text: {values[late]!r} is {str(read[late])[:10]} by {pattern!r}; if that is right, give "
        f"--time {_option(name, pattern)}"
    )


def _read(pattern: str, value: str) -> str:
    """Return the day that a text means by a pattern."""
    return str(time_form(pattern, "date").plain(pa.array([value])).to_pylist()[0])[:10]


def _option(name: str, pattern: str) -> str:
    return shlex.quote(f"{name}={pattern}")


def _fits(pattern: str, texts: pa.StringArray) -> bool:
    return not time_form(pattern, "timestamp").plain(texts).null_count


def _either(texts: pa.StringArray) -> Iterator[list[str]]:
    for pair in _EITHER:
        for time in ("", *_OF_DAY):
            if found := [day + time for day in pair if _fits(day + time, texts)]:
                yield found
