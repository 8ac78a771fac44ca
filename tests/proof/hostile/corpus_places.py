"""Feed `orders`: names and places of objects, and rows of the same key in one or several files."""

import gzip
from datetime import datetime

from tests.proof.hostile.corpus_csv import (
    columns_in_order,
    without,
)
from tests.proof.hostile.corpus_material import (
    EMPTY,
    JUNK,
    SURE,
    UNREADABLE,
    fixed,
    packed,
)
from tests.proof.hostile.corpus_model import (
    ALL,
    COLUMNS,
    HEADER,
    NEIGHBOUR,
    NEIGHBOUR_NUMBER,
    Content,
    FileCase,
    csv,
    headed,
    join,
    json_line,
    jsonl,
    line,
    lines,
    one,
    orders,
    parquet,
    plain,
    text,
)

GOOD_NAMES = (
    ("blanks", "orders of monday (2).csv", SURE),
    ("blank_in_front", " orders.csv", SURE),
    ("plus", "a+b++c.csv", SURE),
    ("percent_2f", "a%2Fb.csv", SURE),
    ("percent_20_and_25", "100%25%20sure.csv", SURE),
    ("lone_percent", "50% off.csv", SURE),
    ("non_ascii", "commandes-été-注文-🧾.csv", SURE),
    ("combining_accent", "cafe\u0301.csv", SURE),
    ("quotes", 'it\'s "quoted" `here`.csv', SURE),
    ("ampersand_and_brackets", "a&b<c>d.csv", SURE),
    ("hash_and_query", "a#b?c=d&e.csv", SURE),
    ("equals_like_a_partition", "hour=08.csv", SURE),
    ("colons", "2026-10-05T07:00:00.csv", SURE),
    ("backslash", "export\\orders.csv", SURE),
    ("comma_and_semicolon", "a,b;c.csv", SURE),
    ("dollar_and_braces", "${HOME} $(id).csv", SURE),
    ("240_bytes", "n" * 236 + ".csv", SURE),
    (
        "900_bytes",
        "n" * 896 + ".csv",
        "within S3's limit of 1024 bytes for the key; a cloud on a file system may refuse the upload itself",
    ),
    ("several_endings", "orders.xlsx.parquet.csv", SURE),
    ("ending_only_after_many_dots", "a...csv", SURE),
    ("ending_in_capitals", "ORDERS.CSV", SURE),
    ("ending_with_one_capital", "orders.Csv", SURE),
)

IGNORED_NAMES = (
    "_SUCCESS",
    "_started.csv",
    ".orders.csv",
    ".csv",
    "orders.csv.tmp",
    "orders.csv.part",
    "orders.csv.crc",
    ".orders.csv.crc",
    "orders.tmp",
    "folder/",
    ".orders.csv.swp",
)

OUTSIDE_NAMES = (
    (
        "other_endings",
        (
            "a.txt",
            "a.xlsx",
            "a.tsv",
            "a.xml",
            "a.zip",
            "a.xls",
            "a.dat",
            "a.csv.bz2",
            "a.csv.zip",
            "a.csv.bak",
            "a.csv~",
            "a.csv.old",
        ),
        SURE,
    ),
    ("gzip_of_formats_without_gzip", ("a.jsonl.gz", "a.json.gz", "a.parquet.gz", "a.gz"), SURE),
    ("no_ending", ("orders", "csv", "orders_csv", "orders."), SURE),
    ("blank_behind_the_ending", ("orders.csv ", "orders.csv (1)"), SURE),
    ("deeper_folder", ("sub/orders.csv", "sub/sub/orders.csv", "hour=08/orders.csv"), SURE),
)

