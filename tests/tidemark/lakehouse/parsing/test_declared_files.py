"""Files as people have them, read by declared forms: the rows are those that were written, or refused by name.

The files are written by Python's own csv and json, and by hand. Both sizes are read by the same function; the tests of
`tests/tidemark/lakehouse/test_declared_loads.py` show it on Spark.
"""

import csv
import gzip
import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagster_tidemark.lakehouse.parsing.part_of_file import PartReport
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.batch import unrecognized
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.json_text import JSON
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.text_formats import Csv, Json
from tests.tidemark.lakehouse.parsing.declared import good_rows_of, rows_of

BANK = """Umsatzanzeige;Datei erstellt am: 01.12.2025

IBAN;DE12 3456
"Buchung";"Wertstellung";"Betrag";"Text"
08.12.25;08.12.2025;-5,00;"Miete; Dezember"
09.12.25;10.12.2025;2.647,00;-
"""
BANK_COLUMNS = {"Buchung": "date", "Wertstellung": "date", "Betrag": "decimal(18,2)", "Text": "string"}
BANK_FORM: dict[str, Any] = {
    "separator": ";",
    "header": "Buchung",
    "decimal": ",",
    "thousands": ".",
    "times": {"Buchung": "dd.MM.yy", "Wertstellung": "dd.MM.yyyy"},
    "nulls": ("-",),
}
BANK_ROWS = [
    (date(2025, 12, 8), date(2025, 12, 8), Decimal("-5.00"), "Miete; Dezember"),
    (date(2025, 12, 9), date(2025, 12, 10), Decimal("2647.00"), None),
]
IDS = {"id": "bigint", "name": "string"}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_bank_export_csv_is_parsed_with_its_declared_format(encoding: str) -> None:
    body = BANK.encode(encoding)
    assert good_rows_of(body, BANK_COLUMNS, format=Csv(**BANK_FORM), encoding=encoding) == BANK_ROWS
    packed = gzip.compress(body)
    assert good_rows_of(packed, BANK_COLUMNS, key="f.CSV.GZ", format=Csv(**BANK_FORM), encoding=encoding) == BANK_ROWS
    by_lines = {name: option for name, option in BANK_FORM.items() if name != "header"} | {"skip_lines": 3}
    assert good_rows_of(body, BANK_COLUMNS, format=Csv(**by_lines), encoding=encoding) == BANK_ROWS


def test_values_not_in_the_declared_format_are_parsed_as_null() -> None:
    lines = "8.12.25;08.12.2025;1,00;a\n08.12.25;31.11.2025;2.647;b\n08.12.25;08.12.2025;1.5;c\n"
    body = (BANK.partition("08.12.25")[0] + lines).encode()
    found = rows_of(body, BANK_COLUMNS, format=Csv(**BANK_FORM))
    eighth = date(2025, 12, 8)
    assert [row[:4] for row in found] == [
        (None, eighth, Decimal("1.00"), "a"),
        (eighth, None, None, "b"),
        (eighth, eighth, None, "c"),
    ]
    # The texts of the columns, and then those that casts read.
    assert found[1][5] == ["08.12.25", "31.11.2025", "2.647", "b", "2025-12-08", None, None]


