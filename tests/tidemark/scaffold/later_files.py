"""Samples as organisations publish them, each with a later file that differs as such files do.

What is expected is written by hand, or by Python's own csv and json. Nothing here knows how files are read.
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

import pyarrow as pa

from tests.parquet_files import parquet_of


@dataclass(frozen=True)
class Odd:
    """A text that is not in plain form. It is not cast here: Spark's exact rule takes it or rejects its row."""

    text: str


@dataclass(frozen=True)
class Named:
    """A row that is rejected, and words in the reason."""

    why: str


@dataclass(frozen=True)
class LaterFile:
    """A sample and a later file.

    Args:
        rows: Rows of the later file: the values of all columns, or why the row is rejected.
        refused: Words in the reason if the whole later file is refused.
        types: Types that columns have to get.
        said: Words that the command has to print about the sample.
        options: The user's options.
    """

    name: str
    file: str
    sample: bytes
    later: bytes
    rows: Sequence[Sequence[Any] | Named] = ()
    refused: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    said: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def text(*lines: str, charset: str = "utf-8", end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode(charset)


def lines(*rows: Mapping[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def table(rows: Sequence[Sequence[Any]], **dialect: Any) -> bytes:
    out = io.StringIO()
    csv.writer(out, **dialect).writerows(rows)
    return out.getvalue().encode()


def parquet(**columns: Any) -> bytes:
    return parquet_of(pa.table(columns))


def at(*time: int) -> datetime:
    return datetime(*time, tzinfo=UTC)  # type: ignore[misc,arg-type]


NOT_UTF8 = Named("not valid UTF-8")
IS_UTF8 = Named("its text is UTF-8, not cp1252")
NO_ROW = Named("the line is no row of this file")
CITIES = text("city,n", "Zürich,1", "Bern,2", charset="cp1252")
NS = pa.timestamp("ns")
WHOLE, BELOW = 1_767_355_200_123_456_000, 1_767_355_200_123_456_789
IIS = text("#Software: IIS", "#Fields: date sc-status cs(User-Agent) time-taken", "2026-01-02 200 a 31")
WIDE = [f"Q{n} (share, %)" for n in range(500)]
LONG = "x" * 300_000
OBJECT = {"meta": {"station": "KZH"}, "next": None, "rows": [{"id": n, "name": "station " * 4} for n in range(6)]}

LATER_FILES = [
    # Missing values.
    LaterFile("statistics office: NA among amounts, then Namibia", "a.csv", text("c,n", "DE,5", "FR,NA"),
              text("c,n", "NA,7", "FR,NA"), [("NA", 7), ("FR", None)], types={"n": "bigint"},
              said=["typed_nulls 'NA': it stands among the numbers or times of n"]),
    LaterFile("registry: null among days, then a person of that name", "a.csv",
              text("surname,left_on", "Meyer,2026-01-02", "Null,null"), text("surname,left_on", "null,null"),
              [("null", None)], types={"left_on": "date"}),
    LaterFile("weather: dashes among numbers, then among texts", "a.csv", text("s,mm,note", "A,-,x", "B,1.5,y"),
              text("s,mm,note", "C,-,-", "-,2,z"), [("C", None, "-"), ("-", Decimal(2), "z")]),
    LaterFile("database: \\N everywhere, NA among amounts", "a.tsv", text("c\tn", "\\N\t5", "x\tNA"),
              text("c\tn", "NA\t\\N", "\\N\tNA"), [("NA", None), (None, None)]),
    LaterFile("survey in JSON: NA among numbers", "a.jsonl", lines({"c": "x", "n": 5}, {"c": "y", "n": "NA"}),
              lines({"c": "NA", "n": "NA"}, {"c": None, "n": 6}), [("NA", None), (None, 6)]),
    LaterFile("a mark that the user names counts in texts too", "a.csv", text("c,n", "DE,5", "FR,NA"),
              text("c,n", "NA,NA"), [(None, None)], options={"nulls": ("NA",)}),
    # Logs of web servers.
    LaterFile("IIS: the columns in another order, and one more", "u_ex.log", IIS,
              text("#Software: IIS", "#Fields: time-taken date c-ip sc-status cs(User-Agent)",
                   "31 2026-01-03 10.0.0.1 200 a", "#Date: later",
                   "#Fields:  time-taken date c-ip  sc-status cs(User-Agent)", "7 2026-01-03 ::1 404 b"),
              [(date(2026, 1, 3), 200, "a", 31), (date(2026, 1, 3), 404, "b", 7)],
              said=["the names are those in '#Fields: date sc-status cs(User-Agent) time-taken'"]),
    LaterFile("IIS: a column fewer", "u_ex.log", IIS, text("#Fields: sc-status date time-taken", "200 2026-01-03 31"),
              [(date(2026, 1, 3), 200, None, 31)]),
    LaterFile("IIS: settings that change in the middle of a file", "u_ex.log", IIS,
              IIS + text("#Fields: sc-status date cs(User-Agent) time-taken", "404 2026-01-03 b 7"),
              refused="a line #Fields: has other columns than the rows above it: expected date sc-status"),
    LaterFile("IIS: a column more in the middle of a file", "u_ex.log", IIS,
              IIS + text("#Fields: date sc-status cs(User-Agent) time-taken c-ip", "2026-01-03 404 b 7 ::1"),
              refused="found date sc-status cs(User-Agent) time-taken c-ip; cut the file above this line"),
    LaterFile("IIS: settings that change after a megabyte of rows", "u_ex.log", IIS,
              IIS + b"2026-01-02 200 a 31\n" * 60_000 + text("#Fields: sc-status date cs(User-Agent) time-taken"),
              refused="a line #Fields: has other columns"),
    LaterFile("IIS: names above no row, then others", "u_ex.log", IIS,
              text("#Fields: date sc-status", "#Fields: sc-status date", "200 2026-01-03"),
              refused="a line #Fields: has other columns"),
    LaterFile("IIS: rows above the first line of names", "u_ex.log", IIS,
              text("2026-01-02 200 a 31", "#Fields: sc-status date cs(User-Agent) time-taken", "404 2026-01-03 b 7"),
              refused="a line #Fields: has other columns"),
    LaterFile("IIS: an hour without requests", "u_ex.log", IIS,
              text("#Software: IIS", "#Fields: sc-status date", "#Date: 2026-01-03")),
    LaterFile("IIS: none of the names", "u_ex.log", IIS, text("#Fields: s-ip s-port", "10.0.0.1 80"),
              refused="none of the declared columns"),
    LaterFile("CloudFront: a new version with more columns", "a.log.gz",
              gzip.compress(text("#Version: 1.0", "#Fields: date x-edge-location sc-bytes", "2026-01-02\tFRA2\t512")),
              gzip.compress(text("#Version: 2.0", "#Fields: date sc-bytes x-host-header x-edge-location",
                                 "2026-01-03\t7\th\tFRA1")),
              [(date(2026, 1, 3), "FRA1", 7)]),
    LaterFile("Zeek: the columns in another order", "conn.log",
              text("#separator \\x09", "#path\tconn", "#fields\tts\tuid\tid.orig_h", "#types\ttime\tstring\taddr",
                   "1767355200.1\tCx1\t10.0.0.1", "#close\t2026-01-02-01-00-00"),
              text("#separator \\x09", "#fields\tuid\tts\tproto\tid.orig_h", "Cx2\t1767355201.5\ttcp\t::1"),
              [(Decimal("1767355201.5"), "Cx2", "::1")]),
    LaterFile("a log with the user's names", "a.log", text("#Fields: date sc-status", "2026-01-02 200"),
              text("#Fields: sc-status date", "404 2026-01-03"), [(date(2026, 1, 3), 404)],
              options={"header": False, "fields": ("day", "status")}),
    LaterFile("a log whose first lines are skipped by number", "a.log",
              text("junk by hand", "#Fields: date sc-status", "2026-01-02 200", "2026-01-02 201"),
              text("junk by hand", "#Fields: sc-status date", "404 2026-01-03"), [(date(2026, 1, 3), 404)],
              options={"skip_lines": 2}),
    LaterFile("a log in UTF-16", "a.log", text("#Fields: date user", "2026-01-02 漢").decode().encode("utf-16"),
              text("#Fields: user date", "Zoë 2026-01-03").decode().encode("utf-16"), [(date(2026, 1, 3), "Zoë")]),
    LaterFile("a text that begins like a line of names is a value", "a.csv", text("n,text", "1,x", "2,y"),
              text("n,text", "3,#Fields: a b"), [(3, "#Fields: a b")]),
    # Comments and lines above the header.
    LaterFile("sensor export: comments above, then tags that begin with #", "a.csv",
              text("# export", "# of tags", "tag,n", "a,1", "b,2"), text("# export", "tag,n", "#c,3", "d,4"),
              [("#c", 3), ("d", 4)]),
    LaterFile("sensor export: comments below the header too", "a.csv", text("# x", "tag,n", "a,1", "# noon", "b,2"),
              text("tag,n", "c,3", "# end of file"), [("c", 3)], said=["a load skips each such line"]),
    LaterFile("genome variants: ## above a header with #", "a.vcf",
              text("##v4.2", "##a", "#CHROM\tPOS", "1\t5", "2\t6"),
              text("##v4.3,b", "#CHROM\tPOS", "X\t7", "1\t8"), [(Odd("X"), 7), (1, 8)]),
    LaterFile("pandas index below a title", "a.csv", text("Report of May", ",a,n", "0,x,1", "1,y,2"),
              text("Report of June", ",a,n", "7,z,3"), [(7, "z", 3)]),
    LaterFile("bank: the lines above the header change", "a.csv", text("Konto: 1", "", "name;n", "a;1,5", "b;2,5"),
              text("Konto: 2", "Stand: heute", "", "Name;n", "c;3,5"), refused="begins with 'name'"),
    LaterFile("bank: no lines above the header any more", "a.csv", text("Konto: 1", "", "name;n", "a;1,5", "b;2,5"),
              text("name;n", '"c;d";3,5', "e;1.234,5", end="\r\n"), [("c;d", Decimal("3.5")), ("e", Odd("1.234,5"))]),
    # Separators and shapes.
    LaterFile("French logger: no header, decimal commas", "a.csv", text("1,5;2,5", "4,5;6,7"),
              text("8,25;-9,5", "7;1.5"), [(Decimal("8.25"), Decimal("-9.5")), (Decimal(7), Odd("1.5"))]),
    LaterFile("tags with bars in a comma file without a header", "a.csv", text("1,a|b,3", "2,c|d,4"),
              text("5,e|f|g,6"), [(5, "e|f|g", 6)]),
    LaterFile("comments of citizens: one column with commas", "a.csv", text("comment", "well, no", "yes, so"),
              text("comment", "a, b", "c"), [("a, b",), ("c",)], options={"separator": "\t"}),
    LaterFile("one column, then a blank line", "a.csv", text("id", "7", "8"), text("id", "9", "", "10"), [(9,), (10,)]),
    LaterFile("census: 500 columns, then in another order", "a.csv", table([WIDE, range(500), range(500)]),
              table([WIDE[::-1], range(500)]), [tuple(range(500))[::-1]]),
    LaterFile("a value of 300 KB", "a.csv", text("id,t", "1,a", "2,b"), text("id,t", f"3,{LONG}", f'4,"{LONG},"'),
              [(3, LONG), (4, f"{LONG},")]),
    LaterFile("a column more, and one in another case", "a.csv", text("id,Name", "1,a", "2,b"),
              text("extra,name,id", "x,c,3"), [(3, None)]),
    LaterFile("a column twice in the later header", "a.csv", text("id,n", "1,2", "2,3"), text("id,n,n", "1,2,3"),
              refused="column n is in the header twice"),
    LaterFile("another separator later", "a.csv", text("id,n", "1,2", "2,3"), text("id;n", "1;2"),
              refused="its header has 1 ';' and no ','"),
    LaterFile("the header is gone", "a.csv", text("id,n", "a,x", "b,y"), text("c,z", "d,w"),
              refused="none of the declared columns"),
    LaterFile("a header appears", "a.csv", text("1,a", "2,b"), text("id,name", "3,c"), [(Odd("id"), "name"), (3, "c")]),
    LaterFile("an empty file", "a.csv", text("id,n", "1,2"), b"", refused="the file is empty"),
    LaterFile("only a header", "a.csv", text("id,n", "1,2"), text("id,n"), []),
    LaterFile("ragged lines and a total", "a.csv", text("id,n", "1,2", "2,3"), text("id,n", "3,4,", "4", "Total,9"),
              [NO_ROW, NO_ROW, (Odd("Total"), 9)]),
    LaterFile("returns, vertical tabs and separators of Unicode in values", "a.csv", text("a,n", "x,1", "y,2"),
              text("a,n", "x\x0by\x0c,3", "p\u2028q\x85,4"), [("x\x0by\x0c", 3), ("p\u2028q\x85", 4)]),
    LaterFile("line ends that were converted twice", "a.csv", text("a,n", "x,1"), text("a,n", "y,2", end="\r\r\n"),
              [("y", 2)]),
    LaterFile("quoted line breaks appear", "a.csv", text("id,t", "1,a", "2,b"), text("id,t", '3,"a', 'b"', "4,c"),
              [Named("unterminated quote"), Named("continues a value"), (4, "c")]),
    LaterFile("quoted line breaks, then one that never ends", "a.csv", text("id,t", '1,"a', 'b"', "2,c"),
              text("id,t", '3,"x', '""y"""', '4,"z'), [(3, 'x\n"y"'), Named("unterminated quote")]),
    LaterFile("several members of gzip, padded", "a.csv.gz", gzip.compress(text("id,n", "1,2")),
              gzip.compress(text("id,n", "3,4")) + gzip.compress(text("5,6")) + b"\0" * 20, [(3, 4), (5, 6)]),
    LaterFile("half of a gzip", "a.csv.gz", gzip.compress(text("id,n", "1,2")), gzip.compress(text("id,n", "3,4"))[:-9],
              refused="truncated"),
    # Encodings.
    LaterFile("cp1252, then UTF-8", "a.csv", CITIES, text("city,n", "Zürich,1", "Bern,2", "Łódź,3", "日本,4"),
              [IS_UTF8, ("Bern", 2), IS_UTF8, IS_UTF8], said=["if letters are wrong in Zürich, give --encoding"]),
    LaterFile("cp1252, then UTF-8 with its mark", "a.csv", CITIES,
              text("city,n", "Genève,1", "日本,2", charset="utf-8-sig"), [("Genève", 1), ("日本", 2)]),
    LaterFile("cp1252 that is valid UTF-8 by chance", "a.csv", CITIES,
              text("city,n", "CAFÉ’S,1", "Spaß…,2", charset="cp1252"), [("CAFÉ’S", 1), ("Spaß…", 2)]),
    LaterFile("cp1252 over lines, then UTF-8", "a.csv", text("city,n", '"Zürich', 'x",1', "Bern,2", charset="cp1252"),
              text("city,n", '"Zürich', 'x",1', "Bern,2"), [IS_UTF8, ("Bern", 2)]),
    LaterFile("JSON in cp1252, then UTF-8", "a.jsonl", text('{"a":"Zürich"}', '{"a":"x"}', charset="cp1252"),
              text('{"a":"Zürich"}', '{"a":"Bern"}'), [IS_UTF8, ("Bern",)]),
    LaterFile("a header in UTF-8 in a feed of cp1252", "a.csv", text("größe,n", "Zürich,1", charset="cp1252"),
              text("größe,n", "Bern,1"), refused="is not cp1252 text"),
    LaterFile("UTF-8, then cp1252", "a.csv", text("city,n", "Zürich,1", "Bern,2"), CITIES, [NOT_UTF8, ("Bern", 2)]),
    LaterFile("UTF-16, then UTF-8 with its mark", "a.csv", text("city,n", "Zürich,1", charset="utf-16"),
              text("city,n", "Genève,2", charset="utf-8-sig"), [("Genève", 2)]),
    LaterFile("UTF-16, then UTF-8", "a.csv", text("city,n", "Zürich,1", charset="utf-16"), text("city,n", "Genève,2"),
              refused="is not utf-16-le text"),
    # Values.
    LaterFile("days of a database", "a.csv", text("d,n", "2026-10-01,1", "1500-02-28,2"),
              text("d,n", "0000-00-00,1", "10000-01-01,2", "2026-02-30,3", "2026-10,4"),
              [(Odd("0000-00-00"), 1), (Odd("10000-01-01"), 2), (Odd("2026-02-30"), 3), (Odd("2026-10"), 4)],
              types={"d": "date"}),
    LaterFile("times of machines", "a.csv", text("t,n", "2026-10-01T10:00:00Z,1", "2026-10-01 11:00:00+02:00,2"),
              text("t,n", "2026-10-01T24:00:00Z,1", "2016-12-31T23:59:60Z,2", "2026-10-01T10:00:00.5,3", "12:30,4"),
              [(Odd("2026-10-01T24:00:00Z"), 1), (Odd("2016-12-31T23:59:60Z"), 2),
              (at(2026, 10, 1, 10, 0, 0, 500_000), 3), (Odd("12:30"), 4)], types={"t": "timestamp"}),
    LaterFile("days of two digits", "a.csv", text("d,n", "13.02.26,1", "01.02.25,2"), text("d,n", "13.02.1975,1"),
              [(Odd("13.02.1975"), 1)], said=["its years are 2000 to 2099"]),
    LaterFile("days, month first later", "a.csv", text("d,n", "13/02/2026,1", "01/02/2026,2"),
              text("d,n", "02/13/2026,1", "14-02-2026,2"), [(Odd("02/13/2026"), 1), (Odd("14-02-2026"), 2)]),
    LaterFile("epochs in seconds, then in milliseconds", "a.csv", text("created_at,n", "1767355200,1", "1767355201,2"),
              text("created_at,n", "1767355200123,1", "1767355200.5,2"),
              [(Odd("1767355200123"), 1), (at(2026, 1, 2, 12, 0, 0, 500_000), 2)]),
    LaterFile("negative zero, infinity and no number", "a.csv", text("x,n", "1e-9,1", "2.5,2"),
              text("x,n", "-0.0,1", "NaN,2", "1e400,3"), [(-0.0, 1), (Odd("NaN"), 2), (Odd("1e400"), 3)],
              types={"x": "double"}),
    LaterFile("decimal points become decimal commas", "a.csv", text("k;x", "a;1,5", "b;2,25"),
              text("k;x", "c;1.5", "d;1,234.5"), [("c", Odd("1.5")), ("d", Odd("1,234.5"))]),
    LaterFile("groups of three digits, then of two", "a.csv", table([["k", "x"], ["a", "1,234.50"], ["b", "2.25"]]),
              table([["k", "x"], ["c", "12,34,567.00"], ["d", "1.234,50"], ["e", "1,234"]]),
              [("c", Odd("12,34,567.00")), ("d", Odd("1.234,50")), ("e", Decimal(1234))]),
    # JSON.
    LaterFile("an API's object: members beside the rows", "a.json", json.dumps(OBJECT).encode(),
              json.dumps({"rows": [{"id": 7, "name": "x"}, None, {"id": "08"}]}).encode(),
              [(7, "x"), Named("expected a JSON object"), (Odd("08"), None)],
              said=["its other members are not loaded: meta, next"]),
    LaterFile("several objects in one later file", "a.json", json.dumps(OBJECT).encode(),
              b'{"rows":[{"id":1}]}{"rows":null}\n{"rows":[{"id":2}]}', [(1, None), (2, None)]),
    LaterFile("a file of lines with one line", "a.jsonl",
              lines({"id": 1, "of": [{"c": n, "d": "xyz"} for n in range(5)]}), lines({"id": 2, "of": []}, {"id": 3}),
              [(2, "[]"), (3, None)]),
    LaterFile("lines of another shape", "a.jsonl", lines({"id": 1, "n": 5}, {"id": 2, "n": 6}),
              b'{"id":3,"n":"7"}\n{"id":4,"n":true}\n{"id":5,"n":[1]}\n{"n":8,"x":1}\n[1]\n{"id":6,"n":5.0}\n',
              [(3, 7), (4, Odd("true")), (5, Odd("[1]")), (None, 8), Named("expected a JSON object"), (6, Odd("5.0"))]),
    LaterFile("half of a character in a sample", "a.jsonl", b'{"a":"\\ud83d\\ude00"}\n{"a":"\\ud83d"}\n',
              b'{"a":"x"}\n{"a":{"b":"\\ud83d"}}\n', [("x",), Named("half of a character")],
              said=["1 of 2 rows left out (row 2): not valid Unicode"]),
    LaterFile("prices keep their digits", "a.jsonl", b'{"p":1.10,"q":0.12345678901234567}\n{"p":2,"q":1.5}\n',
              b'{"p":1e2,"q":-0.0}\n{"p":1.23456,"q":1}\n', [(Odd("1e2"), Decimal(0)), (Odd("1.23456"), Decimal(1))],
              types={"p": "decimal(18,4)", "q": "decimal(18,17)"}),
    # Parquet.
    LaterFile("times that get nanoseconds", "a.parquet", parquet(id=["a"], t=pa.array([WHOLE], NS)),
              parquet(id=["b", "c"], t=pa.array([BELOW, None], NS)),
              [("b", Odd("2026-01-02 12:00:00.123456789Z")), ("c", None)], types={"t": "timestamp"}),
    LaterFile("times with nanoseconds are texts", "a.parquet", parquet(id=["a"], t=pa.array([BELOW], NS)),
              parquet(id=["b", "c"], t=pa.array([BELOW - 9, WHOLE], NS)),
              [("b", "2026-01-02 12:00:00.12345678"), ("c", "2026-01-02 12:00:00.123456")], types={"t": "string"},
              said=["have nanoseconds"]),
    LaterFile("nanoseconds in lists", "a.parquet", parquet(t=pa.array([[BELOW]], pa.list_(NS))),
              parquet(t=pa.array([[WHOLE, BELOW]], pa.list_(NS))),
              [('["2026-01-02 12:00:00.123456","2026-01-02 12:00:00.123456789"]',)]),
    LaterFile("ids that pandas wrote as doubles", "a.parquet", parquet(k=["a", "b"], n=pa.array([1.0, None])),
              parquet(k=["c"], n=pa.array([90_071_992_547_409_931])), [("c", Odd("90071992547409931"))],
              types={"n": "double"}),
    LaterFile("whole numbers that get places", "a.parquet", parquet(k=["a"], n=pa.array([1])),
              parquet(k=["b", "c"], n=pa.array([1.5, 3.0])), [("b", Odd("1.5")), ("c", 3)]),
    LaterFile("days that become times", "a.parquet", parquet(d=pa.array([date(2026, 1, 1)])),
              parquet(d=pa.array([datetime(2026, 1, 1, 5)])), [(Odd("2026-01-01 05:00:00.000000Z"),)]),
    LaterFile("a Parquet file without rows", "a.parquet", parquet(n=pa.array([1])),
              parquet(n=pa.array([], pa.int64())), []),
]  # fmt: skip

REFUSED = {
    "one column whose texts hold commas, or a title": (text("comment", "well, no", "yes, so"), "--header well"),
    "one character in GBK": (text("name,sex", "Li,男", "Wu,女", charset="gbk"), "1 lines are UTF-8, and 1 are not"),
    "Polish in cp1250": (text("city,n", "Łódź,1", "Biała,2", charset="cp1250"), "its encoding is uncertain"),
}
"""Samples that the command refuses, each with words in the reason."""
