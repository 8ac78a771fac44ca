"""JSON over Arrow against the exact rule for a text in hand (`reference`), record by record."""

import gzip
import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, KeysView
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dagster_tidemark.lakehouse.parsing import json_documents, json_objects, json_rows, text_blocks
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, Part
from dagster_tidemark.lakehouse.readers import text
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import (
    HALF_A_CHARACTER,
    NO_END,
    NO_OBJECT,
    TRUNCATED,
    charset_of,
    not_valid,
)
from dagster_tidemark.lakehouse.readers.values import nested_as_written
from tests.tidemark.lakehouse.parsing.reference import records_of
from tests.tidemark.lakehouse.parsing.sources import InMemory, cut

Row = tuple[tuple[str | None, ...], str | None, str | None]
Found = list[Row] | KeysView[str]

COLUMNS = {"b": "string", "a": "bigint", "a|b*": "double", "é": "string", "$": "string", "absent": "string"}
LINES = Shape("json")
OVER_LINES = replace(LINES, is_over_lines=True)

BLANK = st.sampled_from(["", "", "", " ", "\t", "  ", " \t "])
KEYS = [
    *('"a"', '"a"', '"a"', '"b"', '"b"', '"é"', '"a|b*"', '"$"', '""', '"x"', '"A"', '"a:,}"', '"(.*)$"'),
    *('"\\u0061"', '"\\"a"', "a", "'a'"),
]
PLAIN = [
    *("1", "0", "-0", "-1.50", "1e5", "1.5E-07", "12345678901234567890123.10", "true", "false", "null", '""', '"x"'),
    *('"null"', '"1"', '"a, b: {c} [d]"', '"ü漢😀\u2028\x7f\ufeff"', '"\\n\\t\\/\\\\"', '"say \\"x\\": 1,"'),
    *('"\\\\"', '"\\\\\\\\"', '"\\\\\\""', '"\\ud83d\\ude00"', '"\\uD7ff"', '"\\u0000"', '"\\u00fc"'),
]
NESTED = [
    *("{}", "[]", "[ ]", "[1,null,true]", '{"a": 1.50, "z": [1,  "\\u00fc}"]}', '[{"a":[{"a": 2}]}, "]"]'),
    '{"a":{"a":{"a":{"a":1}}}}',
]
ODD = [
    *("01", "1.", ".5", "+1", "-", "1e", "0x1", "NaN", "Infinity", "-Infinity", "True", "nul", "", "'x'", '"', '"\\'),
    *('"\\x"', '"\\u12"', '"\\u12g4"', '"\\ud83d"', '"\\ude00"', '"\\ud83d\\ud83d\\ude00"', '"\x01"', '"\t"', '"\0"'),
    *("[1,]", '{"a":"\\ud83d"}', '["\\uDE00"]', '{"a"}', "[[[[[1]]]]]", "[", "}", "１", '"\x1f"', "1\x0b", "\0", "1 2"),
]
KEY = st.sampled_from(KEYS)
SOUND = st.sampled_from(PLAIN + NESTED)
ANY = st.sampled_from(PLAIN * 4 + NESTED * 2 + ODD)