KINDS: dict[str, tuple[str, dict[str, str], Csv, list[tuple[Any, ...]]]] = {
    "no header": ("1|a\n2|b\n\n3|\n", IDS, Csv(separator="|", header=False), [(1, "a"), (2, "b"), (3, None)]),
    "no header, more fields": (
        "x|1|a\ny|2|b\n",
        IDS,
        Csv(separator="|", header=False, fields=("more", "id", "name")),
        [(1, "a"), (2, "b")],
    ),
    "trailing separators": (
        "1|a|\n2||\n",
        IDS,
        Csv(separator="|", header=False, trailing_separator=True),
        [(1, "a"), (2, None)],
    ),
    "a header with a trailing separator": (
        "id;name;\n1;a;\n",
        IDS,
        Csv(separator=";", trailing_separator=True),
        [(1, "a")],
    ),
    "tabs and \\N": (
        'id\tname\n1\t\\N\n2\t"x\n3\ta"b\n\\N\t \n',
        IDS,
        Csv(separator="\t", quote=None, nulls=(r"\N",)),
        [(1, None), (2, '"x'), (3, 'a"b'), (None, " ")],
    ),
    "a row of tabs is no blank line": (
        "a\tb\tid\n\t\t1\n\t\t\n",
        {"id": "bigint"},
        Csv(separator="\t"),
        [(1,), (None,)],
    ),
    "comments": ("# by the till\nid,name\n# noon\n1,#a\n", IDS, Csv(comment="#"), [(1, "#a")]),
    "escapes": ('id,name\n1,"b\\"c,d"\n2,e\\,f\n', IDS, Csv(escape="\\"), [(1, 'b"c,d'), (2, "e,f")]),
    "escapes and \\N": (
        "1\t\\N\n2\ta\\\tb\n",
        IDS,
        Csv(separator="\t", header=False, quote=None, escape="\\", nulls=(r"\N",)),
        [(1, None), (2, "a\tb")],
    ),
    "single quotes": ("id,name\n1,'a,b'\n2,\"c\"\n", IDS, Csv(quote="'"), [(1, "a,b"), (2, '"c"')]),
    "lines for Excel": ("sep=;\nid;name\n1;a\n", IDS, Csv(separator=";", skip_lines=1), [(1, "a")]),
    "spaces, as in access logs": (
        '1.2.3.4 [02/Jan/2026:13:00:00 +0100] "GET / HTTP/1.1"\n',
        {"at": "timestamp", "request": "string"},
        Csv(
            separator=" ", header=False, fields=("ip", "at", "zone", "request"), times={"at": "'['dd/MMM/yyyy:HH:mm:ss"}
        ),
        [(datetime(2026, 1, 2, 13, tzinfo=UTC), "GET / HTTP/1.1")],
    ),
    "times of a zone": (
        "id,at\n1,2026-01-02T13:00:00\n2,2026-01-02T12:00:00Z\n",
        {"id": "bigint", "at": "timestamp"},
        Csv(timezone="Europe/Berlin"),
        [(1, NOON), (2, NOON)],
    ),
    "epochs": (
        "s,ms,us\n1767355200,1767355200000,1767355200000000\n",
        dict.fromkeys(("s", "ms", "us"), "timestamp"),
        Csv(times={"s": "epoch seconds", "ms": "epoch millis", "us": "epoch micros"}),
        [(NOON, NOON, NOON)],
    ),
    "thousands in English": (
        'id,amount\n1,"1,234.50"\n2,7\n',
        {"id": "bigint", "amount": "decimal(18,2)"},
        Csv(thousands=","),
        [(1, Decimal("1234.50")), (2, Decimal("7.00"))],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_declared_csv_or_json_format_is_parsed(kind: str) -> None:
    text, columns, form, rows = KINDS[kind]
    assert good_rows_of(text.encode(), columns, format=form) == rows
    assert good_rows_of(text.replace("\n", "\r\n").encode("utf-16"), columns, format=form, encoding="utf-16") == rows


TEXT = st.text(st.sampled_from("ab1;,|\t\"' \\\r\né"), max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=8),
    separator=st.sampled_from(";,|\t"),
    quote=st.sampled_from("\"'"),
    end=st.sampled_from(["\n", "\r\n"]),
)
@example(rows=[("a\r\nb", "", "c\r"), ("", "", "")], separator=";", quote='"', end="\r\n")
def test_csv_written_by_python_is_parsed_to_the_same_rows(
    rows: list[tuple[str, ...]], separator: str, quote: str, end: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quotechar=quote, quoting=csv.QUOTE_ALL, lineterminator=end)
    writer.writerows([("a", "b", "c"), *rows])
    columns = dict.fromkeys("abc", "string")
    form = Csv(separator=separator, quote=quote)
    found = rows_of(text.getvalue().encode(), columns, format=form, multiline=True)
    assert [row[:4] for row in found] == [(*(value or None for value in row), None) for row in rows]


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.text(st.sampled_from('ab;"\\ é'), max_size=6)] * 2), max_size=8),
    separator=st.sampled_from(";|\t"),
)
def test_csv_with_python_escape_characters_is_parsed_to_the_same_rows(
    rows: list[tuple[str, ...]], separator: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(
        text, delimiter=separator, quoting=csv.QUOTE_ALL, doublequote=False, escapechar="\\", lineterminator="\n"
    )
    writer.writerows([("a", "b"), *rows])
    columns = dict.fromkeys("ab", "string")
    found = rows_of(text.getvalue().encode(), columns, format=Csv(separator=separator, escape="\\"))
    assert [row[:3] for row in found] == [(*(value or None for value in row), None) for row in rows]


def test_line_that_continues_a_quoted_value_is_rejected_without_multiline() -> None:
    body = b'a,b,c\n1,x,"first\nsecond, with, commas"\n2,x,y\n3,"p\nm,m,m\nq",5,6\n4,"x",z\n5,6" pipe,z\n'
    columns = dict.fromkeys("abc", "string")
    good = [("2", "x", "y"), ("4", "x", "z"), ("5", '6" pipe', "z")]
    for about in (None, 1, 10, 40):
        found = rows_of(body, columns, about=about)
        assert [row[:3] for row in found if row[3] is None] == good
    assert [row[3].partition(":")[0] for row in rows_of(body, columns) if row[3]] == [
        "unterminated quote",
        "the line continues a value of an earlier line, whose quote is open; let the feed say multiline=True",
        "unterminated quote",
        *["the line continues a value of an earlier line, whose quote is open; let the feed say multiline=True"] * 2,
    ]


def test_unclosed_csv_quote_rejects_only_its_own_line() -> None:
    body = b'a,b\n1,"5 inches\n' + b"2,x\n" * 50 + b'3,"y"\n'
    found = rows_of(body, {"a": "bigint", "b": "string"})
    assert [row[0] for row in found if row[2] is None] == [2] * 50 + [3]


@pytest.mark.parametrize(
    ("body", "options", "said"),
    [
        (BANK, {}, "its header has 1 ';' and no ','"),
        (BANK.partition("\n\n")[2], {}, "let the feed say format=Csv(separator=';')"),
        (BANK, {"format": Csv(**BANK_FORM | {"header": "Valuta"})}, "begins with 'Valuta', as the feed's header does"),
        (BANK, {"format": Csv(separator=";", skip_lines=30)}, "lines, and the feed says skip_lines=30"),
        (
            "Buchung,Booked\n1,2\n",
            {"names": {"Buchung": ["Booked"]}},
            "'Buchung' and 'Booked', which are both names of",
        ),
    ],
)
def test_file_not_in_the_declared_format_is_refused_with_a_remedy(
    body: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Unusable) as refused:
        rows_of(body.encode(), BANK_COLUMNS, **options)
    assert said in str(refused.value)


def test_rejected_csv_line_reports_its_number_of_values() -> None:
    (row,) = rows_of(b"id,name\n1,2,3\n", IDS)
    assert (
        row[2] == "the line is no row of this file: it has 3 values, the header 2; a value with ',' in it needs quotes"
    )
    (row,) = rows_of(b"id,name\n1\n", IDS)
    assert row[2] == "the line is no row of this file: it has 1 value, the header 2"
    (row,) = rows_of(b"1|2\n", IDS, format=Csv(separator="|", header=False, trailing_separator=True))
    assert row[2].endswith("it has 2 values; expected 2 and a separator after the last one")


def test_renamed_columns_are_read_under_each_of_their_declared_names() -> None:
    columns, names = {"started_at": "timestamp", "id": "bigint"}, {"started_at": ["starttime", "Start Time"]}
    for name in ("started_at", "starttime", "Start Time"):
        found = good_rows_of(f"id,{name}\n1,2026-01-02 12:00:00\n".encode(), columns, names=names)
        assert found == [(NOON, 1)]
        line = json.dumps({"id": 1, name: "2026-01-02T12:00:00Z"})
        assert good_rows_of(line.encode(), columns, names=names, key="f.jsonl") == [(NOON, 1)]
    (row,) = rows_of(b'{"id": 1, "starttime": "a", "started_at": "b"}', columns, names=names, key="f.jsonl")
    assert "under 'started_at' and 'starttime'" in row[2]


TRAIL = {"Records": [{"eventID": "a", "n": 1.5, "user": {"name": "x", "tags": [1, 2]}}, {"eventID": "b"}], "more": None}
OF_TRAIL = {"eventID": "string", "n": "double", "user": "string"}


@pytest.mark.parametrize("indent", [None, 2])
def test_json_rows_are_read_from_the_declared_array(indent: int | None) -> None:
    body = json.dumps(TRAIL, indent=indent)
    columns, names = (
        {"eventID": "string", "user_name": "string", "tags": "string"},
        {
            "user_name": ["user.name"],
            "tags": ["user.tags"],
        },
    )
    tags = json.dumps([1, 2], indent=indent)
    for text in (body, f"[{body}]"):
        found = rows_of(text.encode(), columns, names=names, format=Json(rows="Records"), key="f.json")
        assert [row[:2] for row in found] == [("a", "x"), ("b", None)]
        assert [row[2] and json.loads(row[2]) for row in found] == [json.loads(tags), None]
    several = rows_of(f"{body}\n{body}{body}".encode(), columns, names=names, format=Json(rows="Records"), key="f.json")
    assert [row[0] for row in several] == ["a", "b"] * 3
    deep = json.dumps({"data": TRAIL})
    assert len(rows_of(deep.encode(), columns, names=names, format=Json(rows="data.Records"), key="f.json")) == 2


def test_one_json_line_with_45000_rows_is_parsed() -> None:
    records = [{"eventID": f"e{n}", "pad": "x" * 90} for n in range(45_000)]
    body = json.dumps({"Records": records}).encode()
    assert len(body) > 5_000_000
    found = rows_of(body, {"eventID": "string"}, format=Json(rows="Records"), key="f.json")
    assert [row[0] for row in found] == [record["eventID"] for record in records]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"Other": []}', "it has no member 'Records'; it has 'Other'"),
        ('{"Records": {}}', "its member 'Records' is no array"),
        ('{"Records": [{"eventID": "a"}', "unterminated JSON"),
        ('{"Records": [{"eventID": "a"} {"eventID": "b"}]}', "the line is no row of this file"),
    ],
)
def test_json_object_without_the_declared_array_is_rejected(body: str, said: str) -> None:
    (row,) = rows_of(body.encode(), OF_TRAIL, format=Json(rows="Records"), key="f.json")
    assert said in row[3]