OUTSIDE_PLACES = (
    ("feeds_root", ("/x.csv", "/orders.parquet"), SURE),
    ("day_without_hour", ("/dt=2026-10-01/x.csv", "/dt=2026-10-01/hour=07.csv"), SURE),
    (
        "hours_that_do_not_exist",
        ("/dt=2026-10-01/hour=24/x.csv", "/dt=2026-10-01/hour=99/x.csv", "/dt=2026-10-01/hour=-1/x.csv"),
        SURE,
    ),
    (
        "hours_of_other_width",
        ("/dt=2026-10-01/hour=7/x.csv", "/dt=2026-10-01/hour=007/x.csv", "/dt=2026-10-01/hour=/x.csv"),
        SURE,
    ),
    (
        "hours_with_more_in_them",
        ("/dt=2026-10-01/hour=07am/x.csv", "/dt=2026-10-01/hour=07 /x.csv", "/dt=2026-10-01/hour=+7/x.csv"),
        SURE,
    ),
    (
        "hour_in_digits_of_another_script",
        ("/dt=2026-10-01/hour=\u0660\u0667/x.csv", "/dt=\uff12\uff10\uff12\uff16-10-01/hour=07/x.csv"),
        SURE,
    ),
    (
        "days_that_do_not_exist",
        ("/dt=2026-13-01/hour=07/x.csv", "/dt=2026-11-31/hour=07/x.csv", "/dt=0000-00-00/hour=07/x.csv"),
        SURE,
    ),
    (
        "days_of_other_form",
        (
            "/dt=20261001/hour=07/x.csv",
            "/dt=2026-10-1/hour=07/x.csv",
            "/dt=01.10.2026/hour=07/x.csv",
            "/dt=2026-W40-4/hour=07/x.csv",
        ),
        SURE,
    ),
    (
        "other_folder_names",
        (
            "/DT=2026-10-01/hour=07/x.csv",
            "/date=2026-10-01/hour=07/x.csv",
            "/2026-10-01/07/x.csv",
            "/year=2026/month=10/day=01/hour=07/x.csv",
        ),
        SURE,
    ),
    ("folders_in_other_order", ("/hour=07/dt=2026-10-01/x.csv", "/hour=07/x.csv"), SURE),
    ("deeper_folder_elsewhere", ("/dt=2026-10-01/hour=07/part=1/x.csv", "/backup/dt=2026-10-01/hour=07/x.csv"), SURE),
    ("empty_folder_name", ("/dt=2026-10-01//hour=07/x.csv",), SURE),
    ("encoded_folder_name", ("/dt%3D2026-10-01/hour%3D07/x.csv",), SURE),
)

BEFORE_START = (
    "/dt=2026-09-27/hour=23/x.csv",
    "/dt=2025-10-05/hour=07/x.csv",
    "/dt=1970-01-01/hour=00/x.csv",
    "/dt=0001-01-01/hour=00/x.parquet",
)


def neighbour(start: datetime) -> bytes:
    """A good file beside the hostile ones."""
    return csv(start, (NEIGHBOUR_NUMBER,))


def beside(name: str, keys: tuple[str, ...], reason: str | None, unsure: str = "") -> FileCase:
    """Good rows under names or in places that do not count, and a good neighbour."""
    files: dict[str, Content] = dict.fromkeys(keys, csv)
    entries = {(key, reason): 1 for key in keys} if reason else {}
    return orders(name, files | {NEIGHBOUR: neighbour}, {NEIGHBOUR_NUMBER: {}}, entries, unsure)


def some(*numbers: int, **extra: str) -> Content:
    """A CSV file of some good rows."""
    return lambda start: csv(start, numbers, extra)


def with_quantity(quantity: int, *numbers: int) -> Content:
    """A CSV file of good rows of another quantity."""
    return lambda start: join(
        [HEADER, *(line((text(start, n) | {"quantity": str(quantity)}).values()) for n in numbers)]
    )


def repeated(*quantities: str) -> Content:
    """A CSV file of row 1 again and again, each time with another quantity, and of row 2."""
    return lambda start: join(
        [HEADER, *(line((text(start, 1) | {"quantity": q}).values()) for q in quantities), lines(start)[2]]
    )


