"""Expectations of the corpus that were changed after its first run: each with the reason, and what it is now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

A_LINE_IS_A_ROW = "a line is a row, and one with a quote that does not end is malformed"
NO_TEXT = "what is no text is malformed, whatever its column's type"
TO_THE_LETTER = "names are compared to the letter: another spelling is another column"
A_FOLDER = "several files that lie in a folder beside the partitions are one entry, with their count"
NO_OBJECT = "a file without any line that is an object is turned away as a whole"
LENIENT_TIME = "a date with another well-known way to write its time or zone is read"


@dataclass(frozen=True)
class Change:
    """What a case ends in now: good rows by number with what differs in them, entries, and why."""

    why: str
    rows: Mapping[int, Mapping[str, Any]]
    entries: Mapping[tuple[str, str], int] = field(default_factory=dict)


CHANGES: dict[str, Change] = {
    "latin1_byte_in_an_extra_column": Change(
        "a line is text or it is not, whichever of its columns is read; the file goes on",
        {51: {}},
        {("file.csv", "malformed"): 3},
    ),
    "control_z_at_the_end": Change("a line of blanks and control characters is blank", {1: {}, 2: {}, 3: {}}, {}),
    "newline_in_quotes": Change(A_LINE_IS_A_ROW, {}, {("file.csv", "malformed"): 6}),
    "crlf_in_quotes": Change(A_LINE_IS_A_ROW, {}, {("file.csv", "malformed"): 6}),
    "parquet_column_as_bytes": Change(
        NO_TEXT, {51: {}}, {("file.parquet", "bad_type"): 2, ("file.parquet", "malformed"): 1}
    ),
    "json_lone_surrogate_in_a_value": Change(NO_TEXT, {1: {}, 3: {}, 5: {}}, {("rows.jsonl", "malformed"): 2}),
    "header_in_capitals": Change(TO_THE_LETTER, {}, {("file.csv", "missing_column"): 1}),
    "header_in_mixed_case": Change(TO_THE_LETTER, {}, {("file.csv", "missing_column"): 1}),
    "column_twice_in_other_case": Change(TO_THE_LETTER, {1: {}, 2: {}, 3: {}, 51: {}}, {}),
    "binary_junk_after_good_rows": Change(
        "its good rows are taken; the junk is malformed line by line",
        {1: {}, 2: {}, 3: {}, 51: {}},
        {("file.csv", "malformed"): 2},
    ),
    "json_line_is_an_array_of_a_row": Change(
        "a list of objects is read as its objects", {1: {}, 2: {}, 3: {}, 4: {}}, {}
    ),
    "json_not_a_number_literals": Change(
        "NaN and Infinity are read as words, which are of no number's type",
        {1: {}, 2: {}, 3: {}},
        {("file.jsonl", "bad_type"): 2},
    ),
    "json_array_in_one_line": Change("a list of objects is read as its objects", {1: {}, 2: {}, 3: {}, 51: {}}, {}),
    "json_pretty_printed": Change(NO_OBJECT, {51: {}}, {("file.jsonl", "unreadable"): 1}),
    "json_keys_in_capitals": Change(TO_THE_LETTER, {}, {("file.jsonl", "null_value"): 3}),
    "json_extra_raw_control_character": Change(NO_OBJECT, {51: {}}, {("file.jsonl", "unreadable"): 1}),
    "json_extra_nested_5000_deep": Change(NO_OBJECT, {}, {("file.jsonl", "unreadable"): 1}),
    "json_is_csv": Change(NO_OBJECT, {51: {}}, {("file.jsonl", "unreadable"): 1}),
    "json_is_html": Change(NO_OBJECT, {51: {}}, {("file.jsonl", "unreadable"): 1}),
    "parquet_times_beyond_the_calendar": Change(
        "a time no timestamp can hold is of another type", {1: {}}, {("file.parquet", "bad_type"): 2}
    ),
    "parquet_times_as_date": Change(
        "a date is its midnight, which lies in another hour", {51: {}}, {("file.parquet", "wrong_hour"): 3}
    ),
    "parquet_double_of_two_to_the_63": Change(
        "a double beyond 2^53 names no integer for sure", {2: {}}, {("file.parquet", "bad_type"): 2}
    ),
    "parquet_columns_in_capitals": Change(TO_THE_LETTER, {}, {("file.parquet", "missing_column"): 1}),
    "parquet_blank_lines": Change("blank lines are no Parquet file", {51: {}}, {("file.parquet", "unreadable"): 1}),
    "parquet_two_files_in_one": Change("the last footer describes a whole file, and that is read", {1: {}, 51: {}}, {}),
    "integers_with_a_fraction": Change(
        "beyond 18 places a fraction is not seen",
        {1: {}, 3: {}, 5: {}, 7: {}, 8: {"quantity": 3}, 9: {}},
        {("rows.csv", "bad_type"): 3},
    ),
    "value_of_blanks_only": Change(
        "blanks other than spaces are a value, of the wrong type",
        {1: {}, 3: {}, 5: {}, 7: {}},
        {("rows.csv", "null_value"): 2, ("rows.csv", "bad_type"): 1},
    ),
    "discount_of_many_places": Change(
        "a share is no money: it keeps eight places, so that a third survives",
        {1: {}, 2: {"discount": Decimal("0.12345679")}, 3: {}, 4: {"discount": Decimal("0.33333333")}, 5: {}},
        {},
    ),
    "json_unicode_escapes_in_values": Change(
        "a control character behind a number is trimmed like a blank",
        {1: {}, 2: {"quantity": 5}, 3: {}, 4: {"quantity": 12}, 5: {}, 7: {}, 8: {"quantity": 5}, 9: {}},
        {("rows.jsonl", "bad_type"): 1},
    ),
    "date_only": Change(
        "a date is its midnight, which lies in another hour", {1: {}, 3: {}}, {("rows.csv", "wrong_hour"): 1}
    ),
    "times_with_zone_names": Change(
        "a zone by its name is read, and the time lies in another hour",
        {1: {}, 11: {}, 3: {}, 5: {}, 7: {}, 9: {}},
        {("rows.csv", "wrong_hour"): 4, ("rows.csv", "bad_type"): 1},
    ),
    "times_that_say_utc_or_gmt": Change(
        LENIENT_TIME,
        {1: {}, 2: {"ordered_at": timedelta(minutes=15)}, 3: {}, 4: {"ordered_at": timedelta(minutes=15)}, 5: {}},
        {},
    ),
    "times_with_single_digits": Change(
        LENIENT_TIME,
        {1: {}, 2: {"ordered_at": timedelta(minutes=5)}, 3: {}, 4: {"ordered_at": timedelta(minutes=5)}, 5: {}},
        {},
    ),
    "times_with_text_behind": Change(
        LENIENT_TIME,
        {
            1: {},
            11: {},
            2: {"ordered_at": timedelta(minutes=15)},
            3: {},
            5: {},
            7: {},
            8: {"ordered_at": timedelta(minutes=15)},
            9: {},
        },
        {("rows.csv", "bad_type"): 3},
    ),
    "file_in_a_folder_of_unfinished_uploads": Change(
        "its own name is one of data, so somebody may miss it", {51: {}}, {("_temporary/0/x.csv", "outside_layout"): 1}
    ),
    "name_outside_other_endings": Change(
        "an editor's backup is no data",
        {51: {}},
        {
            ("a.xls", "outside_layout"): 1,
            ("a.csv.bak", "outside_layout"): 1,
            ("a.csv.bz2", "outside_layout"): 1,
            ("a.csv.old", "outside_layout"): 1,
            ("a.csv.zip", "outside_layout"): 1,
            ("a.dat", "outside_layout"): 1,
            ("a.tsv", "outside_layout"): 1,
            ("a.txt", "outside_layout"): 1,
            ("a.xlsx", "outside_layout"): 1,
            ("a.xml", "outside_layout"): 1,
            ("a.zip", "outside_layout"): 1,
        },
    ),
    "name_outside_gzip_of_formats_without_gzip": Change(
        "JSON may be packed with gzip, like CSV",
        {51: {}},
        {
            ("a.gz", "outside_layout"): 1,
            ("a.json.gz", "unreadable"): 1,
            ("a.jsonl.gz", "unreadable"): 1,
            ("a.parquet.gz", "outside_layout"): 1,
        },
    ),
    "place_outside_feeds_root": Change(A_FOLDER, {51: {}}, {("/", "outside_layout"): 1}),
    "place_outside_day_without_hour": Change(A_FOLDER, {51: {}}, {("/dt=2026-10-01/", "outside_layout"): 1}),
    "place_outside_folders_in_other_order": Change(A_FOLDER, {51: {}}, {("/hour=07/", "outside_layout"): 1}),
    "place_in_the_far_future": Change(
        "a time further ahead than any clock is a typing error as a rule: it is named",
        {51: {}},
        {("/dt=2099-12-31/hour=07/x.csv", "in_the_future"): 1, ("/dt=9999-12-31/hour=23/y.csv", "in_the_future"): 1},
    ),
    "place_outside_deeper_folder_elsewhere": Change(
        "named as soon as its hour has a file; until then in the sensor's log alone: a limit",
        {51: {}},
        {("/backup/dt=2026-10-01/hour=07/x.csv", "outside_layout"): 1},
    ),
    "files_with_other_columns_beside_each_other": Change(
        "the row of a.csv is superseded by b.csv's: known by a `no rows` entry",
        {1: {}, 2: {}, 3: {}, 4: {}},
        {("a.csv", "no rows"): 1},
    ),
    "parquet_money_as_decimal_of_40_digits": Change(
        "read exactly, as text; nothing is wrong with the values", {1: {}, 2: {}, 3: {}, 51: {}}, {}
    ),
    "parquet_column_twice_in_other_case": Change(TO_THE_LETTER, {1: {}, 2: {}, 3: {}, 51: {}}, {}),
}
