"""Kinds of CSV and similar text."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from dagster_tidemark.sources.text_formats import Csv
from tests.proof.kinds.kind import Kind, members, packed, text

D = Decimal
BASE = {"n": "bigint", "text": "string"}
AMOUNTS = {"n": "bigint", "amount": "decimal(18,2)", "text": "string"}
TIMES = {"n": "bigint", "at": "timestamp", "text": "string"}
DAYS = {"n": "bigint", "day": "date", "text": "string"}
AT = datetime(2026, 1, 2, 13, 5, tzinfo=UTC)
DAY = date(2026, 1, 2)
EXPECTED = "expected"
MALFORMED = "the line is no row of this file"


def both(n: int, pad: str) -> tuple[int, str]:
    return n, pad


def plain(n: int, pad: str) -> str:
    return f"{n},{pad}"


def simple(name: str, **options: object) -> Kind:
    return text(name, BASE, plain, both, head="n,text\n", **options)  # type: ignore[arg-type]


def amount(name: str, written: str, value: str, **options: object) -> Kind:
    """Numbers in one form, beside the number and the pad, with semicolons."""
    form = {"separator": ";", **options.pop("form", {})}  # type: ignore[dict-item]
    return text(
        name,
        AMOUNTS,
        lambda n, pad: f"{n};{written};{pad}",
        lambda n, pad: (n, D(value), pad),
        head="n;amount;text\n",
        format=Csv(**form),
        **options,
    )  # type: ignore[arg-type]


def moment(name: str, written: str, pattern: object, at: datetime = AT, zone: str = "UTC", **options: object) -> Kind:
    """Times in one form."""
    form = Csv(separator="|", times={"at": pattern} if pattern else {}, timezone=zone)  # type: ignore[dict-item]
    return text(
        name,
        TIMES,
        lambda n, pad: f"{n}|{written}|{pad}",
        lambda n, pad: (n, at, pad),
        head="n|at|text\n",
        format=form,
        **options,
    )  # type: ignore[arg-type]


def day(name: str, written: str, pattern: str, **options: object) -> Kind:
    form = Csv(times={"day": pattern} if pattern else {})
    return text(
        name,
        DAYS,
        lambda n, pad: f"{n},{written},{pad}",
        lambda n, pad: (n, DAY, pad),
        head="n,day,text\n",
        format=form,
        **options,
    )  # type: ignore[arg-type]


def typed(
    name: str, kind: str, written: str, value: object, odd: tuple[tuple[str, str], ...] = (), **options: object
) -> Kind:
    columns = {"n": "bigint", "value": kind, "text": "string"}
    return text(
        name,
        columns,
        lambda n, pad: f"{n},{written},{pad}",
        lambda n, pad: (n, value, pad),
        head="n,value,text\n",
        odd=tuple((f"-1,{bad},x", why) for bad, why in odd),
        **options,
    )  # type: ignore[arg-type]


BOOKINGS = {"n": "bigint", "booked_on": "date", "amount": "decimal(18,2)", "text": "string"}
PREAMBLE = "Umsatzanzeige;Datei erstellt am: 01.12.2025\n\nIBAN;DE12 3456\n"

BANKS = [
    text(
        "German bank export: preamble, semicolons, decimal comma, days with two digits of the year",
        BOOKINGS,
        lambda n, pad: f'{n};02.01.26;-2.{n % 900 + 100},00;"Miete; {pad}"',
        lambda n, pad: (n, DAY, D(f"-2{n % 900 + 100}.00"), f"Miete; {pad}"),
        head=PREAMBLE + "Nr;Buchung;Betrag;Text\n",
        odd=[
            ("-1;2.1.26;1,00;x", "booked_on: expected date written as dd.MM.yy"),
            ("-1;31.11.26;1,00;x", "booked_on: expected date"),
            ("-1;02.01.26;2.647;x", "found 2.647"),
            ("-1;02.01.26;1.5;x", "found 1.5"),
            ("-1;02.01.26;5,00-;x", "found 5,00-"),
            ("-1;02.01.26;5,00 EUR;x", "found 5,00 EUR"),
        ],
        names={"n": ["Nr"], "booked_on": ["Buchung"], "amount": ["Betrag"], "text": ["Text"]},
        format=Csv(separator=";", header="Nr;", decimal=",", thousands=".", times={"booked_on": "dd.MM.yy"}),
    ),
    text(
        "DATEV: a line of settings above the header, cp1252, decimal comma without groups",
        BOOKINGS,
        lambda n, pad: f'{n};"02012026";{n},50;"Bürobedarf {pad}"',
        lambda n, pad: (n, DAY, D(f"{n}.50"), f"Bürobedarf {pad}"),
        head='"EXTF";700;21;"Buchungsstapel"\nn;booked_on;amount;text\n',
        charset="cp1252",
        encoding="cp1252",
        format=Csv(separator=";", skip_lines=1, decimal=",", times={"booked_on": "ddMMyyyy"}),
    ),
    amount(
        "Swiss bank: apostrophes between groups",
        "1'234.50",
        "1234.50",
        form={"thousands": "'"},
        odd=[("-1;1'23.50;x", "found 1'23.50")],
    ),
    amount(
        "Swiss bank: typographic apostrophes between groups",
        "1\u2019234.50",
        "1234.50",
        form={"thousands": "'"},
        odd=[("-1;1\u201923.50;x", "found 1\u201923.50")],
    ),
    amount(
        "French bank: no-break spaces between groups",
        "-1\u202f234,50",
        "-1234.50",
        form={"thousands": " ", "decimal": ","},
        odd=[("-1;1 23,50;x", "found 1 23,50")],
    ),
    amount(
        "PayPal: byte order mark, quoted values, decimal comma",
        '"1.234,56"',
        "1234.56",
        charset="utf-8-sig",
        form={"thousands": ".", "decimal": ","},
    ),
    amount(
        "English accounts: commas between groups",
        '"1,234.50"',
        "1234.50",
        form={"thousands": ","},
        odd=[
            ("-1;1,23,456.00;x", "found 1,23,456.00"),
            ("-1;(5.00);x", "found (5.00)"),
            ("-1;$5.00;x", "found $5.00"),
            ("-1;5.00 CR;x", "found 5.00 CR"),
        ],
    ),
    amount("decimal commas in a feed of decimal points", "7.25", "7.25", odd=[("-1;7,25;x", "found 7,25")]),
    text(
        "MT940 as CSV: amounts with a letter for debit",
        AMOUNTS,
        lambda n, pad: f"{n};12,50;{pad}",
        lambda n, pad: (n, D("12.50"), pad),
        head="n;amount;text\n",
        odd=[("-1;12,50D;x", "found 12,50D")],
        format=Csv(separator=";", decimal=","),
    ),
    text(
        "a total in the last line",
        AMOUNTS,
        lambda n, pad: f"{n};1,00;{pad}",
        lambda n, pad: (n, D("1.00"), pad),
        head="n;amount;text\n",
        odd=[("Summe;84000,00", MALFORMED), ("Summe;84000,00;", "n: expected bigint")],
        format=Csv(separator=";", decimal=","),
    ),
    text(
        "Google Ads: lines above the header, -- for nothing, percents",
        AMOUNTS,
        lambda n, pad: f"{n}\t--\t{pad}",
        lambda n, pad: (n, None, pad),
        head="Report\nJanuary 1, 2026\nn\tamount\ttext\n",
        odd=[("-1\t5.2%\tx", "found 5.2%"), ("Total: 5", MALFORMED)],
        charset="utf-16",
        encoding="utf-16",
        key="f.csv",
        format=Csv(separator="\t", skip_lines=2, nulls=("--",)),
    ),
]

TIMES_KINDS = [
    moment(
        "bike-share trips: month first, no zone",
        "1/2/2026 8:05",
        "M/d/yyyy H:mm",
        zone="America/New_York",
        odd=[("-1|13/2/2026 8:05|x", "found 13/2/2026 8:05"), ("-1|3/8/2026 2:30|x", "found 3/8/2026 2:30")],
    ),
    moment(
        "bike-share trips: fractions that are there or not",
        "2026-01-02 13:05:00",
        "yyyy-MM-dd HH:mm:ss[.S]",
        odd=[("-1|2026-01-02 13:05|x", "found 2026-01-02 13:05")],
    ),
    moment("half days", "1/2/2026 1:05 PM", "M/d/yyyy h:mm a", odd=[("-1|1/2/2026 13:05 PM|x", "13:05 PM")]),
    moment(
        "names of months", "02-Jan-2026 13:05", "dd-MMM-yyyy HH:mm", odd=[("-1|02-Mai-2026 13:05|x", "02-Mai-2026")]
    ),
    moment("times of mails", "Fri, 02 Jan 2026 13:05:00 +0000", "EEE, dd MMM yyyy HH:mm:ss Z"),
    moment("Shopify: an offset after a space", "2026-01-02 14:05:00 +0100", "yyyy-MM-dd HH:mm:ss Z"),
    moment(
        "times of a zone, one that is skipped",
        "2026-01-02 14:05:00",
        None,
        zone="Europe/Berlin",
        odd=[("-1|2026-03-29 02:30:00|x", "found 2026-03-29 02:30:00")],
    ),
    moment("epoch seconds", "1767359100", "epoch seconds", odd=[("-1|2026-01-02|x", "found 2026-01-02")]),
    moment("epoch milliseconds", "1767359100000", "epoch millis"),
    moment("epoch microseconds", "1767359100000000", "epoch micros"),
    moment("epoch nanoseconds", "1767359100000000000", "epoch nanos"),
    moment(
        "milliseconds until a year, microseconds since",
        "2026-01-02T13:05:00Z",
        ("yyyy-MM-dd'T'HH:mm:ssX", "epoch millis", "epoch micros"),
        odd=[("-1|1767359100000|x", "found 1767359100000")],
    ),
    moment("ISO 8601 with offsets", "2026-01-02T14:05:00+01:00", None, odd=[("-1|2026-01-02T25:00:00|x", "25:00:00")]),
    day(
        "days without separators",
        "20260102",
        "yyyyMMdd",
        odd=[("-1,20261301,x", "found 20261301"), ("-1,2026012,x", "found 2026012")],
    ),
    day("GTFS calendar, byte order mark", "20260102", "yyyyMMdd", charset="utf-8-sig"),
    day("days as numbers of a spreadsheet", "2026-01-02", "", odd=[("-1,46024,x", "found 46024")]),
    day("days that no month has", "2026-01-02", "", odd=[("-1,2026-02-30,x", "found 2026-02-30")]),
    day("years beyond 9999", "2026-01-02", "", odd=[("-1,10000-01-02,x", "found 10000-01-02")]),
]

LAYOUTS = [
    simple("plain CSV", odd=[("-1", MALFORMED), ("-1,a,b", MALFORMED), ('-1,"a', "unterminated quote")]),
    simple("line ends of Windows", end="\r\n"),
    simple("line ends of old Macs", end="\r"),
    simple("byte order mark", charset="utf-8-sig"),
    simple("blank lines", foot="\n\n"),
    simple("gzip", pack=packed, key="f.csv.gz"),
    simple("gzip of several members", pack=members, key="f.CSV.GZ"),
    simple("endings in capitals", key="f.CSV"),
    simple("latin-1", charset="latin-1", encoding="latin-1"),
    simple("UTF-16, big-endian", charset="utf-16-be", encoding="utf-16-be"),
    text(
        "Excel's Unicode text: UTF-16, tabs",
        BASE,
        lambda n, pad: f"{n}\tZoë 漢 {pad}",
        lambda n, pad: (n, f"Zoë 漢 {pad}"),
        head="n\ttext\n",
        charset="utf-16",
        end="\r\n",
        encoding="utf-16",
        format=Csv(separator="\t"),
    ),
    text(
        "cp1252 with a euro sign",
        BASE,
        lambda n, pad: f"{n},€ „{pad}“",
        lambda n, pad: (n, f"€ „{pad}“"),
        head="n,text\n",
        charset="cp1252",
        encoding="cp1252",
    ),
    text(
        "invalid UTF-8 in a value",
        BASE,
        plain,
        both,
        head="n,text\n",
        charset="latin-1",
        odd=[("-1,Müller", "not valid UTF-8")],
    ),
    text(
        "quotes, doubled quotes, separators in quotes",
        BASE,
        lambda n, pad: f'"{n}","a ""b"", {pad}"',
        lambda n, pad: (n, f'a "b", {pad}'),
        head='"n","text"\n',
    ),
    text(
        "quotes inside of values",
        BASE,
        lambda n, pad: f'{n},6" pipe {pad}',
        lambda n, pad: (n, f'6" pipe {pad}'),
        head="n,text\n",
    ),
    text(
        "single quotes",
        BASE,
        lambda n, pad: f"{n},'a, {pad}'",
        lambda n, pad: (n, f"a, {pad}"),
        head="n,text\n",
        format=Csv(quote="'"),
    ),
    text(
        "backslashes before quotes",
        BASE,
        lambda n, pad: f'{n},"a \\"b\\", {pad}"',
        lambda n, pad: (n, f'a "b", {pad}'),
        head="n,text\n",
        format=Csv(escape="\\"),
    ),
    text(
        "MySQL's outfile: tabs, backslashes, \\N",
        AMOUNTS,
        lambda n, pad: f"{n}\t\\N\ta\\\t{pad}",
        lambda n, pad: (n, None, f"a\t{pad}"),
        format=Csv(separator="\t", header=False, quote=None, escape="\\", nulls=(r"\N",)),
    ),
    text(
        "IMDb: tabs, \\N, quotes without meaning",
        AMOUNTS,
        lambda n, pad: f'{n}\t\\N\t"{pad}',
        lambda n, pad: (n, None, f'"{pad}'),
        head="n\tamount\ttext\n",
        key="f.tsv",
        suffixes=(".tsv",),
        format=Csv(separator="\t", quote=None, nulls=(r"\N",)),
    ),
    text(
        "Hive's text: control characters",
        AMOUNTS,
        lambda n, pad: f"{n}\x01\\N\x01{pad}",
        lambda n, pad: (n, None, pad),
        format=Csv(separator="\x01", header=False, quote=None, nulls=(r"\N",)),
    ),
    text(
        "no header, bars",
        BASE,
        lambda n, pad: f"{n}|{pad}",
        both,
        key="f.txt",
        suffixes=(".txt",),
        odd=[("1|2|3", MALFORMED)],
        format=Csv(separator="|", header=False),
    ),
    text(
        "TPC: a bar after each value",
        BASE,
        lambda n, pad: f"{n}|{pad}|",
        both,
        key="f.tbl",
        suffixes=(".tbl",),
        odd=[("-1|x", MALFORMED)],
        format=Csv(separator="|", header=False, trailing_separator=True),
    ),
    text(
        "geonames: no header, fields that are not declared",
        BASE,
        lambda n, pad: f"x\t{n}\t\t{pad}",
        both,
        format=Csv(separator="\t", header=False, quote=None, fields=("a", "n", "b", "text")),
    ),
    text("a separator too many in each line", BASE, plain, both, head="n,text\n", odd=[("-1,a,", MALFORMED)] * 2),
    text(
        "sep=; above the header",
        BASE,
        lambda n, pad: f"{n};{pad}",
        both,
        head="sep=;\nn;text\n",
        format=Csv(separator=";", skip_lines=1),
    ),
    text("comments", BASE, plain, both, head="# by the till\nn,text\n# noon\n", format=Csv(comment="#")),
    text(
        "IIS logs: directives, spaces",
        TIMES,
        lambda n, pad: f"{n} 2026-01-02T13:05:00Z {pad}",
        lambda n, pad: (n, AT, pad),
        head="#Software: IIS\n#Fields: n at text\n",
        key="f.log",
        suffixes=(".log",),
        format=Csv(separator=" ", header=False, comment="#"),
    ),
    text(
        "IIS logs: the columns in another order, and one more",
        TIMES,
        lambda n, pad: f"{pad} 200 {n} 2026-01-02T13:05:00Z",
        lambda n, pad: (n, AT, pad),
        head="#Software: IIS\n#Fields: text sc-status n at\n",
        key="f.log",
        suffixes=(".log",),
        format=Csv(separator=" ", header=False, comment="#"),
    ),
    text(
        "CloudFront: comments, tabs, gzip",
        TIMES,
        lambda n, pad: f"{n}\t2026-01-02T13:05:00Z\t{pad}",
        lambda n, pad: (n, AT, pad),
        head="#Version: 1.0\n#Fields: n at text\n",
        key="f.gz",
        suffixes=(".gz",),
        pack=packed,
        format=Csv(separator="\t", header=False, comment="#", quote=None),
    ),
    text(
        "load balancer logs: spaces, quoted requests",
        TIMES,
        lambda n, pad: f'{n} 2026-01-02T13:05:00Z "GET /{pad}"',
        lambda n, pad: (n, AT, f"GET /{pad}"),
        key="f.log",
        suffixes=(".log",),
        format=Csv(separator=" ", header=False),
    ),
    text(
        "Apache logs: times in brackets over two fields",
        TIMES,
        lambda n, pad: f'{n} [02/Jan/2026:13:05:00 +0000] "GET /{pad}"',
        lambda n, pad: (n, AT, f"GET /{pad}"),
        key="f.log",
        suffixes=(".log",),
        format=Csv(
            separator=" ", header=False, fields=("n", "at", "zone", "text"), times={"at": "'['dd/MMM/yyyy:HH:mm:ss"}
        ),
    ),
    text(
        "VPC flow logs: header, spaces, dashes",
        TIMES,
        lambda n, pad: f"{n} 1767359100 {pad}",
        lambda n, pad: (n, AT, pad),
        head="n at text\n",
        odd=[("- NODATA -", "at: expected timestamp")],
        format=Csv(separator=" ", nulls=("-",), times={"at": "epoch seconds"}),
    ),
    text(
        "Shopify: values over several lines",
        BASE,
        lambda n, pad: f'{n},"first\nsecond, {pad}"',
        lambda n, pad: (n, f"first\nsecond, {pad}"),
        head="n,text\n",
        multiline=True,
    ),
    text(
        "returns inside quotes",
        BASE,
        lambda n, pad: f'{n},"a\rb\r\n{pad}"',
        lambda n, pad: (n, f"a\rb\r\n{pad}"),
        head="n,text\n",
        end="\r\n",
        multiline=True,
    ),
    text(
        "a value over two lines in a feed of single lines",
        BASE,
        plain,
        both,
        head="n,text\n",
        odd=[
            ('-1,"first', "unterminated quote"),
            ('5,second"', "the line continues a value"),
        ],
    ),
    text("columns that were renamed", BASE, plain, both, head="Nr,Label\n", names={"n": ["Nr"], "text": ["Label"]}),
    text(
        "two names of one column",
        BASE,
        lambda n, pad: f"{n},{n},{pad}",
        both,
        head="n,Nr,text\n",
        names={"n": ["Nr"]},
        refused="both names of the column",
    ),
    text(
        "a column twice",
        BASE,
        lambda n, pad: f"{n},{n},{pad}",
        both,
        head="n,n,text\n",
        refused="is in the header twice",
    ),
    text(
        "blanks around names of columns",
        BASE,
        lambda n, pad: f"{n}, {pad}",
        lambda n, pad: (n, f" {pad}"),
        head="n, text\n",
    ),
    text("names of columns in capitals", BASE, plain, both, head="N,TEXT\n", refused="none of the declared columns"),
    text(
        "semicolons in a feed of commas",
        BASE,
        lambda n, pad: f"{n};{pad}",
        both,
        head="n;text\n",
        refused="let the feed say format=Csv(separator=';')",
    ),
    text(
        "a page of an error",
        BASE,
        lambda n, pad: f"<p>{pad}</p>",
        both,
        head="<!DOCTYPE html>\n<html>\n",
        refused="none of the declared columns",
    ),
    text(
        "a workbook called .csv",
        BASE,
        plain,
        both,
        charset="latin-1",
        head="PK\x03\x04\x14\x00\x06\x00",
        refused=""" is """,
    ),
    text("gzip called .csv", BASE, plain, both, head="n,text\n", pack=packed, refused=" is not UTF-8 text"),
    text("text called .csv.gz", BASE, plain, both, head="n,text\n", key="f.csv.gz", refused="no gzip file"),
    text(
        "gzip that ends early",
        BASE,
        plain,
        both,
        head="n,text\n",
        key="f.csv.gz",
        pack=lambda body: packed(body)[:-9],
        refused="truncated",
    ),
    text(
        "UTF-8 in a feed of UTF-16",
        BASE,
        plain,
        both,
        head="n,text\n",
        encoding="utf-16",
        refused="none of the declared or is not utf-16-le text",
    ),
    text(
        "a value of 200 KB",
        BASE,
        lambda n, pad: f"{n},{pad * 700 if n == 3 else pad}",
        lambda n, pad: (n, pad * 700 if n == 3 else pad),
        head="n,text\n",
    ),
    text(
        "a table that begins nowhere",
        BASE,
        plain,
        both,
        head="n,text\n",
        format=Csv(header="Nr;"),
        refused="begins with 'Nr;'",
    ),
]

VALUES = [
    typed(
        "texts for missing values of spreadsheets",
        "double",
        "#N/A",
        None,
        (("#NAME?", "found #NAME?"),),
        format=Csv(nulls=("#N/A", "#DIV/0!")),
    ),
    typed("null as market data writes it", "double", "null", None, format=Csv(nulls=("null",))),
    typed("texts for missing values between blanks", "int", "  -999", None, format=Csv(nulls=("-999",))),
    typed(
        "whole numbers at the edge",
        "bigint",
        "9223372036854775807",
        2**63 - 1,
        (("9223372036854775808", EXPECTED), ("1.5e400", EXPECTED), ("12x", EXPECTED)),
        exact=True,
    ),
    typed("int at the edge", "int", "-2147483648", -(2**31), (("2147483648", EXPECTED),), exact=True),
    typed("places that a decimal lacks", "decimal(18,2)", "1.10", D("1.10"), (("1.005", "1.005"),), exact=True),
    typed("leading zeros in numbers", "bigint", "7", 7, (("007", "007"),), exact=True),
    typed("leading zeros in texts", "string", "02115", "02115"),
    typed("infinity", "double", "Infinity", float("inf"), (("much", "found much"),)),
    typed("exponents", "double", "1.5e-3", 0.0015),
    typed("truth", "boolean", "TRUE", True, (("maybe", "found maybe"),)),
    typed("GTFS: hours above 24 as texts", "string", "25:10:00", "25:10:00"),
    typed("GTFS: hours above 24 as times", "timestamp", "2026-01-02T13:05:00Z", AT, (("25:10:00", "found 25:10:00"),)),
    typed("Eurostat: numbers with flags", "double", ":", None, (("12.3 p", "found 12.3 p"),), format=Csv(nulls=(":",))),
    typed("thousandths of a currency", "decimal(18,3)", "0.001", D("0.001")),
    typed(
        "times with nanoseconds",
        "timestamp",
        "2026-01-02T13:05:00.000001Z",
        AT + timedelta(microseconds=1),
        (("2026-01-02T13:05:00.000000001Z", "000000001"),),
        exact=True,
    ),
]

KINDS = [*BANKS, *TIMES_KINDS, *LAYOUTS, *VALUES]