SAME_KEYS = (
    orders("same_key_twice_in_a_csv", {"a.csv": repeated("5", "6", "7")}, {1: {"quantity": 7}, 2: {}}),
    orders(
        "same_key_twice_last_one_rejected",
        {"a.csv": repeated("5", "6", "x")},
        {1: {"quantity": 6}, 2: {}},
        {("a.csv", "bad_type"): 1},
        "a rejected row is no row: the last good one wins; dropping the key altogether is defensible",
    ),
    orders(
        "same_key_in_other_spelling",
        {
            "a.csv": lambda s: (
                csv(s)
                + line((text(s, 1) | {"order_id": "+01.0", "line_number": "01", "quantity": "9"}).values()).encode()
            )
        },
        {1: {"quantity": 9}, 2: {}, 3: {}},
    ),
    orders(
        "same_key_twice_in_json",
        {"a.jsonl": lambda s: join(json_line(s, 1, {"quantity": q}) for q in (5, 6, 7))},
        {1: {"quantity": 7}},
    ),
    orders(
        "same_key_far_apart_in_one_file",
        {"a.csv": lambda s: join([HEADER, *([lines(s)[1]] * 20_000), line((text(s, 1) | {"quantity": "8"}).values())])},
        {1: {"quantity": 8}},
    ),
    orders(
        "same_keys_across_gzip_members",
        {"a.csv.gz": lambda s: packed(s) + gzip.compress(with_quantity(4, 2)(s)[len(HEADER) + 1 :], mtime=0)},
        {1: {}, 2: {"quantity": 4}, 3: {}},
    ),
    orders("same_key_in_two_files", {"a.csv": csv, "b.csv": with_quantity(5, 2)}, {1: {}, 2: {"quantity": 5}, 3: {}}),
    orders(
        "all_keys_superseded",
        {"a.csv": some(1, 2), "b.csv": with_quantity(5, 1, 2)},
        {1: {"quantity": 5}, 2: {"quantity": 5}},
        {("a.csv", "no rows"): 1},
    ),
    orders(
        "same_file_under_two_names",
        {"a.csv": csv, "a copy.csv": csv, "b.csv": csv},
        plain(1, 2, 3),
        {("a.csv", "no rows"): 1, ("a copy.csv", "no rows"): 1},
    ),
    orders(
        "same_key_in_three_formats",
        {
            "a.csv": with_quantity(5, 1),
            "b.jsonl": lambda s: jsonl(s, (1,)),
            "c.parquet": lambda s: parquet(s, numbers=(1,)),
        },
        {1: {}},
        {("a.csv", "no rows"): 1, ("b.jsonl", "no rows"): 1},
    ),
    orders(
        "later_file_rejects_the_key",
        {"a.csv": csv, "b.csv": lambda s: with_quantity(2_000_000_000, 1)(s)},
        plain(1, 2, 3),
        {("b.csv", "quantity_out_of_range"): 1},
    ),
    orders(
        "later_file_is_broken",
        {"a.csv": csv, "b.csv.gz": lambda s: packed(s)[:-8]},
        plain(1, 2, 3),
        {("b.csv.gz", "unreadable"): 1},
    ),
    orders(
        "names_that_match_each_other_as_patterns",
        {
            "part-*.csv": some(1),
            "part-1.csv": some(2),
            "part-?.csv": some(3),
            "{part-1,x}.csv": some(4),
            "[p]art-1.csv": some(5),
        },
        plain(1, 2, 3, 4, 5),
    ),
    orders(
        "names_that_differ_in_encoding_only",
        {"a b.csv": some(1), "a%20b.csv": some(2), "a+b.csv": some(3), "a%2Bb.csv": some(4)},
        plain(1, 2, 3, 4),
    ),
    orders("names_that_differ_in_case_only", {"A.csv": some(1), "a.csv": some(2), "B.csv": some(3)}, plain(1, 2, 3)),
    orders(
        "files_with_other_columns_beside_each_other",
        {
            "a.csv": some(1, note="x"),
            "b.csv": lambda s: columns_in_order(*reversed(COLUMNS))(s),
            "c.csv": some(4, tax="1", note="y"),
        },
        plain(1, 2, 3, 4),
        {},
    ),
    orders(
        "every_format_and_every_fault_at_once",
        {
            "a.csv": some(1),
            "b.csv.gz": lambda s: gzip.compress(csv(s, (2,)), mtime=0),
            "c.jsonl": lambda s: jsonl(s, (3,)),
            "d.json": lambda s: jsonl(s, (4,)),
            "e.parquet": lambda s: parquet(s, numbers=(5,)),
            "f.csv": fixed(b""),
            "g.csv.gz": fixed(JUNK),
            "h.parquet": fixed(JUNK),
            "i.csv": without("quantity"),
            "j.txt": csv,
            "_SUCCESS": fixed(b""),
            "k.csv": headed(HEADER + ",order_id"),
        },
        plain(1, 2, 3, 4, 5),
        {
            ("f.csv", "empty"): 1,
            ("g.csv.gz", "unreadable"): 1,
            ("h.parquet", "unreadable"): 1,
            ("i.csv", "missing_column"): 1,
            ("j.txt", "outside_layout"): 1,
            ("k.csv", "duplicate_column"): 1,
        },
    ),
    orders("forty_nine_small_files", {f"part-{n:05}.csv": some(n) for n in range(1, 50)}, plain(*range(1, 50))),
)


PLACE_CASES: tuple[FileCase, ...] = (
    *(one(f"name_with_{name}", key, csv, ALL, unsure) for name, key, unsure in GOOD_NAMES),
    beside("names_that_are_ignored", IGNORED_NAMES, None),
    beside(
        "file_in_a_folder_of_unfinished_uploads",
        ("_temporary/0/x.csv",),
        None,
        "the name is data, its folder a marker: ignored or outside_layout; chosen ignored",
    ),
    *(beside(f"name_outside_{name}", keys, "outside_layout", unsure) for name, keys, unsure in OUTSIDE_NAMES),
    *(beside(f"place_outside_{name}", keys, "outside_layout", unsure) for name, keys, unsure in OUTSIDE_PLACES),
    beside("place_before_the_start_date", BEFORE_START, "before_start_date"),
    beside(
        "place_in_the_far_future",
        ("/dt=2099-12-31/hour=07/x.csv", "/dt=9999-12-31/hour=23/y.csv"),
        None,
        "inside the layout, but no such window yet: nothing happens until there is one, no entry",
    ),
    one("only_an_empty_file", "a.csv", fixed(b""), EMPTY, alone=True),
    one("only_a_broken_file", "a.csv.gz", fixed(JUNK), UNREADABLE, alone=True),
    *SAME_KEYS,
)
