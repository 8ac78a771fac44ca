"""A column of every type that a Parquet file may have, with the values at its edges."""

import math
import uuid
from datetime import date, datetime
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.readers.values import texts_of

KINDS = (
    "string",
    "boolean",
    "int",
    "bigint",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "binary",
    "decimal(3,2)",
    "decimal(10,0)",
    "decimal(18,4)",
    "decimal(38,0)",
    "decimal(38,18)",
    "decimal(38,38)",
)
"""The types that a feed may declare."""

_FLOATS = [
    *(0.0, -0.0, 1.0, -1.5, 0.1, 1e-3, 9.99e-4, 1e7, 9999999.5, 123456.789, 1e15, 1e16, 1e20, -1e20, 5e-324, 1e-7),
    *(1.7976931348623157e308, 2.0**53, 2.0**53 + 2, 2.0**63, 16777217.0, 1e39, 0.30000000000000004, 1234567.8901234567),
    *(float("nan"), float("inf"), float("-inf"), None),
]
_DAYS = [-719_163, -719_162, -1, 0, 1, 20_000, 2_932_896, 2_932_897, -719_528, 5_000_000, None]
_MICROS = [
    *(0, 1, -1, 86_400_000_000, -86_400_000_000, 1_790_000_000_000_000, 1_790_000_000_123_456, 1_790_000_000_500_000),
    *(-62_135_596_800_000_000, -62_135_596_800_000_001, 253_402_300_799_999_999, 253_402_300_800_000_000),
    *(2**63 - 1, 1 - 2**63, 10**17, None),
]
_TEXTS = [
    *(
        "",
        " ",
        "x",
        "ü漢😀",
        "5",
        "-5",
        " 7 ",
        "007",
        "+5",
        "1.50",
        "1e3",
        "3.0",
        "2.7",
        "NaN",
        "inf",
        "true",
        "T",
        "yes",
    ),
    *("2026-10-01", "2026-10-01T07:15:00Z", "2026-10-01 07:15:00.1234567", "2026-02-30", "10000-01-01", "9" * 40, None),
]
_PRECISE = Context(prec=100)
_DECIMALS = ["0", "1", "-1", "0.01", "9.99", "-9.99", "99.9", "1.5", "12", "1234567", "0.0000000001", "1e20", "9" * 19]


def _integers() -> dict[str, pa.Array]:
    found = {}
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        limits = np.iinfo(kind.to_pandas_dtype())
        near = (
            -1,
            0,
            1,
            9,
            10,
            999,
            2**24,
            2**24 + 1,
            2**31,
            2**53,
            2**53 + 1,
            10**10,
            10**17 + 3,
            2**63 - 1,
            10**18 + 1,
        )
        values = sorted({int(limits.min), int(limits.max), *(n for n in near if limits.min <= n <= limits.max)})
        found[str(kind)] = pa.array([*values, None], kind)
    return found


def _decimals() -> dict[str, pa.Array]:
    kinds = [
        *(
            pa.decimal128(*size)
            for size in ((1, 0), (3, 2), (9, 0), (10, 2), (18, 10), (20, 0), (38, 0), (38, 18), (38, 38))
        ),
        *(pa.decimal256(*size) for size in ((50, 0), (50, 12), (76, 38))),
        *(pa.decimal32(5, 2), pa.decimal64(12, 2)),
    ]
    found = {}
    for kind in kinds:
        largest = Decimal("9" * kind.precision).scaleb(-kind.scale, _PRECISE)
        smallest = Decimal(1).scaleb(-kind.scale)
        fitting = [
            value
            for value in (*map(Decimal, _DECIMALS), smallest, _PRECISE.multiply(15, smallest))
            if abs(value) <= largest and value == value.quantize(smallest, context=_PRECISE)
        ]
        found[str(kind)] = pa.array([*fitting, largest, largest.copy_negate(), None], kind)
    return found


