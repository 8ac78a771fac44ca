"""Feed `orders` as JSON lines: lines that are no object, parsers that are too kind, JSON that is not one row a line."""

import gzip
import json

from tests.proof.hostile.corpus_material import (
    BOM,
    EMPTY,
    HTML,
    JUNK,
    MEGABYTE,
    MISSING_COLUMN,
    ONE_MALFORMED,
    SURE,
    UNREADABLE,
    Table,
    fixed,
)
from tests.proof.hostile.corpus_model import (
    ALL,
    COLUMNS,
    Content,
    FileCase,
    Outcome,
    Raw,
    csv,
    join,
    json_line,
    jsonl,
    keeps,
    one,
    with_json,
)


def with_json_extra(raw: str, key: str = '"note"') -> Content:
    """Good JSON lines, each with a key nobody asked for in front of its own."""
    return lambda start: join("{" + f"{key}: {raw}, " + json_line(start, number)[1:] for number in (1, 2, 3))


JSON_FILES: Table = (
    (
        "json_keys_in_reverse_order",
        lambda s: join(json.dumps(dict(reversed(json.loads(json_line(s, n)).items()))) for n in (1, 2, 3)),
        ALL,
        SURE,
    ),
    ("json_bom", lambda s: BOM + jsonl(s), ALL, "RFC 8259 lets a reader ignore a BOM; refusing costs the first row"),
    ("json_crlf_and_blank_lines", lambda s: jsonl(s).replace(b"\n", b"\r\n\r\n"), ALL, SURE),
    ("json_without_newline_at_the_end", lambda s: jsonl(s).rstrip(b"\n"), ALL, SURE),
    ("json_blanks_around_lines", lambda s: join(f"  {json_line(s, n)}\t " for n in (1, 2, 3)), ALL, SURE),
    ("json_utf16", lambda s: jsonl(s).decode().encode("utf-16"), UNREADABLE, "as utf16_with_bom"),
    ("json_line_is_an_array", with_json("[4, 1, 14, 24, 34, 2, 19.99, 0.1]"), ONE_MALFORMED, SURE),
    (
        "json_line_is_an_array_of_a_row",
        lambda s: join([*(json_line(s, n) for n in (1, 2, 3)), f"[{json_line(s, 4)}]"]),
        ONE_MALFORMED,
        SURE,
    ),
    ("json_line_is_a_number", with_json("42"), ONE_MALFORMED, SURE),
    ("json_line_is_a_string", with_json('"{}"'), ONE_MALFORMED, SURE),
    ("json_line_is_null", with_json("null"), ONE_MALFORMED, SURE),
    ("json_line_is_true", with_json("true"), ONE_MALFORMED, SURE),
    ("json_line_is_an_empty_object", with_json("{}"), keeps(1, 2, 3, null_value=1), SURE),
    ("json_line_is_prose", with_json("ERROR: connection reset by peer"), ONE_MALFORMED, SURE),
    ("json_line_is_csv", with_json("4,1,14,24,34,2,19.99,0.1,2026-10-05T07:15:00Z"), ONE_MALFORMED, SURE),
    ("json_line_cut_short", lambda s: jsonl(s) + json_line(s, 4)[:60].encode(), ONE_MALFORMED, SURE),
    (
        "json_comma_before_the_brace",
        lambda s: join([json_line(s, 1), json_line(s, 4)[:-1] + ",}", json_line(s, 2), json_line(s, 3)]),
        ONE_MALFORMED,
        SURE,
    ),
    (
        "json_comma_after_every_line_but_the_last",
        lambda s: join(",\n".join(json_line(s, n) for n in (1, 2, 3)).split("\n")),
        keeps(3, malformed=2),
        "a line with a comma behind its object is no JSON; a lenient parser stops at the brace",
    ),
    (
        "json_single_quotes",
        lambda s: join([*(json_line(s, n) for n in (1, 2, 3)), json_line(s, 4).replace('"', "'")]),
        ONE_MALFORMED,
        "no JSON, though some parsers accept it",
    ),
    (
        "json_keys_without_quotes",
        lambda s: join([*(json_line(s, n) for n in (1, 2, 3)), json_line(s, 4).replace('"quantity"', "quantity")]),
        ONE_MALFORMED,
        SURE,
    ),
    (
        "json_not_a_number_literals",
        lambda s: join(
            [
                *(json_line(s, n) for n in (1, 2, 3)),
                json_line(s, 4, {"discount": Raw("NaN")}),
                json_line(s, 5, {"unit_price_usd": Raw("-Infinity")}),
            ]
        ),
        keeps(1, 2, 3, malformed=2),
        "no JSON, so malformed; parsers that accept it make it bad_type",
    ),
    (
        "json_leading_zeros_and_plus",
        lambda s: join(
            [
                *(json_line(s, n) for n in (1, 2, 3)),
                json_line(s, 4, {"quantity": Raw("007")}),
                json_line(s, 5, {"quantity": Raw("+5")}),
                json_line(s, 6, {"discount": Raw(".5")}),
            ]
        ),
        keeps(1, 2, 3, malformed=3),
        SURE,
    ),
    (
        "json_comment",
        lambda s: join([*(json_line(s, n) for n in (1, 2, 3)), "// done", json_line(s, 4)[:-1] + " /* x */ }"]),
        keeps(1, 2, 3, malformed=2),
        SURE,
    ),
    (
        "json_two_objects_in_a_line",
        lambda s: join([*(json_line(s, n) for n in (1, 2, 3)), json_line(s, 4) + json_line(s, 5)]),
        ONE_MALFORMED,
        "a line is a row, this one is no JSON; a lenient parser keeps the first object",
    ),
    (
        "json_text_behind_the_object",
        lambda s: join([*(json_line(s, n) for n in (1, 2, 3)), json_line(s, 4) + " trailing"]),
        ONE_MALFORMED,
        "as json_two_objects_in_a_line",
    ),
    (
        "json_duplicate_key",
        lambda s: join([json_line(s, 1), json_line(s, 2), json_line(s, 3)[:-1] + ', "quantity": 9}']),
        Outcome({1: {}, 2: {}, 3: {"quantity": 9}}),
        "RFC 8259 leaves it open; most parsers take the last",
    ),
    (
        "json_array_in_one_line",
        lambda s: join(["[" + ", ".join(json_line(s, n) for n in (1, 2, 3)) + "]"]),
        keeps(malformed=1),
        SURE,
    ),
    (
        "json_array_over_several_lines",
        lambda s: join(["[", json_line(s, 1) + ",", json_line(s, 2) + ",", json_line(s, 3), "]"]),
        keeps(3, malformed=4),
        "by line the last object is a good row; a parser that stops at the brace keeps all three",
    ),
    (
        "json_pretty_printed",
        lambda s: json.dumps(json.loads(json_line(s, 1)), indent=2).encode(),
        keeps(malformed=len(COLUMNS) + 2),
        "one entry per line, as none is an object; the whole file as unreadable is defensible",
    ),
    (
        "json_escaped_keys",
        lambda s: jsonl(s).replace(b'"order_id"', b'"\\u006frder_id"').replace(b'"discount"', b'"\\u0064iscount"'),
        ALL,
        SURE,
    ),
    (
        "json_keys_in_capitals",
        lambda s: jsonl(s).replace(b'"order_id"', b'"ORDER_ID"').replace(b'"store_id"', b'"Store_Id"'),
        ALL,
        "as header_in_capitals",
    ),
    (
        "json_key_twice_in_other_case",
        lambda s: join([json_line(s, 1), json_line(s, 2), json_line(s, 3)[:-1] + ', "QUANTITY": 2}']),
        ALL,
        "both say 2, so any rule but refusal keeps the row",
    ),
    ("json_extra_keys_nested", with_json_extra('{"a": [1, {"b": null}], "order_id": 99, "quantity": "x"}'), ALL, SURE),
    (
        "json_extra_key_of_changing_kind",
        lambda s: join(
            json_line(s, n)[:-1] + f', "note": {raw}}}' for n, raw in ((1, "1"), (2, '{"a": 1}'), (3, '["x"]'))
        ),
        ALL,
        SURE,
    ),
    ("json_extra_key_empty", with_json_extra("1", '""'), ALL, SURE),
    (
        "json_extra_lone_surrogate",
        with_json_extra('"\\ud83d"'),
        ALL,
        "grammatically JSON, but no text; only a key nobody reads is hit",
    ),
    ("json_extra_nul_and_newline_escapes", with_json_extra('"a\\u0000b\\nc\\rd"'), ALL, SURE),
    (
        "json_extra_raw_control_character",
        with_json_extra('"a\tb"'),
        keeps(malformed=3),
        "a raw tab in a string is no JSON; many parsers accept it",
    ),
    ("json_extra_nested_500_deep", with_json_extra("[" * 500 + "]" * 500), ALL, SURE),
    (
        "json_extra_nested_5000_deep",
        with_json_extra("[" * 5000 + "]" * 5000),
        ALL,
        "JSON to the letter; a parser's limit makes it malformed",
    ),
    ("json_extra_of_a_million_bytes", with_json_extra('"' + "x" * MEGABYTE + '"'), ALL, SURE),
    (
        "json_extra_number_of_5000_digits",
        with_json_extra("9" * 5000),
        ALL,
        "JSON to the letter; a parser's limit on digits makes it malformed",
    ),
    (
        "json_key_missing_in_every_line",
        lambda s: join(json_line(s, n).replace('"discount": 0.1000, ', "") for n in (1, 2, 3)),
        keeps(null_value=3),
        "JSON lines have no header: null_value per row; missing_column for the file is defensible",
    ),
    (
        "json_without_any_known_key",
        lambda _: b'{"a": 1}\n{"b": 2}\n',
        MISSING_COLUMN,
        "none of its columns is declared: refused as a whole in every format",
    ),
    (
        "json_keys_that_come_late",
        lambda s: join(['{"other": "' + "x" * 1000 + '"}'] * 80 + [json_line(s, n) for n in (1, 2, 3)]),
        keeps(1, 2, 3, null_value=80),
        SURE,
    ),
    (
        "json_prose_before_the_objects",
        lambda s: join(["words " * 200] * 80 + [json_line(s, n) for n in (1, 2, 3)]),
        keeps(1, 2, 3, malformed=80),
        SURE,
    ),
    (
        "json_latin1_in_a_string",
        lambda s: jsonl(s) + json_line(s, 4, {"product_id": "ü"}).encode("latin-1"),
        ONE_MALFORMED,
        SURE,
    ),
    (
        "json_half_a_character_in_a_value",
        lambda s: jsonl(s) + json_line(s, 4, {"product_id": Raw('"\\ud83d"')}).encode(),
        ONE_MALFORMED,
        "grammatically JSON, but no text",
    ),
    ("json_no_byte", fixed(b""), EMPTY, SURE),
    ("json_blank_lines_only", fixed(b"\n\n  \n"), EMPTY, "a line of blanks counts as blank"),
    ("json_random_bytes", fixed(JUNK), UNREADABLE, SURE),
    ("json_is_gzip", lambda s: gzip.compress(jsonl(s), mtime=0), UNREADABLE, SURE),
    ("json_is_csv", csv, keeps(malformed=4), "header and rows are lines without an object"),
    ("json_is_html", fixed(HTML.encode()), keeps(malformed=3), "three lines without an object"),
)


JSON_CASES: tuple[FileCase, ...] = (
    *(one(name, "file.jsonl", content, outcome, unsure) for name, content, outcome, unsure in JSON_FILES),
    one("json_lines_under_the_ending_json", "file.json", jsonl, ALL),
    one("json_lines_under_the_ending_jsonl_gz", "file.jsonl.gz", lambda s: gzip.compress(jsonl(s), mtime=0), ALL),
    one("json_lines_under_the_ending_json_gz", "file.json.gz", lambda s: gzip.compress(jsonl(s), mtime=0), ALL),
    one("csv_under_the_ending_jsonl_gz", "file.jsonl.gz", lambda s: gzip.compress(csv(s), mtime=0), UNREADABLE),
    one("plain_json_under_the_ending_json_gz", "file.json.gz", jsonl, UNREADABLE),
)
