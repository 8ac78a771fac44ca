"""From bytes to records: encodings, line ends, quotes and brackets, without Spark."""

import gzip

import pytest

from dagster_tidemark.lakehouse.parsing.json_rows import objects_in
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.readers.text import (
    LONGEST_RECORD,
    NEVER_CLOSED,
    NO_END,
    NOT_CLOSED,
    TextRecord,
    not_valid,
    text_of,
)
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.file_endings import Format, format_of


def csv(text: bytes, encoding: str = "utf-8", *, multiline: bool = False) -> list[TextRecord]:
    return records_of(text, encoding=encoding, multiline=multiline, json=False)


def json(text: str, *, multiline: bool = True) -> list[TextRecord]:
    return records_of(text.encode(), encoding="utf-8", multiline=multiline, json=True)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"M\xfcller", "M\\xfcller"),
        (b"\xc3\xbc and \xfc", "ü and \\xfc"),
        (b"cut \xe2\x82", "cut \\xe2\\x82"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        (b"\xc0\xaf", "\\xc0\\xaf"),
    ],
)
def test_invalid_utf8_line_is_rejected_alone_and_shown_escaped(line: bytes, shown: str) -> None:
    assert csv(b"a\n" + line + "\nü\n".encode()) == [("a", None), (shown, not_valid("utf-8")), ("ü", None)]


def test_replacement_character_in_valid_text_is_accepted() -> None:
    assert csv("a\ufffd".encode()) == [("a\ufffd", None)]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_is_decoded_in_the_declared_encoding(encoding: str) -> None:
    assert csv("Müller\r\né\n".encode(encoding), encoding) == [("Müller", None), ("é", None)]


def test_utf16_without_a_byte_order_mark_is_little_endian() -> None:
    assert csv("Müller".encode("utf-16-le"), "utf-16") == [("Müller", None)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_byte_order_mark_is_removed_from_the_first_line(encoding: str) -> None:
    assert csv("\ufeffa\n\ufeffb".encode(encoding), encoding) == [("a", None), ("\ufeffb", None)]


def test_bytes_undefined_in_the_encoding_are_rejected_and_shown_escaped() -> None:
    assert csv(b"\x80\n\x81\x80", "cp1252") == [("€", None), ("\\x81€", not_valid("cp1252"))]


def test_incomplete_utf16_character_rejects_only_its_line() -> None:
    text = "a\n".encode("utf-16-le") + b"\x3d\xd8\n\0" + "b\n".encode("utf-16-le") + b"c"
    assert [fault for _, fault in csv(text, "utf-16-le")] == [
        None,
        not_valid("utf-16-le"),
        None,
        not_valid("utf-16-le"),
    ]


def test_lines_end_at_each_common_line_ending() -> None:
    assert [text for text, _ in csv(b"a\nb\r\nc\rd\r\r\n\ne")] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("line", ['1,"half a name', '"', '1,"a ""', 'a "b" c,"d', '"a"b,"c,d', '"a""'])
def test_unterminated_quote_rejects_only_its_line(line: str) -> None:
    assert csv(f'a\n{line}\nb,"c"\n'.encode()) == [("a", None), (line, NOT_CLOSED), ('b,"c"', None)]


@pytest.mark.parametrize(
    "line", ['12" disc', '"a ""b"" c"', 'a "b', '""', '"a" ,b', '"a"b,c', '"a,b"', '"a" "b', ',"",']
)
def test_closed_or_embedded_quote_is_accepted(line: str) -> None:
    assert csv(line.encode()) == [(line, None)]


def test_long_line_of_quotes_is_scanned_only_once() -> None:
    line = '"' + 'a""' * 300_000
    assert csv(line.encode()) == [(line, NOT_CLOSED)]


def test_quoted_value_may_span_lines_in_a_multiline_feed() -> None:
    text = b'h\r\n1,"two\r\n\r\nlines ""so"""\r\n2,x\r\n3,"at the\rend"'
    assert csv(text, multiline=True) == [
        ("h", None),
        ('1,"two\n\nlines ""so"""', None),
        ("2,x", None),
        ('3,"at the\nend"', None),
    ]


def test_quote_never_closed_in_a_multiline_file_rejects_the_rest() -> None:
    assert csv(b'h\n1,"a\n2,b\n', multiline=True) == [("h", None), ('1,"a\n2,b', NEVER_CLOSED)]


def test_multiline_csv_record_with_too_many_lines_is_cut_and_rejected() -> None:
    text = '1,"' + "\n".join("x" for _ in range(LONGEST_RECORD + 1)) + '"\n2,b'
    (first, fault), second = csv(text.encode(), multiline=True)
    assert (first.count("\n"), fault, second) == (LONGEST_RECORD - 1, NEVER_CLOSED, ("2,b", None))


def test_json_document_may_span_several_lines() -> None:
    assert json('{\n"a": "}",\n"b": [1\n]}\n{"a": 2}\nwords\n}\n{"a":\n3}') == [
        ('{\n"a": "}",\n"b": [1\n]}', None),
        ('{"a": 2}', None),
        ("words", None),
        ("}", None),
        ('{"a":\n3}', None),
    ]


def test_json_document_without_an_end_is_rejected() -> None:
    assert json('{"a": 1}\n{\n"a": 2') == [('{"a": 1}', None), ('{\n"a": 2', NO_END)]


def test_json_list_is_split_into_records_and_an_incomplete_one_is_rejected() -> None:
    assert json(' [\n{"a":\n1},\n{"a": 2}, {"a": 3}\n] \n') == [('[{"a":\n1}]', None), ('[{"a": 2}, {"a": 3}]', None)]
    assert json('[{"a": 1},\n{"a": 2},') == [('[{"a": 1}]', None), ('[{"a": 2}]', NO_END)]


def test_several_json_objects_on_one_line_are_rejected() -> None:
    assert objects_in('{"a": 1} {"a": 2}') == [None]


def test_gzip_file_with_several_members_is_read_as_one_text() -> None:
    assert text_of("a.gz", gzip.compress("ü".encode()[:1]) + gzip.compress("ü".encode()[1:])).decode() == "ü"


@pytest.mark.parametrize("key", ["a.json", "a.jsonl", "a.json.gz", "a.jsonl.gz"])
def test_json_suffixes_are_recognized_compressed_or_not(key: str) -> None:
    assert format_of(key) is Format.JSON
    assert Feed("x", "x.csv", Grain.NONE, {}).is_named_like_data(key)
    assert format_of(key.replace("json", "csv")) is Format.CSV


@pytest.mark.parametrize("encoding", ["latin1", "utf8", "utf-8-sig", "cp437", "UTF-16LE", "ascii"])
def test_feed_encoding_is_stored_by_its_canonical_name(encoding: str) -> None:
    found = Feed("x", "x.csv", Grain.NONE, {}, encoding=encoding).encoding
    assert found == Feed("x", "x.csv", Grain.NONE, {}, encoding=found).encoding


@pytest.mark.parametrize(
    "encoding", ["utf-9", "", "gb18030", "utf-32", "cp500", "base64", "unicode_escape", "iso2022_jp"]
)
def test_unsupported_feed_encoding_is_refused_with_a_remedy(encoding: str) -> None:
    with pytest.raises(ValueError, match=f"feed notes: encoding '{encoding}' cannot be read; declare utf-8"):
        Feed("notes", "notes.csv", Grain.NONE, {}, encoding=encoding)