def _times() -> dict[str, pa.Array]:
    found = {}
    for unit, divisor in (("s", 1_000_000), ("ms", 1000), ("us", 1)):
        for zone in (None, "UTC", "Europe/Berlin"):
            kind = pa.timestamp(unit, zone)
            found[str(kind)] = pa.array([t if t is None else t // divisor for t in _MICROS], pa.int64()).view(kind)
    nanos = [0, 1, -1, 999, 1000, -1000, -1001, 1_790_000_000_123_456_789, 2**63 - 1, -(2**63), 86_400 * 10**9, None]
    for zone in (None, "UTC", "+05:30"):
        kind = pa.timestamp("ns", zone)
        found[str(kind)] = pa.array(nanos, pa.int64()).view(kind)
    far = pa.array([2**63 - 1, 1 - 2**63, 0], pa.int64())
    found["far timestamp[ms]"] = far.view(pa.timestamp("ms"))
    return found


def edges() -> dict[str, pa.Array]:
    """One column per type, by the name of the type; a null is the last value of most."""
    bytes_ = [None if text is None else text.encode() for text in _TEXTS]
    texts = pa.array(_TEXTS)
    return {
        **_integers(),
        **_decimals(),
        **_times(),
        "double": pa.array(_FLOATS, pa.float64()),
        "float": pa.array(
            [f if f is None else np.float32(f) for f in _FLOATS if f is None or abs(f) < 1e38 or f in (float("inf"),)],
            pa.float32(),
        ),
        "halffloat": pa.array(np.array([1.5, 0.1, 65504, -0.0, np.nan], np.float16)),
        "bool": pa.array([True, False, None]),
        "null": pa.nulls(3),
        "date32": pa.array(_DAYS, pa.int32()).cast(pa.date32()),
        "date64": pa.array([0, -86_400_000, 86_400_000 * 20_000, None], pa.int64()).view(pa.date64()),
        "time32": pa.array([0, 26_100_005, None], pa.time32("ms")),
        "time64": pa.array([0, 26_100_000_000_005, None], pa.time64("ns")),
        "duration": pa.array([0, -5, 10**12, None], pa.duration("us")),
        "string": texts,
        "large_string": texts.cast(pa.large_string()),
        "string_view": texts.cast(pa.string_view()),
        "binary": pa.array(bytes_, pa.binary()),
        "large_binary": pa.array(bytes_, pa.large_binary()),
        "binary_view": pa.array(bytes_, pa.binary_view()),
        "fixed_size_binary": pa.array([b"abc", b" 7 ", b"1.5", None], pa.binary(3)),
        "dictionary of texts": texts.dictionary_encode(),
        "json": pa.array(['{"a": 1}', None], pa.json_()),
        "uuid": pa.array([uuid.UUID(int=0x41424344454647484950515253545556).bytes, None], pa.uuid()),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "large_list": pa.array([[1.5, None], [], None], pa.large_list(pa.float64())),
        "fixed_size_list": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        "struct": pa.array(
            [{"a": "x", "b": date(2026, 10, 1), "c": Decimal("1.50"), "d": datetime(2026, 10, 1, 7, 15)}, None],
            pa.struct({"a": pa.string(), "b": pa.date32(), "c": pa.decimal128(9, 2), "d": pa.timestamp("us", "UTC")}),
        ),
        "map": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64())),
    }


def is_same(one: object, other: object) -> bool:
    """True if two values are equal, NaN and the sign of zero included."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or (one == other and math.copysign(1, one) == math.copysign(1, other))
    return one == other


def text_of(column: pa.Array, kind: str) -> str | None:
    """The text of a column's only value, by the rules of the reader that made texts of all values.

    Where that reader failed or was wrong (a year of more than four digits, a small decimal), the text as it should be.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        value = column[0].as_py()
        return None if value is None else format(value, "f")
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _text_of_time(column, kind)
    if kind == "string" or pa.types.is_nested(column.type):
        text: str | None = texts_of(column)[0].as_py()
        return text
    text = pc.cast(column, pa.string())[0].as_py()
    return text


def _text_of_time(column: pa.Array, kind: str) -> str | None:
    if not column[0].is_valid:
        return None
    if pa.types.is_date(column.type):
        return _with_sign(str(np.datetime64(column.cast(pa.date32()).view(pa.int32())[0].as_py(), "D")))
    number, unit = column.view(pa.int64())[0].as_py(), column.type.unit
    time = (
        f"{np.datetime64(number // 1000, 'us')}{number % 1000:03}" if unit == "ns" else str(np.datetime64(number, unit))
    )
    day, _, of_day = time.partition("T")
    of_day, _, fraction = of_day.partition(".")
    day, fraction = _with_sign(day), fraction.rstrip("0").ljust(6, "0")
    is_far = not day.startswith(tuple("0123456789")) or day.startswith("0000")
    if kind == "string" or is_far:
        return f"{day} {of_day}.{fraction}".rstrip("0").rstrip(".")
    return f"{day} {of_day}.{fraction}Z"


def _with_sign(day: str) -> str:
    year, rest = day[: day.index("-", 1)], day[day.index("-", 1) :]
    sign = "-" if year.startswith("-") else "+" if len(year) > 4 else ""
    return f"{sign}{year.lstrip('-').zfill(4)}{rest}"
