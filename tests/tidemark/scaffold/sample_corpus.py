"""Samples of usual kinds, each with its rows, written by hand or by Python's own csv and json.

The module does not know how a sample is read: a row has the texts that a person sees in the file, None for no text.
"""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from pyarrow import orc

from tests.parquet_files import parquet_of

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Taken:
    """A sample that becomes a feed.

    Args:
        rows: Its rows, as texts or Python values.
        named: Number of further rows, which the command has to name.
        types: Types that some columns have to get.
        key: The key that the command has to guess; None if it may guess none.
        options: The operator's choice of a key if the command finds none, and other settings.
    """

    name: str
    file: str
    body: bytes
    rows: Sequence[Row]
    named: int = 0
    types: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] | None = None
    options: tuple[str, ...] = ("--no-key",)


@dataclass(frozen=True)
class Refused:
    """A sample that has to be refused, and words in the refusal."""

    name: str
    file: str
    body: bytes
    said: str
    options: tuple[str, ...] = ("--no-key",)


def as_csv(rows: Sequence[Row], **dialect: Any) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n", **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(columns: Mapping[str, Any]) -> bytes:
    return parquet_of(pa.table(dict(columns)))


def as_orc(columns: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


def as_avro(rows: list[dict[str, Any]]) -> bytes:
    of = {
        "trip_id": "long",
        "fare": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "on": {"type": "int", "logicalType": "date"},
        "tags": {"type": "array", "items": "string"},
    }
    return avro_of(of, rows)


def avro_of(of: Mapping[str, Any], rows: list[dict[str, Any]]) -> bytes:
    members = [{"name": name, "type": kind} for name, kind in of.items()]
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "Trip", "fields": members}, rows)
    return sink.getvalue()


def column(name: str, *values: str) -> list[dict[str, str | None]]:
    """Return rows with a text column and a column with these values."""
    return [{"what": f"w{n}", name: value or None} for n, value in enumerate(values)]


def typed(name: str, kind: str, *values: str) -> Taken:
    rows = column("value", *values)
    return Taken(name, "a.csv", as_csv(rows), rows, types={"value": kind})