def objects(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(BLANK, KEY, BLANK, BLANK, value, BLANK).map(lambda m: f"{m[0]}{m[1]}{m[2]}:{m[3]}{m[4]}{m[5]}")
    return st.tuples(BLANK, st.lists(member, max_size=5), BLANK, BLANK).map(
        lambda o: f"{o[0]}{{{o[2]}{','.join(o[1])}}}{o[3]}"
    )


LISTS = st.lists(objects(ANY), max_size=4).map(lambda found: f"[{','.join(found)}]")
JUNK = st.sampled_from(
    [
        *("", "", " ", "\x0b", "\0", "\x1f\t", "[", "]", "{", "}", ",", "5", "null", '"{}"', "words", "\ufeff{}"),
        *("[{},5]", "[[]]", '{"a":1}{"a":2}', '{"a":1} {"a":2}', '{"a":1},', '{"a":1} x', '[{"a":1}] [{"a":2}]'),
        *('[{"a":"\\ud83d"},{"a":1}]', '{"x":"\\ud83d","a":1}', '{"\\ud83d":"x"}', "{1:2}", '{"a":1,}', '{,"a":1}'),
        *('{"a" 1}', '{"a":1 "b":2}', '{"a":1\0}', '\\"{', '{"a\\', '"\\\\"[', '\\\\"}'),
    ]
)


def cut_short(line: tuple[str, int, int]) -> str:
    whole, at, length = line
    return whole[:at] + whole[at + length :]


BROKEN = st.tuples(objects(ANY), st.integers(0, 40), st.integers(0, 3)).map(cut_short)
LINE = st.one_of(objects(SOUND), objects(SOUND), objects(ANY), LISTS, JUNK, BROKEN)
END = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n"])
TEXTS = st.lists(st.tuples(LINE, END), max_size=12).map(lambda lines: "".join(a + b for a, b in lines))


def reference(body: bytes, shape: Shape = LINES, encoding: str = "utf-8") -> Found:
    """The exact rule for a text in hand: values, fault, and the record where there is a fault.

    Returns:
        The rows; or the names of all members, if there are objects and none has a declared column.
    """
    found: list[Row] = []
    names: dict[str, None] = {}
    for record, fault in records_of(body, encoding=encoding, multiline=shape.is_over_lines, json=True):
        for n, row in enumerate([None] if fault else objects_of(record)):
            names |= dict.fromkeys(name.replace("\ud83d", "\\ud83d") for name in row or ())
            values = {c: text_of_value(row.get(c)) for c in COLUMNS} if row is not None else {}
            why = fault or (NO_OBJECT if row is None else None)
            if not why and any(HALF.search(value or "") for value in values.values()):
                why = HALF_A_CHARACTER
            for c in COLUMNS if row and not why else ():
                if isinstance(row and row.get(c), dict | list):
                    values[c] = nested_as_written(record)[n][c]
            found.append((tuple(None if why else values[c] for c in COLUMNS), why, record if why else None))
    if names.keys().isdisjoint(COLUMNS) and any(not why for _, why, _ in found):
        return names.keys()
    return found


def objects_of(record: str) -> list[dict[str, object] | None]:
    try:
        found = json.loads(record, parse_float=str, parse_int=str, parse_constant=str)
    except ValueError:
        return [None]
    objects = found if isinstance(found, list) else [found]
    return objects if all(isinstance(o, dict) for o in objects) else [None]


def text_of_value(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


HALF = re.compile("[\ud800-\udfff]")


def read(source: InMemory, shape: Shape = LINES, encoding: str = "utf-8", *parts: Part) -> Found:
    shape = replace(shape, charset=charset_of(encoding, source.body[:3]))
    found: list[Row] = []
    others: dict[str, None] | None = {}
    for part in parts or [WHOLE]:
        for rows in json_rows.rows_of(DeclaredContent(COLUMNS, encoding), shape, source, part):
            assert rows.count and rows.records is not None
            faults = rows.faults.to_pylist() if rows.faults is not None else [None] * rows.count
            values = list(zip(*(rows.columns[c].to_pylist() for c in COLUMNS), strict=True))
            records = rows.records.to_pylist()
            assert len(values) == len(records) == len(faults) == rows.count
            found += [(v, f, r if f else None) for v, f, r in zip(values, faults, records, strict=True)]
            for v, f, record in zip(values, faults, records, strict=True):
                assert f or [as_shown(record, c) for c in COLUMNS] == list(v)
            others = None if others is None or rows.others is None else others | dict.fromkeys(rows.others)
            for column in rows.columns.values():
                column.validate(full=True)
    return others.keys() if others is not None and any(not fault for _, fault, _ in found) else found


def as_shown(record: str, column: str) -> str | None:
    """A value of a row by the record that is shown with the row: its own object, alone or in a list of one."""
    (row,) = objects_of(record)
    assert row is not None
    value = row.get(column)
    return nested_as_written(record)[0][column] if isinstance(value, dict | list) else text_of_value(value)


@pytest.fixture(params=[1, 7, 100, 4 << 20])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(text_blocks, "BLOCK", request.param)
    monkeypatch.setattr(json_objects, "_WORTH_IT", 1)
    monkeypatch.setattr(json_rows, "_MOST_ROWS", max(1, request.param // 20))
    monkeypatch.setattr(json_documents, "_MOST_LINES", max(1, request.param // 20))
    yield request.param


MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.usefixtures("block")
@MANY
@given(text=TEXTS)
@example(text='{"a":1}\n{"b":"x"}\n\n{"a":01}\n{"é":"ü","a":"\\"","a":[1]}')
@example(text='{"x":1}\n{"y":{}}\n{}\n{"x":"\\u0061"}')
@example(text="{}\n")
@example(text='{"a":[1],"a":2}\n{"a":2,"a":[1]}\n{"a":1,"\\u0061":null}\n{"\\u0061":"\\\\","a":"\\\\"}')
def test_parsed_rows_equal_the_rows_of_the_reference_parser(text: str) -> None:
    assert read(InMemory("f.jsonl", text.encode())) == reference(text.encode())


DOCUMENT = st.one_of(
    objects(SOUND),
    objects(ANY),
    st.sampled_from([{"a": 1, "b": {"a": [1.5]}}, {"é": "ü\\}", "x": [{}]}, {}]).map(lambda o: json.dumps(o, indent=1)),
    JUNK,
    st.tuples(objects(ANY), st.integers(0, 40)).map(lambda d: d[0][: d[1]] + "\n" + d[0][d[1] :]),
)
DOCUMENTS = st.lists(st.tuples(DOCUMENT, st.sampled_from([",\n", "\n", "\n,", ",", "\r\n", "\n \n"])), max_size=6).map(
    lambda lines: "".join(a + b for a, b in lines)
)
AROUND = st.sampled_from(
    [("", ""), ("[\n", "]\n"), ("[", "]"), (" \n[", "\n]\n \n"), ("[\n", ""), ("", "]"), ("[[", "]]"), ("{", "}")]
)


@pytest.mark.usefixtures("block")
@MANY
@given(text=DOCUMENTS, around=AROUND)
@example(text="", around=("[", "]"))
@example(text='{"a":1},\n{"a":2}\n,', around=("[\n", ""))
@example(text='{"a":1\n}', around=("[", "] ]"))
def test_multiline_json_documents_are_parsed_like_the_reference(text: str, around: tuple[str, str]) -> None:
    body = (around[0] + text + around[1]).encode()
    assert read(InMemory("f.json", body), OVER_LINES) == reference(body, OVER_LINES)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("lines", [9, 10, 11, 12, 40])
def test_unclosed_json_bracket_is_cut_at_the_longest_record_like_the_reference(
    monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    for module in (text, json_documents):
        monkeypatch.setattr(module, "LONGEST_RECORD", 10)
    for body in (b'{"a":1}\n{' + b'"b":2,\n' * (lines - 2), b'[{"a":[\n' + b"1,\n" * (lines - 2) + b'2]},\n{"a":1}\n]'):
        for end in (b"", b'"b":3}\n{"a":4}\n'):
            found = read(InMemory("f.json", body + end), OVER_LINES)
            assert found == reference(body + end, OVER_LINES)


def test_multiline_json_record_is_buffered_only_up_to_the_longest_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "LONGEST_LINE", 100)
    body = b'{"a":1}\n{\n' + b'"b":"0123456789",\n' * 1000
    [good, (_, fault, shown)] = read(InMemory("f.json", body), OVER_LINES)
    assert (good[1], fault) == (None, NO_END)
    assert isinstance(shown, str) and 80 < len(shown) < 140


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "cp1252", "latin-1"])
@pytest.mark.parametrize("shape", [LINES, OVER_LINES])
@settings(MANY, max_examples=15)
@given(text=TEXTS)
def test_text_in_other_encodings_is_parsed_like_the_reference(text: str, shape: Shape, encoding: str) -> None:
    body = text.encode(encoding, errors="ignore")
    assert read(InMemory("f.json", body), shape, encoding) == reference(body, shape, encoding)


BYTES = st.lists(
    st.sampled_from(
        [
            *(
                b'{"a":1}\n',
                b'{"b":"M\xfcller"}\n',
                b"\xff\r",
                b"\xc3\n",
                b'{"a":"\xed\xa0\x80"}\n',
                b'{"b":"\xc3\xbc"}\r\n',
            ),
            *(
                b"{\xe2\x82\n",
                b"}\n",
                b"\xef\xbb\xbf{}\n",
                b" \n",
                b"[\n",
                b"]\n",
                b'{"a":"\\',
                b'"\xf4\x90\x80\x80"\n',
            ),
            b"\x81\n",
        ]
    ),
    max_size=20,
).map(b"".join)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
@pytest.mark.parametrize("shape", [LINES, OVER_LINES])
@settings(MANY, max_examples=15)
@given(body=BYTES)
def test_undecodable_bytes_are_parsed_like_the_reference(body: bytes, shape: Shape, encoding: str) -> None:
    assert read(InMemory("f.json", body), shape, encoding) == reference(body, shape, encoding)


@pytest.mark.parametrize("number", [2, 7, 50])
@settings(MANY, max_examples=25)
@given(text=TEXTS)
def test_file_read_in_parts_gives_the_rows_of_the_whole_file(number: int, text: str) -> None:
    body = ("\ufeff" + text + '\n{"a":1}\r{"b":"\\n"}\r\n' * 3).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "_LOOK", 3)
        patch.setattr(text_blocks, "BLOCK", 20)
        source = InMemory("f.jsonl", body)
        assert read(source, LINES, "utf-8", *cut(len(body), number)) == reference(body)


@pytest.mark.parametrize(
    "line",
    [
        '{"order": 1, "price": -19.90, "name": "Müller", "is_new": true, "note": null}',
        ' { "a|b*" : 1e5 , "x(" : "" } ',
        "{}",
        '{"a": "say \\"x\\", \\ud83d\\ude00"}',
        '{"a": {"b": [1, "{"], "c": {}}, "d": [[]]}',
        '{"a": 1, "a": 2}',
    ],
)
def test_simple_json_lines_qualify_for_the_fast_parser(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_objects, "_WORTH_IT", 1)
    [texts] = json_rows._lines([line.encode()])
    assert json_objects.is_plain(texts.shown).all()


def test_too_deeply_nested_json_is_rejected() -> None:
    body = b"\n".join(b'{"a":' + b"[" * n + b"]" * n + b"}" for n in [5, *range(850, 1000), 200_000])
    found = read(InMemory("f.jsonl", body))
    assert not isinstance(found, str)
    assert (found[0][1], found[-1][1]) == (None, NO_OBJECT)
    assert len(found) == 152


def test_invalid_object_in_a_long_json_list_is_reported_alone() -> None:
    bad, good = '{"a": "\\ud83d"}', '{"a": 1}'
    short, long = f"[{bad},{good}]", "[" + ", ".join([bad, good] * 500) + "]"
    found = read(InMemory("f.jsonl", f"{short}\n{long}\n".encode()))
    assert [(fault, shown) for _, fault, shown in found[:3]] == [
        (HALF_A_CHARACTER, short),
        (None, None),
        (HALF_A_CHARACTER, bad),
    ]
    assert len(found) == 1002


def test_json_file_without_objects_gives_only_rejected_rows() -> None:
    found = read(InMemory("f.jsonl", b"words\n5\n\n\xff"))
    assert [fault for _, fault, _ in found] == [
        NO_OBJECT,
        NO_OBJECT,
        not_valid("utf-8"),
    ]
    assert read(InMemory("f.jsonl", b"")) == []


@pytest.mark.parametrize("shape", [LINES, OVER_LINES])
def test_compressed_file_gives_the_same_rows_as_the_plain_file(shape: Shape) -> None:
    body = b'{"a": 1}\n{"a": "x"}\n' * 1000
    packed = gzip.compress(body)
    assert read(InMemory("f.json.gz", packed), shape) == reference(body)
    with pytest.raises(Unusable, match=TRUNCATED[:20]):
        read(InMemory("f.json.gz", packed[:-20]), shape)


@pytest.mark.parametrize("shape", [LINES, OVER_LINES])
def test_json_file_with_a_too_long_line_is_refused(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK", 50)
    monkeypatch.setattr(text_blocks, "LONGEST_LINE", 100)
    with pytest.raises(Unusable, match="more than 100 bytes"):
        read(InMemory("f.json", b'{"a": 1}\n{"a": "' + b"x" * 200 + b'"}\n'), shape)


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_multiline_json_list_is_parsed_with_bounded_memory(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK", 64 << 10)
    monkeypatch.setattr(text, "_PIECE", 64 << 10)
    one = json.dumps({"a": 1, "b": "x" * 100}, indent=2) + ",\n"
    body = b"[\n" + (one * 30_000).encode().removesuffix(b",\n") + b"\n]\n"
    source = InMemory(f"f.{ending}", gzip.compress(body, 1) if ending.endswith("gz") else body)
    tracemalloc.start()
    count = sum(rows.count for rows in json_rows.rows_of(DeclaredContent(COLUMNS), OVER_LINES, source, WHOLE))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 30_000
    assert peak < len(body) / 2  # 3.8 MB


def test_json_row_parser_is_imported_without_spark_dagster_or_boto3() -> None:
    code = "import sys; import dagster_tidemark.lakehouse.parsing.json_rows; print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'pyarrow'" in loaded
    assert not any(f"'{name}'" in loaded for name in ("dagster", "pyspark", "boto3"))
