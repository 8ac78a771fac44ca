"""No type that is proposed loses a digit of a sample's values, whatever they look like."""

import re
from decimal import Decimal
from random import Random

from dagster_tidemark.lakehouse.readers.file_format import UntypedText
from dagster_tidemark.scaffold.column_types import type_of

LIKELY = [
    "0",
    "00",
    "01",
    "1",
    "-1",
    "+1",
    "1.0",
    "1.10",
    "01.5",
    "1e5",
    "1E-3",
    "e5",
    ".5",
    "5.",
    "-0",
    "0.0",
    "-0.0",
    "2026-10-01",
    "2026-02-30",
    "2026-10-01T07:00",
    "true",
    "false",
    "NaN",
    "1_000",
    "1,5",
    "1٢",
    "−5",
    "1e400",
    "0.1234567890123456789",
    "12345678901234567.5",
    "2026-10-01T07:00:00.1234567",
] + ["9" * digits for digits in (18, 19, 38, 39)]
LETTERS = "0123456789.-+eE:TZ/ xn"


def is_kept(text: str, kind: str) -> bool:
    """Return True if a value of a type keeps a text's value exactly, judged by Python's own numbers."""
    if kind == "bigint":
        return str(int(text)) == text and abs(int(text)) < 2**63
    if kind == "double":
        return Decimal(repr(float(text))) == Decimal(text)
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        digits, places = map(int, found.groups())
        whole, _, fraction = text.lstrip("-").partition(".")
        is_whole = places or str(int(text)) == text
        return bool(is_whole) and len(fraction) <= places and len(whole.lstrip("0")) <= digits - places
    return True


def test_inferred_column_type_keeps_every_digit() -> None:
    random, kinds = Random(34), set()
    for _ in range(20_000):
        texts = [
            random.choice(LIKELY) if random.random() < 0.7 else "".join(random.choices(LETTERS, k=random.randint(1, 6)))
            for _ in range(random.randint(1, 4))
        ]
        kind = type_of(random.choice(["value", "version_id", "zip"]), [UntypedText(text) for text in texts])
        assert all(is_kept(text, kind) for text in texts), (texts, kind)
        if kind == "double":
            assert any("." in text or "e" in text.lower() for text in texts), "whole numbers are no doubles"
        kinds.add(kind)
    assert kinds >= {"bigint", "decimal(38,0)", "decimal(18,4)", "double", "string", "date", "timestamp", "boolean"}