TRIPS = [{"tripduration": str(100 + n), "start": f"S{n % 2}", "bikeid": str(7 * n)} for n in range(1, 6)]
SAME = [*TRIPS, {"tripduration": "101", "start": "S1", "bikeid": "9"}]
LINES = [{"order_id": str(n // 3), "line_number": str(n % 3 + 1), "sku": f"k{n}"} for n in range(9)]
MANY = [{"sensor": str(n), "reading_id": str(10**19 + n), "value": f"{n}.5"} for n in range(25)]
FOREIGN = [{"customer_id": str(n), "order_id": str(n), "total": "1.5"} for n in range(30)]
UUIDS = [{"who": f"p{n % 3}", "uuid": f"{n:08x}-0000-4000-8000-000000000000"} for n in range(3)]
QUOTED = [{"what": "a, b", "note": 'he said "no"'}, {"what": " spaced ", "note": "x"}]
TWO_LINES = [{"what": "a", "note": "first\nsecond"}, {"what": "b", "note": "c"}]
PLACES = [{"city": "Zürich", "n": "1"}, {"city": "Genève", "n": "2"}, {"city": "Bern", "n": "3"}]
TEXT = "city,n\nZürich,1\nGenève,2\nBern,3\n"
NUMBERS = [{"id": n, "amount": a, "code": c} for n, a, c in ((1, 1.5, "02115"), (2, 3, "10001"), (3, None, "7"))]
BIG = [{"what": "a", "account": 12345678901234567890}, {"what": "b", "account": 12345678901234567891}]
MOMENT = datetime(2026, 10, 1, 7, 30, 0, 250_000, tzinfo=UTC)

TAKEN = [
    # Types.
    typed("postal codes keep their zero", "string", "02115", "02139", "10001"),
    typed("meters keep their zero", "string", "0049301234", "1234567890", "0000000001"),
    typed("20 digits are kept", "decimal(38,0)", "12345678901234567890", "12345678901234567891"),
    typed("19 digits are kept", "decimal(38,0)", "9223372036854775808", "1234567890123456789"),
    typed("18 digits are a bigint", "bigint", "123456789012345678", "-5", "0"),
    typed("40 digits are a text", "string", "1" * 40, "2" * 40),
    typed("a plus sign is kept", "string", "+4917012345", "+4917012346"),
    typed("an exponent is a double", "double", "1e-9", "2.5", "3E+5"),
    typed("money is exact", "decimal(18,4)", "1.25", "3", "-2.5", "0.0001"),
    typed("much money is exact", "decimal(38,4)", "12345678901234567.25", "1.5"),
    typed("a number that no double holds is no double", "string", "1e400", "2.5"),
    typed("places beyond a decimal's usual ones", "double", "52.520008123", "13.404953999"),
    typed("more places than a double holds", "decimal(38,20)", "0.12345678901234567891", "1.5"),
    typed("a code with an exponent in it", "string", "1e5x", "2e7"),
    typed("codes with an exponent keep their letters", "string", "1e5", "2E7", "99"),
    typed("chess squares are no exponents", "string", "e5", "e6", "e4"),
    typed("numbers without a digit before the point", "double", ".5", "-.25", "1.5"),
    typed("days", "date", "2026-10-01", "2024-02-29"),
    typed("a day that is not there", "string", "2026-02-30", "2026-10-01"),
    typed("days of other forms", "string", "10/01/2026", "1.10.2026", "20261001x"),
    typed("times with zones", "timestamp", "2026-10-01T07:00Z", "2026-10-01 07:00:00+02:00", "2026-10-01T07:00-0530"),
    typed("times with fractions", "timestamp", "2026-10-01T07:00:00.25", "2026-10-01T07:00:00.123456", "2026-10-01"),
    typed("times with nanoseconds are kept as text", "string", "2026-10-01T07:00:00.123456789", "2026-10-01T07:00:00"),
    typed("a time that is not there", "string", "2026-10-01T25:00:00", "2026-10-01T07:00:00"),
    typed("truth values", "boolean", "true", "false", ""),
    typed("other truth values", "string", "True", "N", "yes"),
    typed("numbers among texts", "string", "1", "some", "2"),
    Taken("marks of missing numbers", "a.csv", as_csv(column("value", "1", "n/a", "2")), column("value", "1", "", "2"),
          types={"value": "bigint"}),
    typed("infinity and no number", "string", "NaN", "1.5", "Infinity"),
    typed("blanks around numbers", "string", " 12", "13 ", "14"),
    typed("a column that is empty", "string", "", "", ""),
    typed("a version is no number", "decimal(18,4)", "1.10", "1.1"),
    Taken("an id with a point is a text", "a.csv", b"what,version_id\na,1.10\nb,1.1\n",
          [{"what": "a", "version_id": "1.10"}, {"what": "b", "version_id": "1.1"}], types={"version_id": "string"}),
    Taken("a postal code without zeros in the sample", "a.csv", b"zip_code,n\n10001,1\n94107,2\n",
          [{"zip_code": "10001", "n": "1"}, {"zip_code": "94107", "n": "2"}], types={"zip_code": "string"}),
    Taken("account numbers of one length may begin with a zero", "a.csv", b"account_no,n\n123456,1\n234567,2\n",
          [{"account_no": "123456", "n": "1"}, {"account_no": "234567", "n": "2"}], types={"account_no": "string"}),
    Taken("postcodes", "a.csv", b"postcode,n\n10001,1\n94107,2\n",
          [{"postcode": "10001", "n": "1"}, {"postcode": "94107", "n": "2"}], types={"postcode": "string"}),
    # Keys.
    Taken("five trips have five durations", "a.csv", as_csv(TRIPS), TRIPS),
    Taken("two trips last as long", "a.csv", as_csv(SAME), SAME),
    Taken("equal rows are two rows", "a.csv", b"what,n\na,1\na,1\n", [{"what": "a", "n": "1"}] * 2),
    Taken("the feed's own id", "a.csv", as_csv([{"trip_id": str(n), **t} for n, t in enumerate(TRIPS)]),
          [{"trip_id": str(n), **t} for n, t in enumerate(TRIPS)], key=("trip_id",), options=()),
    Taken("an order and its lines", "a.csv", as_csv(LINES), LINES, key=("order_id", "line_number"), options=()),
    Taken("the only id, in 25 rows", "a.csv", as_csv(MANY), MANY, key=("reading_id",), options=(),
          types={"reading_id": "decimal(38,0)"}),
    Taken("two ids, and either may be it", "a.csv", as_csv(FOREIGN), FOREIGN, options=("--key", "order_id")),
    Taken("uuid", "a.csv", as_csv(UUIDS), UUIDS, key=("uuid",), options=()),
    Taken("an id that is empty once", "a.csv", b"id,n\n1,1\n,2\n3,3\n",
          [{"id": "1", "n": "1"}, {"id": None, "n": "2"}, {"id": "3", "n": "3"}]),
    Taken("an id that is there twice", "a.csv", b"id,n\n1,1\n1,2\n3,3\n",
          [{"id": "1", "n": "1"}, {"id": "1", "n": "2"}, {"id": "3", "n": "3"}]),
    Taken("a composite key that a person names", "a.csv", as_csv(LINES), LINES, options=("--key", "order_id,sku")),
    Taken("a column that is called like the partition", "a.csv", b"day,n\n2026-01-01,1\n2026-01-01,2\n",
          [{"day": "2026-01-01", "n": "1"}, {"day": "2026-01-01", "n": "2"}]),
    Taken("every name for the partition is taken", "a.csv", b"day,file_day,file_day_\nx,y,z\n",
          [{"day": "x", "file_day": "y", "file_day_": "z"}]),
    # Lines, quotes and encodings.
    Taken("quotes", "a.csv", as_csv(QUOTED), QUOTED),
    Taken("every field in quotes", "a.csv", as_csv(PLACES, quoting=csv.QUOTE_ALL), PLACES),
    Taken("a record over two lines is found", "a.csv", as_csv(TWO_LINES), TWO_LINES),
    Taken("a record over two lines", "a.csv", as_csv(TWO_LINES), TWO_LINES, options=("--no-key", "--multiline")),
    Taken("ragged lines are named", "a.csv", b"what,n\na,1\nb\nc,3,x\nd,4\n",
          [{"what": "a", "n": "1"}, {"what": "d", "n": "4"}], named=2),
    Taken("blank lines are none", "a.csv", b"what,n\n\na,1\n\n\nb,2\n\n",
          [{"what": "a", "n": "1"}, {"what": "b", "n": "2"}]),
    Taken("lines of Windows", "a.csv", TEXT.replace("\n", "\r\n").encode(), PLACES),
    Taken("no line end at the end", "a.csv", TEXT.rstrip().encode(), PLACES),
    Taken("a byte order mark", "a.csv", TEXT.encode("utf-8-sig"), PLACES),
    Taken("latin-1 that is not declared is found", "a.csv", TEXT.encode("latin-1"), PLACES),
    Taken("UTF-8 with a damaged line is UTF-8", "a.csv", TEXT.replace("Bern", "Bärn").encode().replace(b"Z\xc3", b"Z"),
          [{"city": "Genève", "n": "2"}, {"city": "Bärn", "n": "3"}], named=1),
    Taken("latin-1", "a.csv", TEXT.encode("latin-1"), PLACES, options=("--no-key", "--encoding", "latin-1")),
    Taken("UTF-16", "a.csv", TEXT.encode("utf-16"), PLACES, options=("--no-key", "--encoding", "utf-16")),
    Taken("gzip", "a.csv.gz", gzip.compress(TEXT.encode()), PLACES),
    Taken("names with blanks, quotes and umlauts", "a.csv", 'start id,"a ""b""",größe\nx,y,z\n'.encode(),
          [{"start id": "x", 'a "b"': "y", "größe": "z"}]),
    # Other forms, each found.
    Taken("UTF-16 is found", "a.csv", TEXT.encode("utf-16"), PLACES),
    Taken("UTF-16 without its mark is found", "a.csv", TEXT.encode("utf-16-le"), PLACES),
    Taken("semicolons", "a.csv", TEXT.replace(",", ";").encode(), PLACES),
    Taken("tabs", "a.TXT", TEXT.replace(",", "\t").encode(), PLACES),
    Taken("a line for Excel", "a.csv", b"sep=,\r\n" + TEXT.encode(), PLACES),
    Taken("separators at the end of lines", "a.csv", TEXT.replace("\n", ",\n").encode(), PLACES),
    Taken("lines above the header", "a.csv", b"export of cities\n\n" + TEXT.encode(), PLACES),
    Taken("comments above the header", "a.csv", b"# export\n# of cities\n" + TEXT.encode(), PLACES),
    Taken("semicolons and decimal commas", "a.csv", b"what;price, EUR;n\na;1.002,5;1\nb;3,5;2\n",
          [{"what": "a", "price, EUR": "1002.5", "n": "1"}, {"what": "b", "price, EUR": "3.5", "n": "2"}],
          types={"price, EUR": "decimal(18,4)", "n": "bigint"}),
    Taken("no header", "a.csv", b"1,2026-01-01,3.5\n2,2026-01-02,4.5\n",
          [{"column_1": "1", "column_2": "2026-01-01", "column_3": "3.5"},
           {"column_1": "2", "column_2": "2026-01-02", "column_3": "4.5"}], types={"column_2": "date"}),
    Taken("no header, and names by hand", "a.csv", b"1,ann,2.5\n2,bob,3.5\n",
          [{"n": "1", "who": "ann", "km": "2.5"}, {"n": "2", "who": "bob", "km": "3.5"}],
          options=("--no-key", "--names", "n,who,km")),
    Taken("German days", "a.csv", as_csv(column("day_of", "08.12.25", "31.12.25")),
          column("day_of", "2025-12-08", "2025-12-31"), types={"day_of": "date"}),
    Taken("days that may be either are texts", "a.csv", as_csv(column("day_of", "01/02/2020", "03/04/2020")),
          column("day_of", "01/02/2020", "03/04/2020"), types={"day_of": "string"}),
    Taken("days that may be either, by hand", "a.csv", as_csv(column("day_of", "01/02/2020")),
          column("day_of", "2020-02-01"), types={"day_of": "date"},
          options=("--no-key", "--time", "day_of=dd/MM/yyyy")),
    Taken("epochs", "a.csv", as_csv(column("created_at", "1767355200", "1767355201")),
          column("created_at", "2026-01-02T12:00:00Z", "2026-01-02T12:00:01Z"), types={"created_at": "timestamp"}),
    Taken("IMDb's texts for missing values", "a.tsv", b"what\tyear\nx\t\\N\n\"y\t1999\n",
          [{"what": "x", "year": None}, {"what": '"y', "year": "1999"}], types={"year": "bigint"}),
    Taken("rows in an array", "a.json", json.dumps({"Records": NUMBERS, "next": None}).encode(), NUMBERS,
          key=("id",), options=()),
    Taken("an ending in capitals", "a.JSON", as_lines(NUMBERS), NUMBERS, key=("id",), options=()),
    # JSON.
    Taken("JSON lines", "a.jsonl", as_lines(NUMBERS), NUMBERS, key=("id",), options=(),
          types={"id": "bigint", "amount": "decimal(18,4)", "code": "string"}),
    Taken("a JSON list", "a.json", json.dumps(NUMBERS).encode(), NUMBERS, key=("id",), options=()),
    Taken("a JSON list over lines", "a.json.gz", gzip.compress(json.dumps(NUMBERS, indent=1).encode()), NUMBERS,
          key=("id",), options=()),
    Taken("JSON numbers of 20 digits", "a.jsonl", as_lines(BIG), BIG, types={"account": "decimal(38,0)"}),
    Taken("JSON texts of digits stay texts", "a.jsonl", as_lines(column("code", "10001", "94107")),
          column("code", "10001", "94107"), types={"code": "string"}),
    Taken("JSON keys that come late", "a.jsonl",
          as_lines([{"what": f"w{n}" * 40} for n in range(999)] + [{"late": "x"}]),
          [{"what": f"w{n}" * 40, "late": None} for n in range(999)] + [{"what": None, "late": "x"}]),
    Taken("JSON lines that are none are named", "a.jsonl", b'{"what": "a"}\n{"what": \n[1]\n{"what": "b"}\n',
          [{"what": "a"}, {"what": "b"}], named=2),
    Taken("JSON with an empty text in its id", "a.jsonl", b'{"id": "a", "n": 1}\n{"id": "", "n": 2}\n',
          [{"id": "a", "n": "1"}, {"id": None, "n": "2"}]),
    Taken("nested JSON", "a.jsonl", b'{"what": "a", "tags": [1, 2]}\n{"what": "b", "tags": []}\n',
          [{"what": "a", "tags": "[1, 2]"}, {"what": "b", "tags": "[]"}], types={"tags": "string"}),
    # Parquet.
    Taken("Parquet", "a.parquet", as_parquet({"trip_id": pa.array([1, 2], pa.int64()), "km": pa.array([1.0, 2.0])}),
          [{"trip_id": 1, "km": 1.0}, {"trip_id": 2, "km": 2.0}], key=("trip_id",), options=(),
          types={"trip_id": "bigint", "km": "double"}),
    Taken("Parquet's large numbers", "a.parquet", as_parquet({"n": pa.array([2**64 - 1, 5], pa.uint64())}),
          [{"n": 2**64 - 1}, {"n": 5}], types={"n": "decimal(38,0)"}),
    Taken("Parquet's types, whatever the sample holds", "a.parquet", as_parquet({
              "what": ["a"], "km": pa.array([None], pa.float64()), "n": pa.array([None], pa.int32()),
              "big": pa.array([1], pa.uint64()), "sum": pa.array([Decimal(12)], pa.decimal128(38, 0)),
              "much": pa.array([Decimal("1.25")], pa.decimal128(20, 2)), "at": pa.array([None], pa.timestamp("ns"))}),
          [{"what": "a", "km": None, "n": None, "big": 1, "sum": 12, "much": Decimal("1.25"), "at": None}],
          types={"km": "double", "n": "bigint", "big": "decimal(38,0)", "sum": "decimal(38,0)",
                 "much": "decimal(38,4)", "at": "timestamp"}),
    Taken("Parquet's decimals and times", "a.parquet", as_parquet({
              "fare": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)), "at": pa.array([MOMENT, None]),
              "on": pa.array([date(2026, 10, 1), None]), "ok": pa.array([True, None]),
              "zip": pa.array(["02115", "1"])}),
          [{"fare": Decimal("1.25"), "at": MOMENT, "on": date(2026, 10, 1), "ok": True, "zip": "02115"},
           {"fare": None, "at": None, "on": None, "ok": None, "zip": "1"}],
          types={"fare": "decimal(18,4)", "at": "timestamp", "on": "date", "ok": "boolean", "zip": "string"}),
    # ORC, Avro, fixed width.
    Taken("ORC", "a.ORC", as_orc({
              "trip_id": pa.array([1, 2], pa.int64()), "fare": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
              "at": pa.array([MOMENT, None]), "on": pa.array([date(2026, 10, 1), None])}),
          [{"trip_id": 1, "fare": Decimal("1.25"), "at": MOMENT, "on": date(2026, 10, 1)},
           {"trip_id": 2, "fare": None, "at": None, "on": None}], key=("trip_id",), options=(),
          types={"trip_id": "bigint", "fare": "decimal(18,4)", "at": "timestamp", "on": "date"}),
    Taken("Avro", "a.avro", as_avro([
              {"trip_id": 1, "fare": Decimal("1.25"), "at": MOMENT, "on": date(2026, 10, 1), "tags": ["a"]},
              {"trip_id": 2, "fare": Decimal("2.50"), "at": MOMENT, "on": date(2026, 10, 1), "tags": []}]),
          [{"trip_id": 1, "fare": Decimal("1.25"), "at": MOMENT, "on": date(2026, 10, 1), "tags": '["a"]'},
           {"trip_id": 2, "fare": Decimal("2.50"), "at": MOMENT, "on": date(2026, 10, 1), "tags": "[]"}],
          key=("trip_id",), options=(),
          types={"trip_id": "bigint", "fare": "decimal(18,4)", "at": "timestamp", "on": "date", "tags": "string"}),
    Taken("text of fixed width", "a.txt", b"000017Ada     1,50\n     8Bob    -2,25\n",
          [{"id": "000017", "who": "Ada", "fare": Decimal("1.50")},
           {"id": "8", "who": "Bob", "fare": Decimal("-2.25")}],
          options=("--no-key", "--places", "id=1:6,who=7:6,fare=13:6", "--decimal", ","),
          types={"id": "string", "who": "string", "fare": "decimal(18,4)"}),
    Taken("Parquet's doubles that are whole", "a.parquet", as_parquet({"n": pa.array([1e18, 3e18])}),
          [{"n": 1e18}, {"n": 3e18}], types={"n": "double"}),
]  # fmt: skip

BANK = [
    {"Buchung": "2026-01-02", "Zweck": "a; b", "Saldo": "1204.05", "Betrag": "-45.95", "W": "EUR"},
    {"Buchung": "2025-12-30", "Zweck": "c", "Saldo": "1250", "Betrag": "-5", "W": "EUR"},
    {"Buchung": "2025-12-29", "Zweck": "d", "Saldo": "1255", "Betrag": "1200", "W": "EUR"},
]
OF_BANK = """Umsatzanzeige;Datei erstellt am: 02.01.2026 07:26
;Kunde
IBAN;DE12 3456
Kontoname;Girokonto
Saldo;1.204,05

Buchung;Zweck;Saldo;Betrag;W
02.01.2026;"a; b";1.204,05;-45,95;EUR
30.12.2025;c;1.250,00;-5,00;EUR
29.12.2025;d;1.255,00;1.200,00;EUR
"""
SUMS = [{"Datum": "2026-02-13", "Text": "a", "Betrag": "-5"}, {"Datum": "2026-02-14", "Text": "b", "Betrag": "1234.56"}]
OF_SUMS = "Datum;Text;Betrag\n13.02.2026;a;-5,00\n14.02.2026;b;1.234,56\n"
AS_TEXTS = [{"what": "a", "p": "1.234", "q": "1.5"}, {"what": "b", "p": "2.500", "q": "2.25"}]

TAKEN += [
    Taken("more lines above a table than in it", "a.csv", OF_BANK.encode("cp1252"), BANK,
          types={"Buchung": "date", "Saldo": "decimal(18,4)", "Betrag": "decimal(18,4)"}),
    Taken("a total below the rows", "a.csv", f"{OF_SUMS}Summe;;1.229,56\n".encode(), SUMS, named=1,
          types={"Datum": "date", "Betrag": "decimal(18,4)"}),
    Taken("a total below numbers", "a.csv", b"id,shop,n\n1,a,5\n2,b,6\nTotal,,11\n",
          [{"id": "1", "shop": "a", "n": "5"}, {"id": "2", "shop": "b", "n": "6"}], named=1, types={"id": "bigint"}),
    Taken("narrow no-break spaces between groups", "a.csv", as_csv(column("n", "1\u202f234,5", "-12,0"), delimiter=";"),
          column("n", "1234.5", "-12"), types={"n": "decimal(18,4)"}),
    Taken("apostrophes of typesetters between groups", "a.csv", as_csv(column("n", "1\u2019234.5", "-12.0")),
          column("n", "1234.5", "-12"), types={"n": "decimal(18,4)"}),
    Taken("points beside decimal commas may be either", "a.csv", b"what;p;q\na;1.234;1,50\nb;2.500;2,25\n", AS_TEXTS,
          types={"p": "string", "q": "decimal(18,4)"}),
    Taken("lines above the header with separators of a spreadsheet", "a.csv",
          b"Report;;\nCreated;2026-01;\n;;\nwhat;n;m\na;1;2\nb;3;4\n",
          [{"what": "a", "n": "1", "m": "2"}, {"what": "b", "n": "3", "m": "4"}], types={"n": "bigint"}),
    Taken("a line above the header that begins like it", "a.csv",
          b"city of the export: Bern\n" + TEXT.encode(), PLACES),
    Taken("a line with separators that begins like the header", "a.csv",
          b'what is this;;\n;;\n"what";n;m\na;1;2\n', [{"what": "a", "n": "1", "m": "2"}]),
    Taken("a header with years, by hand", "a.csv", b"what,2024,2025\na,1,2\n",
          [{"what": "a", "2024": "1", "2025": "2"}],
          options=("--no-key", "--header", "what")),
    Taken("names that no column can have, and a key", "a.csv",
          b",trip.id,Trip_ID,_at,source_file,n\n0,7,x,2026-01-01,f,5\n1,8,y,2026-01-02,g,6\n",
          [{"column_1": "0", "trip_id_2": "7", "Trip_ID": "x", "at": "2026-01-01", "source_file_2": "f", "n": "5"},
           {"column_1": "1", "trip_id_2": "8", "Trip_ID": "y", "at": "2026-01-02", "source_file_2": "g", "n": "6"}],
          types={"at": "date", "n": "bigint"}),
    Taken("a name with a line break", "a.csv", b'"a\nb",n\nx,2\n', [{"a_b": "x", "n": "2"}],
          options=("--no-key", "--multiline")),
    Taken("names that differ in case", "a.csv", b"platform,Platform\na,b\n", [{"platform": "a", "Platform_2": "b"}]),
    Taken("names of MongoDB", "a.jsonl", b'{"_id": "a", "unit.price": 1.5}\n{"_id": "b", "unit.price": 2}\n',
          [{"id": "a", "unit_price": 1.5}, {"id": "b", "unit_price": 2}], key=("id",), options=()),
    Taken("names of pandas in Parquet", "a.parquet", as_parquet({"unit.price": [1.5], "__index_level_0__": [7]}),
          [{"unit_price": 1.5, "index_level_0": 7}], types={"index_level_0": "bigint"}),
    Taken("points between semicolons may be either", "a.csv", b"what;n\na;1.234\nb;12.500\n",
          [{"what": "a", "n": "1.234"}, {"what": "b", "n": "12.500"}], types={"n": "string"}),
    Taken("points between semicolons that no groups have", "a.csv", b"what;n\na;0.234\nb;12.500\n",
          [{"what": "a", "n": "0.234"}, {"what": "b", "n": "12.500"}], types={"n": "decimal(18,4)"}),
    Taken("points between semicolons, by hand", "a.csv", b"what;n\na;1.234\nb;12.500\n",
          [{"what": "a", "n": "1.234"}, {"what": "b", "n": "12.500"}], types={"n": "decimal(18,4)"},
          options=("--no-key", "--decimal", ".")),
    Taken("carets", "a.csv", TEXT.replace(",", "^").encode(), PLACES, types={"n": "bigint"}),
    Taken("control characters", "a.csv", TEXT.replace(",", "\x01").encode(), PLACES, types={"n": "bigint"}),
    Taken("a list as PostgreSQL writes it", "a.json",
          ("[" + ", \n ".join(map(json.dumps, NUMBERS)) + "]").encode(), NUMBERS, key=("id",), options=()),
    Taken("a list with two objects in its first line", "a.json", b'[{"what": "a"}, {"what": "b"},\n{"what": "c"}\n]\n',
          [{"what": "a"}, {"what": "b"}, {"what": "c"}]),
    Taken("JSON lines of another ending", "a.NDJSON", as_lines(NUMBERS), NUMBERS, key=("id",), options=()),
]  # fmt: skip

LATER = [
    ("numbers", ["1", "2"], ["-5", "", str(2**63 - 1)], ["007", "+7", "2.7", str(2**63), "x"]),
    ("long numbers", ["1" * 20], ["9" * 38, "5"], ["1.5", "0.4", "9" * 39, "01"]),
    ("money", ["1.25", "3"], ["12.3400", "-0.5", "9" * 14], ["1.23456", "0.00001", "1e-9", "9" * 15, "1,5"]),
    ("doubles", ["1e-9", "2.5"], ["0.1", "1e22", "", "8999999999999999", "0.30000000000000004"],
     ["1e400", "0.1234567890123456789", "5d", "9007199254740993", "12345678901234567", "-90071992547409931.0"]),
    ("days", ["2026-10-01"], ["9999-12-31", "0001-01-01", "1582-10-10"],
     ["2026-10-02T07:00:00Z", "2026-02-30", "1.10.2026", "2026", "2026-10", "0000-00-00", "10000-01-01"]),
    ("times", ["2026-10-01T07:00Z"], ["2026-10-01T07:00:00.123456Z", "2026-10-02"],
     ["2026-10-01T07:00:00.123456789Z", "2026-10-01T24:00:00Z", "2016-12-31T23:59:60Z"]),
    ("truth", ["true", "false"], ["true", ""], ["perhaps", "2"]),
]  # fmt: skip
"""Values of a sample, values of a later file that land as they are, and values that are named."""

REFUSED = [
    Refused("a name twice", "a.csv", b"n,n\n1,2\n", "'n' is in the header twice"),
    Refused("no row", "a.csv", b"what,n\n", "no row"),
    Refused("no row that can be taken", "a.csv", b"what,n\na\nb\n", "no row that can be taken"),
    Refused("nothing", "a.csv", b"", "empty"),
    Refused("Parquet called CSV", "a.csv", as_parquet({"a": [1]}), "is Parquet: give it the ending .parquet"),
    Refused("gzip called CSV", "a.csv", gzip.compress(TEXT.encode()), "is gzip"),
    Refused("CSV called gzip", "a.csv.gz", TEXT.encode(), "compress it, or remove .gz from its name"),
    Refused("half of a gzip", "a.csv.gz", gzip.compress(TEXT.encode())[:-9], "a.csv.gz"),
    Refused("a spreadsheet called CSV", "a.csv", b"PK\x03\x04\x14\x00", "spreadsheet"),
    Refused("a spreadsheet", "a.xlsx", b"PK\x03\x04\x14\x00", "register a format for it (docs/feeds.md"),
    Refused("objects in one line", "a.json", b'{"n": 1}{"n": 2}', "follows '{\"n\": 2}': write one object per line"),
    Refused("JSON called CSV", "a.csv", as_lines(NUMBERS), "is JSON"),
    Refused("a JSON list called CSV", "a.csv", json.dumps(NUMBERS, indent=1).encode(), "is JSON"),
    Refused("a web page called CSV", "a.csv", b"<!DOCTYPE html>\n<html></html>\n", "is HTML"),
    Refused("XML called JSON", "a.json", b"<?xml version='1.0'?><a/>", "XML"),
    Refused("CSV called JSON", "a.json", TEXT.encode(), "a.json"),
    Refused("CSV called Parquet", "a.parquet", TEXT.encode(), "a.parquet"),
    Refused("a union in Avro", "a.avro", avro_of({"n": ["long", {"type": "array", "items": "long"}]}, [{"n": 1}]),
            "column n is a union of long, array, which is not read"),
    Refused("CSV called Avro", "a.avro", TEXT.encode(), "not a valid Avro file"),
    Refused("CSV called ORC", "a.orc", TEXT.encode(), "not a valid ORC file"),
    Refused("text of fixed width", "a.txt", b"000017Ada     1.50\n000018Bob     2.25\n000019Cyd     3.25\n",
            "--places NAME=FIRST:WIDTH"),
    Refused("text of fixed width by its name", "a.fwf", b"000017Ada     1.50\n", "--places NAME=FIRST:WIDTH"),
    Refused("places that are none", "a.fwf", b"000017Ada     1.50\n", "expected NAME=FIRST:WIDTH",
            ("--no-key", "--places", "id=six")),
    Refused("places that overlap", "a.fwf", b"000017Ada     1.50\n", "share character 6",
            ("--no-key", "--places", "id=1:6,who=6:3")),
    Refused("half of a JSON list", "a.json", json.dumps(NUMBERS, indent=1).encode()[:-9], "does not end"),
    Refused("UTF-32", "a.csv", TEXT.encode("utf-32"), "UTF-32"),
    Refused("a name twice in Parquet", "a.parquet",
            parquet_of(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])), "'a' is in the header twice"),
    Refused("Parquet without columns", "a.parquet", as_parquet({}), "no columns"),
    Refused("another ending without rows", "a.xlsx", b"x", "no row"),
    Refused("UTF-8 that the user calls latin-1", "a.csv", "what\nZürich\n".encode(), "its text is UTF-8, not",
            ("--no-key", "--encoding", "latin-1")),
    Refused("umlauts of DOS", "a.csv", TEXT.encode("cp437"), "its encoding is uncertain"),
    Refused("umlauts of old Macs", "a.csv", TEXT.encode("mac-roman"), "its encoding is uncertain"),
    Refused("Cyrillic in cp1251", "a.csv", "город,n\nМосква,1\n".encode("cp1251"), "its encoding is uncertain"),
    Refused("a header with years", "a.csv", b"what,2024,2025\na,1,2\nb,3,4\n", "may be a header with years, or a row"),
    Refused("a log without separators", "a.log", b"[2026-01-02] x\n[2026-01-03] y\n", "no separator was found"),
    Refused("rows with fewer values than names", "a.csv", b"what,n,note\na,1\nb,2\nc,3\n",
            "it has 2 values, the header 3"),
    Refused("a Parquet time after the year 9999", "a.parquet",
            as_parquet({"at": pa.array([253_402_300_800_000_000], pa.timestamp("us"))}), "a time in column 'at'"),
    Refused("too many rows to look at", "a.csv", b"what,n\n" + b"a,1\n" * 300_001, "head -n"),
    Refused("too many bytes", "a.csv.gz", gzip.compress(b"what,n\n" + (b"a" * 999 + b",1\n") * 40_000), "MB"),
    Refused("no plausible key", "a.csv", as_csv(TRIPS), "--no-key", ()),
    Refused("a key that is empty once", "a.csv", b"id,n\n1,1\n,2\n", "id (1 rows)", ("--key", "id")),
    Refused("a key that is no column", "a.csv", as_csv(TRIPS), "no column trip", ("--key", "trip")),
    Refused("a key that is not exact", "a.parquet", as_parquet({"km": [1.5]}), "double", ("--key", "km")),
    Refused("a key and none", "a.csv", as_csv(TRIPS), "exclude each other", ("--key", "bikeid", "--no-key")),
    Refused("an encoding that is none", "a.csv", as_csv(TRIPS), "encoding", ("--no-key", "--encoding", "klingon")),
]  # fmt: skip