def test_empty_or_null_json_array_gives_no_rows() -> None:
    for body in (b'{"Records": []}', b'{"Records": null}'):
        assert rows_of(body, OF_TRAIL, format=Json(rows="Records"), key="f.json") == []


def test_json_times_and_null_markers_are_parsed_as_declared() -> None:
    body = b'{"at": 1767355200000, "day": "02.01.26"}\n{"at": null, "day": "-"}\n'
    form = Json(times={"at": "epoch millis", "day": "dd.MM.yy"}, nulls=("-",))
    columns = {"at": "timestamp", "day": "date"}
    assert good_rows_of(body, columns, format=form, key="f.JSONL") == [(NOON, date(2026, 1, 2)), (None, None)]


def test_json_file_with_rows_in_an_undeclared_array_is_refused_with_path() -> None:
    body = json.dumps({"version": 1, "data": {"items": [{"eventID": "a", "pad": "x" * 99}] * 45_000}}).encode()
    feed = Feed("feed", "feed/", Grain.DAY, OF_TRAIL)
    shape = JSON.shape(feed, MemoryFile("f.json", body))
    report = PartReport(0, rows=1, sound_rows=1, others=["version", "data"])
    refused = unrecognized(feed, [report], shape)
    assert refused is not None and "let the feed say format=Json(rows='data.items')" in str(refused)


