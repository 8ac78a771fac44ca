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
def test_a_line_that_is_not_utf8_is_at_fault_and_can_be_read_and_its_neighbours_are_fine(
    line: bytes, shown: str
) -> None:
    assert csv(b"a\n" + line + "\nü\n".encode()) == [("a", None), (shown, not_valid("utf-8")), ("ü", None)]


def test_the_character_for_what_could_not_be_decoded_is_a_character() -> None:
    assert csv("a\ufffd".encode()) == [("a\ufffd", None)]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_text_is_read_in_its_encoding(encoding: str) -> None:
    assert csv("Müller\r\né\n".encode(encoding), encoding) == [("Müller", None), ("é", None)]


def test_utf16_without_a_mark_is_little_endian() -> None:
    assert csv("Müller".encode("utf-16-le"), "utf-16") == [("Müller", None)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_mark_is_no_part_of_the_first_line(encoding: str) -> None:
    assert csv("\ufeffa\n\ufeffb".encode(encoding), encoding) == [("a", None), ("\ufeffb", None)]


def test_a_byte_that_an_encoding_does_not_have_is_named() -> None:
    assert csv(b"\x80\n\x81\x80", "cp1252") == [("€", None), ("\\x81€", not_valid("cp1252"))]


def test_half_a_character_of_utf16_costs_its_own_line() -> None:
    text = "a\n".encode("utf-16-le") + b"\x3d\xd8\n\0" + "b\n".encode("utf-16-le") + b"c"
    assert [fault for _, fault in csv(text, "utf-16-le")] == [
        None,
        not_valid("utf-16-le"),
        None,
        not_valid("utf-16-le"),
    ]


def test_lines_end_with_any_of_the_usual_ends() -> None:
    assert [text for text, _ in csv(b"a\nb\r\nc\rd\r\r\n\ne")] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("line", ['1,"half a name', '"', '1,"a ""', 'a "b" c,"d', '"a"b,"c,d', '"a""'])
def test_an_unterminated_quote_costs_its_line(line: str) -> None:
    assert csv(f'a\n{line}\nb,"c"\n'.encode()) == [("a", None), (line, NOT_CLOSED), ('b,"c"', None)]


@pytest.mark.parametrize(
    "line", ['12" disc', '"a ""b"" c"', 'a "b', '""', '"a" ,b', '"a"b,c', '"a,b"', '"a" "b', ',"",']
)
def test_a_quote_that_opens_nothing_or_is_closed_is_no_fault(line: str) -> None:
    assert csv(line.encode()) == [(line, None)]


def test_a_long_line_full_of_quotes_is_gone_through_once() -> None:
    line = '"' + 'a""' * 300_000
    assert csv(line.encode()) == [(line, NOT_CLOSED)]


def test_of_a_feed_with_several_lines_a_quote_holds_them_together() -> None:
    text = b'h\r\n1,"two\r\n\r\nlines ""so"""\r\n2,x\r\n3,"at the\rend"'
    assert csv(text, multiline=True) == [
        ("h", None),
        ('1,"two\n\nlines ""so"""', None),
        ("2,x", None),
        ('3,"at the\nend"', None),
    ]


def test_a_quote_that_is_never_closed_takes_the_rest_and_says_so() -> None:
    assert csv(b'h\n1,"a\n2,b\n', multiline=True) == [("h", None), ('1,"a\n2,b', NEVER_CLOSED)]


def test_a_record_of_too_many_lines_is_cut_and_named() -> None:
    text = '1,"' + "\n".join("x" for _ in range(LONGEST_RECORD + 1)) + '"\n2,b'
    (first, fault), second = csv(text.encode(), multiline=True)
    assert (first.count("\n"), fault, second) == (LONGEST_RECORD - 1, NEVER_CLOSED, ("2,b", None))


def test_json_documents_go_over_lines() -> None:
    assert json('{\n"a": "}",\n"b": [1\n]}\n{"a": 2}\nwords\n}\n{"a":\n3}') == [
        ('{\n"a": "}",\n"b": [1\n]}', None),
        ('{"a": 2}', None),
        ("words", None),
        ("}", None),
        ('{"a":\n3}', None),
    ]


def test_a_json_document_without_an_end_is_named() -> None:
    assert json('{"a": 1}\n{\n"a": 2') == [('{"a": 1}', None), ('{\n"a": 2', NO_END)]


def test_of_a_json_list_each_piece_is_a_record_and_a_cut_one_is_named() -> None:
    assert json(' [\n{"a":\n1},\n{"a": 2}, {"a": 3}\n] \n') == [('[{"a":\n1}]', None), ('[{"a": 2}, {"a": 3}]', None)]
    assert json('[{"a": 1},\n{"a": 2},') == [('[{"a": 1}]', None), ('[{"a": 2}]', NO_END)]


def test_several_objects_in_a_line_are_none() -> None:
    assert objects_in('{"a": 1} {"a": 2}') == [None]


def test_gzip_of_several_members_is_one_text() -> None:
    assert text_of("a.gz", gzip.compress("ü".encode()[:1]) + gzip.compress("ü".encode()[1:])).decode() == "ü"


@pytest.mark.parametrize("key", ["a.json", "a.jsonl", "a.json.gz", "a.jsonl.gz"])
def test_json_is_json_compressed_or_not(key: str) -> None:
    assert format_of(key) is Format.JSON
    assert Feed("x", "x.csv", Grain.NONE, {}).is_named_like_data(key)
    assert format_of(key.replace("json", "csv")) is Format.CSV


@pytest.mark.parametrize("encoding", ["latin1", "utf8", "utf-8-sig", "cp437", "UTF-16LE", "ascii"])
def test_a_feed_keeps_its_encoding_by_its_canonical_name(encoding: str) -> None:
    found = Feed("x", "x.csv", Grain.NONE, {}, encoding=encoding).encoding
    assert found == Feed("x", "x.csv", Grain.NONE, {}, encoding=found).encoding


@pytest.mark.parametrize(
    "encoding", ["utf-9", "", "gb18030", "utf-32", "cp500", "base64", "unicode_escape", "iso2022_jp"]
)
def test_an_encoding_that_cannot_be_read_is_refused_with_feed_value_and_remedy(encoding: str) -> None:
    with pytest.raises(ValueError, match=f"feed notes: encoding '{encoding}' cannot be read; declare utf-8"):
        Feed("notes", "notes.csv", Grain.NONE, {}, encoding=encoding)
