"""CSV over Arrow against the exact rule, `reference.records_of` and `Dialect.fields_of`, line by line."""

import gzip
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagster_tidemark.lakehouse.parsing import csv_rows, text_blocks
from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, Part
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.text import NO_ROW, charset_of
from tests.tidemark.lakehouse.parsing.reference import records_of
from tests.tidemark.lakehouse.parsing.sources import InMemory, cut

Found = list[tuple[tuple[str | None, ...], str | None, str | None]]

HEADER = ["a", "b", "c"]
DECLARED = {"c": "string", "a": "bigint", "absent": "string"}
SHAPE = Shape("csv", tuple((name, "string") for name in HEADER))

PIECES = st.sampled_from(
    [
        '"',
        '""',
        ",",
        "\n",
        "\r\n",
        "\r",
        " ",
        "x",
        "1",
        "é",
        "\0",
        "\\",
        "😀",
        "\ufeff",
        'q" ',
        '"a,b"',
        "a,b,c\n",
        ',"x\ny",z\n',
    ]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join)


def expected(text: bytes, encoding: str, *, multiline: bool) -> Found:
    """What the exact rule says of the rows behind the header: values, fault, and the record where there is a fault."""
    found: Found = []
    for record, fault in records_of(text, encoding=encoding, multiline=multiline, json=False)[1:]:
        fields = [] if fault else Dialect().fields_of(record)
        values = f"{len(fields)} value{'s' * (len(fields) != 1)}"
        remedy = "; a value with ',' in it needs quotes" if len(fields) > len(HEADER) else ""
        why = fault or (f"{NO_ROW}: it has {values}, the header 3{remedy}" if len(fields) != len(HEADER) else None)
        row = {} if why else dict(zip(HEADER, fields, strict=True))
        found.append((tuple(row.get(c) or None for c in DECLARED), why, record if why else None))
    if found and multiline and found[-1][1]:  # behind the last line end there is no line
        values, why, record = found[-1]
        found[-1] = (values, why, re.sub(r"(\r\n|\r|\n)\Z", "", record or ""))
    return found


def read(source: InMemory, encoding: str, *, multiline: bool = False, part: Part = WHOLE) -> Found:
    declared = DeclaredContent(DECLARED, encoding, multiline)
    shape = Shape("csv", SHAPE.columns, charset_of(encoding, source.body[:3]))
    found: Found = []
    for rows in csv_rows.rows_of(declared, shape, source, part):
        faults = rows.faults.to_pylist() if rows.faults is not None else [None] * rows.count
        records = rows.records.to_pylist()
        values = list(zip(*(rows.columns[c].to_pylist() for c in DECLARED), strict=True))
        found += [(v, f, r if f else None) for v, f, r in zip(values, faults, records, strict=True)]
        good = [(v, r) for v, f, r in zip(values, faults, records, strict=True) if not f]
        assert all(csv_rows.texts_of(declared, shape, record) == list(texts) for texts, record in good)
    return found


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize("block", [1, 7, 64, 4 << 20])
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
@example(text='1,"x\n2,3\n4,5" 6,7\n8,9,0\n')
@example(text='1,5" pipe,x\n2,"a""b",3\n')
def test_parsed_rows_equal_the_rows_of_the_reference_parser(text: str, block: int, multiline: bool) -> None:
    body = "a,b,c\n" + text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK", block)
        source = InMemory("f.csv", body.encode())
        assert read(source, "utf-8", multiline=multiline) == expected(body.encode(), "utf-8", multiline=multiline)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "cp1252", "latin-1"])
@settings(max_examples=80, deadline=None)
@given(text=TEXTS)
def test_text_in_other_encodings_is_parsed_like_the_reference(text: str, encoding: str) -> None:
    body = ("a,b,c\n" + text).encode(encoding, errors="ignore")
    assert read(InMemory("f.csv", body), encoding) == expected(body, encoding, multiline=False)


@pytest.mark.parametrize("multiline", [False, True])
@settings(max_examples=150, deadline=None)
@given(
    body=st.lists(
        st.sampled_from([b"1,2,3\n", b"\xff,x,\n", b'"\xe9\n', b'a"b,c,d\n', b'"', b"\xc3\xa9,,\r\n"]), max_size=30
    )
)
def test_undecodable_bytes_are_parsed_like_the_reference(body: list[bytes], multiline: bool) -> None:
    text = b"a,b,c\n" + b"".join(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK", 32)
        assert read(InMemory("f.csv", text), "utf-8", multiline=multiline) == expected(
            text, "utf-8", multiline=multiline
        )


@pytest.mark.parametrize("number", [2, 7, 50])
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_file_read_in_parts_gives_the_rows_of_the_whole_file(text: str, number: int) -> None:
    body = ("\ufeffa,b,c\n" + text + "\n1,2,3\n" * 5).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "_LOOK", 3)
        source = InMemory("f.csv", body)
        parts = [row for part in cut(len(body), number) for row in read(source, "utf-8", part=part)]
        assert parts == read(source, "utf-8")


def test_compressed_file_gives_the_same_rows_as_the_plain_file() -> None:
    body = b"a,b,c\n" + b"1,2,3\n" * 1000
    whole = read(InMemory("f.csv", body), "utf-8")
    assert len(whole) == 1000
    assert read(InMemory("f.csv.gz", gzip.compress(body)), "utf-8") == whole