def test_csv_fields_the_feed_does_not_declare_are_not_new_columns() -> None:
    form = Csv(separator="|", header=False, fields=("more", "id", "name"))
    assert good_rows_of(b"x|1|a\n", IDS, format=form, new_columns="fail") == [(1, "a")]


def test_nested_parquet_values_beyond_python_types_are_written_as_text() -> None:
    far = pa.array([253_402_300_800_000_000], pa.int64()).view(pa.timestamp("us"))
    in_list = pa.array([0, 1], pa.int32())
    columns: dict[str, tuple[pa.Array, str]] = {
        "far": (pa.ListArray.from_arrays(in_list, far), '["+10000-01-01 00:00:00.000000"]'),
        "far_in_struct": (pa.StructArray.from_arrays([far], ["t"]), '{"t":"+10000-01-01 00:00:00.000000"}'),
        "far_day": (
            pa.ListArray.from_arrays(in_list, pa.array([3_000_000], pa.int32()).view(pa.date32())),
            '["+10183-09-21"]',
        ),
        "time_of_day": (pa.array([[time(1, 2, 3)]]), '["01:02:03.000000"]'),
        "duration": (pa.array([[timedelta(days=1)]]), "[86400000000]"),
        "nanos": (
            pa.array([[1_000_000_001]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ns"))),
            '["1970-01-01 00:00:01.000000001"]',
        ),
    }
    sink = io.BytesIO()
    pq.write_table(pa.table({name: column for name, (column, _) in columns.items()}), sink)
    (row,) = rows_of(sink.getvalue(), dict.fromkeys(columns, "string"), key="f.PARQUET")
    assert row[: len(columns)] == tuple(text for _, text in columns.values())


def test_renamed_parquet_columns_are_read_under_their_declared_name() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"starttime": [NOON], "": [1], "id": pa.array([7], pa.int16())}), sink)
    columns, names = {"started_at": "timestamp", "id": "bigint"}, {"started_at": ["starttime"]}
    (row,) = rows_of(sink.getvalue(), columns, names=names, key="f.parquet")
    assert row[:3] == (NOON, 7, None)
