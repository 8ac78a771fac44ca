"""Feed `orders` as Parquet: types of every width, values that do not fit, layouts of the file, files that are none."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.parquet_files import parquet_of
from tests.proof.hostile.corpus_material import (
    EMPTY,
    JUNK,
    MISSING_COLUMN,
    NO_ROWS,
    SURE,
    UNREADABLE,
    Table,
    damaged,
    fixed,
)
from tests.proof.hostile.corpus_model import (
    ALL,
    COLUMNS,
    Content,
    FileCase,
    Outcome,
    csv,
    good,
    jsonl,
    keeps,
    one,
    orders,
    parquet,
    text,
    turned_away,
)

IDS = ("order_id", "line_number", "customer_id", "product_id", "store_id", "quantity")
MONEY = ("unit_price_usd", "discount")
STRUCT = pa.struct([("value", pa.int64())])


def typed(kind: pa.DataType, *columns: str, **options: Any) -> Content:
    """The good rows with some columns of another type."""
    return lambda start: parquet(start, types=dict.fromkeys(columns, kind), **options)


def holding(column: str, values: Sequence[Any], kind: pa.DataType) -> Content:
    """The good rows with a column of other values."""
    return lambda start: parquet(start, columns={column: pa.array(values, kind)})


def times(kind: pa.DataType, *seconds: float, **options: Any) -> Content:
    """The good rows ordered so many seconds after the start of the hour."""

    def content(start: datetime) -> bytes:
        values = [start + timedelta(seconds=offset) for offset in seconds]
        return parquet(start, columns={"ordered_at": pa.array(values, kind)}, **options)

    return content


def options(**given: Any) -> Content:
    """The good rows in a file that is laid out in another way."""
    return lambda start: parquet(start, **given)


def dictionary(start: datetime) -> bytes:
    """The good rows as text with a dictionary."""
    values = {c: pa.array([text(start, n)[c] for n in (1, 2, 3)]).dictionary_encode() for c in COLUMNS}
    return parquet(start, columns=values)


def not_utf8(start: datetime) -> bytes:
    """The good rows as texts, the second product with a byte that is none of UTF-8."""
    return parquet(start, columns={"product_id": pa.array([b"21", b"\xff2", b"23"]).view(pa.string())})


def doubled(start: datetime, *names: str) -> bytes:
    """The good rows with columns whose names are taken already."""
    table = pa.table({c: pa.array([good(start, n)[c] for n in (1, 2, 3)]) for c in COLUMNS})
    for name in names:
        table = table.append_column(name, pa.array([7, 8, 9]))
    return parquet_of(table)


def reordered(start: datetime) -> bytes:
    """The good rows with their columns the other way round."""
    return parquet_of(pa.table({c: pa.array([good(start, n)[c] for n in (1, 2, 3)]) for c in reversed(COLUMNS)}))


def renamed(start: datetime, change: Mapping[str, str]) -> bytes:
    """The good rows under other column names."""
    return parquet_of(pa.table({change.get(c, c): pa.array([good(start, n)[c] for n in (1, 2, 3)]) for c in COLUMNS}))


def nanoseconds(start: datetime) -> bytes:
    """Times between two microseconds, the last one 1 ns before the next hour."""
    base = int(start.timestamp()) * 10**9
    values = pa.array([base + 60 * 10**9, base + 123_456_789, base + 3600 * 10**9 - 1], pa.timestamp("ns", "UTC"))
    return parquet(start, columns={"ordered_at": values})


def out_of_hour(kind: pa.DataType) -> Content:
    """Row 2 is ordered one unit before the hour, row 3 at its end."""
    return times(kind, 60, -1, 3600)


def changed(changes: Mapping[int, Mapping[str, Any]], **entries: int) -> Outcome:
    """Some of the good rows, stored with other values."""
    return Outcome(changes, entries)


INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
DECIMALS = ((5, 2), (9, 2), (18, 4), (18, 10), (38, 4), (38, 18), (38, 30))
STAMPS = (
    ("s", None),
    ("ms", None),
    ("us", None),
    ("ns", None),
    ("s", "UTC"),
    ("ms", "UTC"),
    ("ns", "UTC"),
    ("us", "Europe/Berlin"),
    ("us", "+05:30"),
)
CODECS = ("none", "snappy", "gzip", "zstd", "lz4")

PARQUET_FILES: Table = (
    ("parquet_text_that_is_not_utf8", not_utf8, keeps(1, 3, malformed=1), SURE),
    *((f"parquet_ids_{kind}", typed(kind, *IDS), ALL, SURE) for kind in INTEGERS),
    *((f"parquet_money_decimal_{p}_{s}", typed(pa.decimal128(p, s), *MONEY), ALL, SURE) for p, s in DECIMALS),
    *(
        (
            f"parquet_times_{unit}_{(zone or 'unzoned').replace('/', '_')}".lower()
            .replace("+", "plus_")
            .replace(":", "_"),
            typed(pa.timestamp(unit, zone), "ordered_at"),
            ALL,
            SURE,
        )
        for unit, zone in STAMPS
    ),
    *((f"parquet_compression_{codec}", options(compression=codec), ALL, SURE) for codec in CODECS),
    (
        "parquet_compression_brotli",
        options(compression="brotli"),
        ALL,
        "Parquet to the letter; a reader without that codec makes it unreadable",
    ),
    # Types
    ("parquet_ids_as_decimal", typed(pa.decimal128(20, 0), *IDS), ALL, SURE),
    ("parquet_ids_as_decimal_with_scale", typed(pa.decimal128(38, 6), *IDS), ALL, SURE),
    ("parquet_ids_as_double", typed(pa.float64(), *IDS), ALL, SURE),
    ("parquet_ids_as_float", typed(pa.float32(), *IDS), ALL, SURE),
    ("parquet_money_as_double", typed(pa.float64(), *MONEY), ALL, SURE),
    (
        "parquet_money_as_float",
        typed(pa.float32(), *MONEY),
        ALL,
        "19.99 as a float is 19.98999977..., which rounds to 19.9900",
    ),
    (
        "parquet_money_as_decimal_of_40_digits",
        typed(pa.decimal256(40, 4), *MONEY),
        UNREADABLE,
        "decimals of any scale, but readers end at 38 digits; keeping the rows is what the design's words want",
    ),
    (
        "parquet_money_as_integer",
        lambda s: parquet(
            s, columns={"unit_price_usd": pa.array([5, 6, 7], pa.int32()), "discount": pa.array([0, 1, 0], pa.int8())}
        ),
        changed(
            {
                1: {"unit_price_usd": "5", "discount": "0"},
                2: {"unit_price_usd": "6", "discount": "1"},
                3: {"unit_price_usd": "7", "discount": "0"},
            }
        ),
        SURE,
    ),
    ("parquet_all_text", typed(pa.string(), *COLUMNS), ALL, SURE),
    (
        "parquet_all_large_text",
        lambda s: parquet(
            s, columns={c: pa.array([text(s, n)[c] for n in (1, 2, 3)], pa.large_string()) for c in COLUMNS}
        ),
        ALL,
        SURE,
    ),
    ("parquet_all_text_with_dictionary", dictionary, ALL, SURE),
    (
        "parquet_text_as_plain_bytes",
        typed(pa.binary(), *COLUMNS),
        ALL,
        "bytes without the mark for text, as old writers leave them; bad_type is defensible",
    ),
    ("parquet_times_int96", options(use_deprecated_int96_timestamps=True), ALL, SURE),
    (
        "parquet_times_between_microseconds",
        nanoseconds,
        changed(
            {
                1: {},
                2: {"ordered_at": timedelta(microseconds=123_456)},
                3: {"ordered_at": timedelta(hours=1) - timedelta(microseconds=1)},
            }
        ),
        "finer than the column: cut, not rounded and not rejected",
    ),
    ("parquet_times_at_the_edges_ms", out_of_hour(pa.timestamp("ms", "UTC")), keeps(1, wrong_hour=2), SURE),
    ("parquet_times_at_the_edges_ns_unzoned", out_of_hour(pa.timestamp("ns")), keeps(1, wrong_hour=2), SURE),
    (
        "parquet_times_far_away",
        lambda s: parquet(
            s,
            columns={
                "ordered_at": pa.array(
                    [s + timedelta(minutes=1), datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us")
                )
            },
        ),
        keeps(1, wrong_hour=2),
        SURE,
    ),
    (
        "parquet_times_beyond_the_calendar",
        lambda s: parquet(
            s,
            columns={
                "ordered_at": pa.array(
                    [int(s.timestamp()) * 10**6 + 60 * 10**6, 2**63 - 1, -(2**63)], pa.timestamp("us", "UTC")
                )
            },
        ),
        keeps(1, wrong_hour=2),
        "the year 294247 is a time of its column's type, if a useless one; bad_type is defensible",
    ),
    (
        "parquet_times_as_date",
        holding("ordered_at", [20731, 20731, 20731], pa.date32()),
        keeps(bad_type=3),
        "a date is no time; read as midnight it would be wrong_hour",
    ),
    (
        "parquet_times_as_clock_time",
        holding("ordered_at", [1, 2, 3], pa.time64("us")),
        keeps(bad_type=3),
        "no time stamp in it; a reader that does not know the type may call the file unreadable",
    ),
    (
        "parquet_times_as_epoch_seconds",
        lambda s: parquet(s, columns={"ordered_at": pa.array([int(s.timestamp()) + n for n in (1, 2, 3)], pa.int64())}),
        keeps(bad_type=3),
        "times are ISO 8601 or typed; a bare number says neither unit nor zone",
    ),
    (
        "parquet_times_as_epoch_double",
        lambda s: parquet(s, columns={"ordered_at": pa.array([s.timestamp() + n for n in (1, 2, 3)], pa.float64())}),
        keeps(bad_type=3),
        "as parquet_times_as_epoch_seconds",
    ),
    # Values
    ("parquet_ids_beyond_bigint", holding("order_id", [1, 2**63, 2**64 - 1], pa.uint64()), keeps(1, bad_type=2), SURE),
    (
        "parquet_ids_beyond_bigint_as_decimal",
        holding("order_id", [Decimal(1), Decimal(2**63), Decimal(10**37)], pa.decimal128(38, 0)),
        keeps(1, bad_type=2),
        SURE,
    ),
    (
        "parquet_ids_at_the_edge_as_decimal",
        holding("order_id", [Decimal(2**63 - 1), Decimal(-(2**63)), Decimal(3)], pa.decimal128(38, 0)),
        changed({1: {"order_id": 2**63 - 1}, 2: {"order_id": -(2**63)}, 3: {}}),
        SURE,
    ),
    (
        "parquet_decimals_with_a_fraction_as_ids",
        holding("quantity", [Decimal("2.00"), Decimal("2.70"), Decimal("3.00")], pa.decimal128(9, 2)),
        changed({1: {}, 3: {"quantity": 3}}, bad_type=1),
        SURE,
    ),
    (
        "parquet_doubles_with_a_fraction_as_ids",
        holding("quantity", [3.0, 2.7, -0.0], pa.float64()),
        changed({1: {"quantity": 3}, 3: {"quantity": 0}}, bad_type=1),
        SURE,
    ),
    (
        "parquet_doubles_not_a_number_as_ids",
        holding("quantity", [float("nan"), float("inf"), 3.0], pa.float64()),
        changed({3: {"quantity": 3}}, bad_type=2),
        SURE,
    ),
    (
        "parquet_doubles_too_big_as_ids",
        holding("customer_id", [1e19, -1e300, 13.0], pa.float64()),
        changed({3: {}}, bad_type=2),
        SURE,
    ),
    (
        "parquet_double_of_two_to_the_63",
        holding("order_id", [2.0**63, 2.0, -(2.0**63)], pa.float64()),
        changed({2: {}, 3: {"order_id": -(2**63)}}, bad_type=1),
        SURE,
    ),
    (
        "parquet_doubles_not_a_number_as_money",
        holding("unit_price_usd", [float("nan"), float("-inf"), 5.5], pa.float64()),
        changed({3: {"unit_price_usd": "5.5"}}, bad_type=2),
        SURE,
    ),
    (
        "parquet_doubles_too_big_as_money",
        holding("unit_price_usd", [1e300, -1e14, 0.1 + 0.2], pa.float64()),
        changed({3: {"unit_price_usd": "0.3"}}, bad_type=2),
        "-10^14 does not fit decimal(18,4) and is an amount out of range too; bad_type comes first",
    ),
    (
        "parquet_decimals_too_big_as_money",
        holding("unit_price_usd", [Decimal(10) ** 20, Decimal(1), Decimal(-(10**20))], pa.decimal128(38, 4)),
        changed({2: {"unit_price_usd": "1"}}, bad_type=2),
        "as parquet_doubles_too_big_as_money",
    ),
    (
        "parquet_decimals_of_more_places",
        holding("unit_price_usd", [Decimal("1.00005"), Decimal("1.00004"), Decimal("-2.000050")], pa.decimal128(20, 6)),
        changed({1: {"unit_price_usd": "1.0001"}, 2: {"unit_price_usd": "1"}, 3: {"unit_price_usd": "-2.0001"}}),
        "rounded half up, as price_of_many_places",
    ),
    (
        "parquet_discounts_out_of_range",
        holding("discount", [-0.01, 1.0001, 1.0], pa.float64()),
        changed({3: {"discount": "1"}}, discount_out_of_range=2),
        SURE,
    ),
    (
        "parquet_quantities_out_of_range",
        holding("quantity", [10**9, -(10**9), 2], pa.int32()),
        keeps(3, quantity_out_of_range=2),
        SURE,
    ),
    ("parquet_null_values", holding("quantity", [None, 2, None], pa.int64()), keeps(2, null_value=2), SURE),
    (
        "parquet_null_times",
        holding("ordered_at", [None, None, None], pa.timestamp("us", "UTC")),
        keeps(null_value=3),
        SURE,
    ),
    (
        "parquet_column_of_nothing_but_null",
        holding("discount", [None, None, None], pa.null()),
        keeps(null_value=3),
        SURE,
    ),
    ("parquet_column_as_bool", holding("quantity", [True, False, True], pa.bool_()), keeps(bad_type=3), SURE),
    ("parquet_column_as_list", holding("quantity", [[1], [], [2, 3]], pa.list_(pa.int64())), keeps(bad_type=3), SURE),
    ("parquet_column_as_struct", holding("unit_price_usd", [{"value": 1}] * 3, STRUCT), keeps(bad_type=3), SURE),
    (
        "parquet_column_as_map",
        holding("store_id", [[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
        keeps(bad_type=3),
        SURE,
    ),
    (
        "parquet_column_as_bytes",
        holding("order_id", [b"\x01", b"\xff\xfe", b"\0" * 8], pa.binary()),
        keeps(bad_type=3),
        SURE,
    ),
    # Columns
    ("parquet_columns_in_reverse_order", reordered, ALL, SURE),
    ("parquet_missing_column", lambda s: parquet(s, columns={"discount": None}), MISSING_COLUMN, SURE),
    (
        "parquet_columns_nested_in_one",
        lambda s: parquet_of(pa.table({"row": pa.array([good(s, n) for n in (1, 2, 3)])})),
        MISSING_COLUMN,
        SURE,
    ),
    (
        "parquet_columns_in_capitals",
        lambda s: renamed(s, {c: c.upper() for c in COLUMNS}),
        ALL,
        "as header_in_capitals",
    ),
    (
        "parquet_extra_columns",
        lambda s: parquet(
            s,
            columns={
                "hour": pa.array(["x"] * 3),
                "source_file": pa.array([1, 2, 3]),
                "a.b c": pa.array([None] * 3),
                "nested": pa.array([{"order_id": [1]}] * 3),
                "list": pa.array([[[1]], None, []]),
                "blob": pa.array([b"\xff"] * 3),
                "span": pa.array([1, 2, 3], pa.time64("ns")),
                "big": pa.array([2**64 - 1] * 3, pa.uint64()),
            },
        ),
        ALL,
        SURE,
    ),
    (
        "parquet_extra_column_of_half_floats",
        lambda s: parquet(s, columns={"half": pa.array([1.5, 2.5, 3.5], pa.float16())}),
        ALL,
        "a new column is to be ignored; a reader that does not know its type may refuse the file",
    ),
    ("parquet_column_twice", lambda s: doubled(s, "quantity"), turned_away("duplicate_column"), SURE),
    (
        "parquet_column_twice_in_other_case",
        lambda s: doubled(s, "QUANTITY"),
        turned_away("duplicate_column"),
        "as column_twice_in_other_case",
    ),
    # Layout of the file
    ("parquet_row_groups_of_one_row", options(row_group_size=1), ALL, SURE),
    (
        "parquet_fifty_rows_in_many_groups",
        options(numbers=tuple(range(1, 51)), row_group_size=7),
        keeps(*range(1, 51)),
        SURE,
    ),
    ("parquet_data_pages_version_2", options(data_page_version="2.0", compression="zstd"), ALL, SURE),
    ("parquet_format_1_0", options(version="1.0"), ALL, SURE),
    ("parquet_without_dictionary_and_statistics", options(use_dictionary=False, write_statistics=False), ALL, SURE),
    (
        "parquet_delta_encodings",
        options(use_dictionary=False, column_encoding=dict.fromkeys((*IDS, "ordered_at"), "DELTA_BINARY_PACKED")),
        ALL,
        SURE,
    ),
    (
        "parquet_byte_stream_split",
        lambda s: parquet(
            s,
            types=dict.fromkeys(MONEY, pa.float64()),
            use_dictionary=False,
            column_encoding=dict.fromkeys(MONEY, "BYTE_STREAM_SPLIT"),
        ),
        ALL,
        "a younger encoding; a reader that lacks it makes the file unreadable",
    ),
    ("parquet_without_rows", options(numbers=()), NO_ROWS, SURE),
    (
        "parquet_without_rows_and_columns",
        lambda _: parquet_of(pa.table({"x": pa.array([], pa.int64())})),
        MISSING_COLUMN,
        "no rows is as true",
    ),
    # No Parquet
    ("parquet_no_byte", fixed(b""), EMPTY, SURE),
    ("parquet_magic_only", fixed(b"PAR1"), UNREADABLE, SURE),
    ("parquet_magic_twice", fixed(b"PAR1PAR1"), UNREADABLE, SURE),
    (
        "parquet_blank_lines",
        fixed(b"\n\n"),
        turned_away("empty"),
        "nothing but blank lines, yet a Parquet file has no lines: unreadable is defensible",
    ),
    ("parquet_truncated_in_the_data", lambda s: parquet(s)[:400], UNREADABLE, SURE),
    ("parquet_truncated_by_one_byte", lambda s: parquet(s)[:-1], UNREADABLE, SURE),
    (
        "parquet_without_its_first_half",
        lambda s: parquet(s)[len(parquet(s)) // 2 :],
        UNREADABLE,
        "the footer is whole, the data it points at is not",
    ),
    ("parquet_wrong_magic_at_the_end", lambda s: parquet(s)[:-4] + b"ORC1", UNREADABLE, SURE),
    ("parquet_encrypted_footer_magic", lambda s: b"PARE" + parquet(s)[4:-4] + b"PARE", UNREADABLE, SURE),
    ("parquet_footer_longer_than_the_file", lambda s: parquet(s)[:-8] + b"\xff\xff\xff\x7fPAR1", UNREADABLE, SURE),
    ("parquet_footer_length_negative", lambda s: parquet(s)[:-8] + b"\xff\xff\xff\xffPAR1", UNREADABLE, SURE),
    ("parquet_footer_damaged", lambda s: damaged(parquet(s), -300, 64), UNREADABLE, SURE),
    (
        "parquet_pages_damaged",
        lambda s: damaged(parquet(s, compression="gzip", use_dictionary=False), 4, 300),
        UNREADABLE,
        SURE,
    ),
    ("parquet_garbage_behind", lambda s: parquet(s) + b"\n", UNREADABLE, SURE),
    (
        "parquet_two_files_in_one",
        lambda s: parquet(s, numbers=(1,)) + parquet(s, numbers=(2,)),
        UNREADABLE,
        "the last footer's offsets point into the first file, so a careless reader gives a wrong row or row 1",
    ),
    ("parquet_random_bytes", fixed(JUNK), UNREADABLE, SURE),
    ("parquet_is_csv", csv, UNREADABLE, SURE),
    ("parquet_is_json", jsonl, UNREADABLE, SURE),
    ("parquet_is_json_metadata", fixed(json.dumps({"format": "parquet", "rows": []}).encode()), UNREADABLE, SURE),
)

PARQUET_CASES: tuple[FileCase, ...] = (
    *(one(name, "file.parquet", content, outcome, unsure) for name, content, outcome, unsure in PARQUET_FILES),
    one("parquet_with_a_codec_in_its_name", "part-00000-c000.snappy.parquet", parquet, ALL),
    orders(
        "parquet_same_key_in_two_row_groups",
        {
            "a.parquet": lambda s: parquet(
                s, numbers=(1, 1, 2, 1), columns={"quantity": pa.array([5, 6, 7, 8])}, row_group_size=1
            )
        },
        {1: {"quantity": 8}, 2: {"quantity": 7}},
    ),
    orders(
        "parquet_files_of_other_types_beside_each_other",
        {
            "a.parquet": lambda s: parquet(s, numbers=(1,), types=dict.fromkeys(IDS, pa.int8())),
            "b.parquet": lambda s: parquet(s, numbers=(2,), types=dict.fromkeys(COLUMNS, pa.string())),
            "c.parquet": lambda s: parquet(s, numbers=(3,), types=dict.fromkeys((*IDS, *MONEY), pa.float64())),
            "d.parquet": lambda s: parquet(
                s, numbers=(4,), types={"ordered_at": pa.timestamp("ns")}, columns={"store_id": pa.array([[1]])}
            ),
        },
        {1: {}, 2: {}, 3: {}},
        {("d.parquet", "bad_type"): 1},
    ),
)
