"""Kinds of text of fixed width: exports of mainframes, banks and statistics offices."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from dagster_tidemark.sources.text_formats import FixedWidth
from tests.proof.kinds.kind import Kind, packed, text

D = Decimal
WIDE = 300
"""Width of the column `text`, into which the long pad fits."""

BASE = {"n": "bigint", "text": "string"}
PLACES: dict[str, Any] = {"n": (1, 8), "text": (9, WIDE)}
SHORT, LONG = "it has 4 characters, and the feed's columns need 308", "the feed's columns end at 308"


def line(n: int, pad: str) -> str:
    return f"{n:>8}{pad:<{WIDE}}"


def simple(name: str, line_of: Any = line, *, form: dict[str, Any] | None = None, **options: Any) -> Kind:
    format = FixedWidth(**{"columns": PLACES, **(form or {})})
    options = {"key": "f.fwf", **options}
    return text(name, BASE, line_of, lambda n, pad: (n, pad), format=format, **options)


def typed(
    name: str,
    kind: str,
    written: str,
    value: object,
    *,
    odd: tuple[tuple[str, str], ...] = (),
    form: dict[str, Any] | None = None,
    **options: Any,
) -> Kind:
    """A value of 20 characters between the number and the pad."""
    columns = {"n": 8, "value": 20, "text": WIDE}
    return text(
        name,
        {"n": "bigint", "value": kind, "text": "string"},
        lambda n, pad: f"{n:>8}{written:<20}{pad:<{WIDE}}",
        lambda n, pad: (n, value, pad),
        odd=[(f"{-1:>8}{bad:<20}{'x':<{WIDE}}", why) for bad, why in odd],
        format=FixedWidth(columns=columns, **(form or {})),
        key="f.fwf",
        **options,
    )


KINDS = [
    simple("numbers to the right, texts to the left", odd=[("  12", SHORT), (line(1, "x") + "y", LONG)]),
    simple("widths in the order of the line", form={"columns": {"n": 8, "text": WIDE}}),
    typed("numbers with zeros ahead", "bigint", "000012", 12),
    simple("line ends of Windows", end="\r\n"),
    simple("blank lines", foot="\n" + " " * 308 + "\n"),
    simple("blanks after the last column", lambda n, pad: line(n, pad) + "   "),
    simple("a byte order mark", head="\ufeff"),
    simple("gzip", pack=packed, key="f.fwf.gz"),
    simple("another ending, in capitals", key="f.TXT", suffixes=(".txt",)),
    simple("lines above the rows", head="EXPORT 2026-01-02\n\n", form={"skip_lines": 2}),
    simple("a line with a date above the rows", odd=[("2026", SHORT)]),
    simple("the rest of the line", lambda n, pad: f"{n:>8}{pad}", form={"columns": {"n": (1, 8), "text": (9, None)}}),
    simple("lines without blanks at their end", lambda n, pad: f"{n:>8}{pad}", form={"is_trimmed": True}),
    simple(
        "columns of the line that are not declared",
        lambda n, pad: f"{n:>8}AB{pad:<{WIDE}}",
        form={"columns": {"n": (1, 8), "kind": (9, 2), "text": (11, WIDE)}},
    ),
    simple(
        "characters between columns",
        lambda n, pad: f"{n:>8}AB{pad:<{WIDE}}",
        form={"columns": {"n": (1, 8), "text": (11, WIDE)}},
    ),
    typed("latin-1", "string", "Zürich", "Zürich", charset="latin-1", encoding="latin-1"),
    typed("UTF-8: a letter is one character", "string", "Zürich", "Zürich"),
    typed("UTF-16", "string", "Zürich", "Zürich", charset="utf-16-le", encoding="utf-16-le"),
    typed("quotes and commas without meaning", "string", '"a, b', '"a, b'),
    typed("blank values", "double", "", None),
    typed("amounts", "decimal(18,2)", "             -19.99 ", D("-19.99"), odd=(("19.99CR", "found 19.99CR"),)),
    typed(
        "decimal commas",
        "decimal(18,2)",
        "1.234,50",
        D("1234.50"),
        odd=(("1,2,3", "found 1,2,3"),),
        form={"decimal": ",", "thousands": "."},
    ),
    typed(
        "days without separators",
        "date",
        "20260102",
        date(2026, 1, 2),
        odd=(("20261301", "found 20261301"),),
        form={"times": {"value": "yyyyMMdd"}},
    ),
    typed("texts for missing values", "double", "9999.9", None, form={"nulls": ("9999.9",)}),
    typed("times", "timestamp", "2026-01-02T13:05:00Z", datetime(2026, 1, 2, 13, 5, tzinfo=UTC)),
    Kind(
        "text of fixed width in a feed without places",
        BASE,
        lambda count, pad: "".join(line(n, pad(n)) + "\n" for n in range(count)).encode(),
        key="f.fwf",
        refused="let the feed say format=FixedWidth(columns={...})",
    ),
    simple("a binary file", lambda n, pad: "\0" * 308, refused="the first line is binary, not text"),
]
