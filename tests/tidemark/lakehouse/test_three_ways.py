"""Generated files give the same rows and entries whether a load is small, caches its rows, or reads files once.

The expected rows come from the generator, which uses no code of the project.
"""

import csv
import gzip
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading import first_pass
from dagster_tidemark.lakehouse.loading import load as loads
from dagster_tidemark.lakehouse.loading.load import Load, Loaded
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers import batch, small_files
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.sources.feed import Feed, Grain
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import Loading, Put, renamed

KINDS = {
    "id": "bigint",
    "count": "int",
    "price": "decimal(9,2)",
    "rate": "decimal(18,4)",
    "weight": "decimal(38,18)",
    "ratio": "double",
    "share": "float",
    "is_open": "boolean",
    "opened": "date",
    "seen_at": "timestamp",
    "local_at": "timestamp_ntz",
    "raw": "binary",
    "note": "string",
}
RULES = {"too_many": "coalesce(count, 0) < 2000000000", "other_type": "typeof(local_at) = 'timestamp_ntz'"}
TYPED = Load(
    Feed("typed", "typed/", Grain.DAY, KINDS, required=("id",), rules=RULES),
    Table("core.typed", {"day": "date"} | KINDS | LINEAGE, ("day", "id"), partitioned_by="day"),
    lambda landed: landed.where("typeof(local_at) = 'timestamp_ntz'"),
    code_version="1",
)
DAYS = ("2026-10-01", "2026-10-02")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOTES = ("x", "ü", "漢字 😀", "a,b", 'say "x"', "two\u2028", "'", "\\", " ", "a" * 300, "\U0010ffff" * 20)

Row = dict[str, Any]


@dataclass
class Expected:
    """Rows by day and id, with the name of their file, and entries (file, number of the row, reason)."""

    rows: dict[tuple[str, int], tuple[object, ...]] = field(default_factory=dict)
    entries: list[tuple[str, int | None, str]] = field(default_factory=list)
    landed: int = 0


def decimal(random: Random, precision: int, scale: int) -> Decimal:
    digits = random.choice([random.randrange(10**precision), 10**precision - 1, 1, 0])
    return Decimal((random.randrange(2), tuple(map(int, str(digits))), -scale))


def values(random: Random, number: int) -> Row:
    """Return a good row: some values are at the limits of their types, some are null."""
    found: Row = {
        "count": random.choice([0, -1, 2**31 - 1 - 147483648, -(2**31), random.randrange(10**6)]),
        "price": decimal(random, 9, 2),
        "rate": decimal(random, 18, 4),
        "weight": decimal(random, 38, 18),
        "ratio": random.choice([0.5, -0.25, 1e300, random.uniform(-1e9, 1e9)]),
        "share": struct.unpack("f", struct.pack("f", random.uniform(-1e3, 1e3)))[0],
        "is_open": random.random() < 0.5,
        "opened": date(1000, 1, 1) + timedelta(days=random.randrange(700_000)),
        "seen_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.randrange(10**15)),
        "local_at": datetime(1900, 1, 1) + timedelta(milliseconds=random.randrange(10**13)),
        "raw": bytes(random.choices(b"az.~", k=random.randrange(1, 40))),
        "note": random.choice(NOTES),
    }
    found = {name: None if random.random() < 0.1 else value for name, value in found.items()}
    return {"id": random.choice([number, number, -number, 2**62 + number])} | found


def written(value: Any) -> str:
    """Return a value as a text for CSV and JSON lines."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.decode()
    return repr(value) if isinstance(value, float) else str(value)


WRONG = {"count": "1.5", "price": "12345678.00", "opened": "2026-02-30", "is_open": "perhaps", "seen_at": "noon"}


def spoiled(random: Random, row: Row) -> tuple[dict[str, str | None], str | None]:
    """Return the texts of a row, sometimes with a fault, and the reason of the fault."""
    texts = {name: None if value is None else written(value) for name, value in row.items()}
    chance = random.random()
    if chance < 0.05:
        name = random.choice(list(WRONG))
        return texts | {name: WRONG[name]}, "bad_type"
    if chance < 0.08:
        return texts | {"id": None}, "null_value"
    if chance < 0.11:
        return texts | {"count": "2000000001"}, "too_many"
    return texts, None


def csv_body(random: Random, rows: list[dict[str, str | None]]) -> bytes:
    order = random.sample(list(KINDS), len(KINDS))
    sink = io.StringIO()
    quoting = random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.DictWriter(sink, order, quoting=quoting, lineterminator=random.choice(["\n", "\r\n"]))
    writer.writeheader()
    writer.writerows(rows)
    return (random.choice(["", "\ufeff"]) + sink.getvalue()).encode()


def json_body(random: Random, rows: list[dict[str, str | None]]) -> bytes:
    end = random.choice(["\n", "\r\n"])
    return "".join(json.dumps(row, ensure_ascii=random.random() < 0.5) + end for row in rows).encode()


def parquet_body(random: Random, rows: list[Row]) -> bytes:
    types = {
        "id": pa.int64(),
        "count": pa.int32(),
        "price": pa.decimal128(9, 2),
        "rate": pa.decimal128(18, 4),
        "weight": pa.decimal128(38, 18),
        "ratio": pa.float64(),
        "share": pa.float32(),
        "is_open": pa.bool_(),
        "opened": pa.date32(),
        "seen_at": pa.timestamp("us", "UTC"),
        "local_at": pa.timestamp("us"),
        "raw": pa.binary(),
        "note": pa.string(),
    }
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
    pq.write_table(table, sink, row_group_size=random.choice([5, 500]))
    return sink.getvalue()


def fill(put: list[Callable[[str, bytes], None]], random: Random, *, has_rivals: bool) -> Expected:
    """Put the same generated files to several places, and return what loads must give."""
    expected, number, files = Expected(), 0, list[tuple[str, str, int]]()
    for day in DAYS:
        for n, ending in enumerate(["csv", "jsonl", "csv.gz", "parquet", "csv", "csv", "jsonl"]):
            name = f"{n}.{ending}"
            rows, reasons, texts = list[Row](), list[str | None](), list[dict[str, str | None]]()
            count = [random.randrange(200), 0, 1][min(2, n - 3)] if n > 3 else random.randrange(60, 200)
            for _ in range(count):
                number += 1
                row = values(random, number)
                if has_rivals and expected.rows and random.random() < 0.1:
                    row["id"] = random.choice(list(expected.rows))[1]
                of_row, reason = spoiled(random, row)
                if ending == "parquet" and row["raw"] is not None:
                    row["raw"] += b"\xff\0"  # not UTF-8
                rows.append(row)
                texts.append(of_row)
                reasons.append(reason)
            if ending == "parquet":
                body, reasons = parquet_body(random, rows), [None] * len(rows)
            else:
                body = (json_body if ending == "jsonl" else csv_body)(random, texts)
                body = gzip.compress(body) if ending.endswith("gz") else body
            for each in put:
                each(f"{day}/{name}", body)
            expected.landed += len(rows)
            files.append((day, name, len(body)))
            for at, (row, reason) in enumerate(zip(rows, reasons, strict=True), start=1):
                if reason:
                    expected.entries.append((name, at, reason))
                else:
                    expected.rows[day, row["id"]] = (*row.values(), name)
    filled = {(day, row[-1]) for (day, _), row in expected.rows.items()}
    for day, name, size in files:
        if (day, name) not in filled:
            expected.entries.append((name, None, "no rows" if size else "empty"))
    return expected


def stored(spark: SparkSession, load: Load) -> dict[tuple[str, int], tuple[object, ...]]:
    name = "element_at(split(source_file, '/'), -1)"
    in_sql = {"timestamp": "unix_micros({})", "timestamp_ntz": "unix_micros(timestamp({}))", "binary": "hex({})"}
    columns = [in_sql.get(kind, "{}").format(c) for c, kind in KINDS.items()]
    found = spark.table(load.table.identifier).selectExpr("string(day)", *columns, name).collect()
    rows = {(row[0], row[1]): tuple(row[1:]) for row in found}
    assert len(rows) == len(found), "two rows have one key"
    return rows


def as_stored(value: object) -> object:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    return value.hex().upper() if isinstance(value, bytes) else value


def entries(spark: SparkSession, load: Load) -> list[tuple[Any, ...]]:
    found = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").collect()
    names = ("row_number", "reason", "message", "content", "partition")
    return sorted(((r.source_file.rpartition("/")[2], *(r[n] for n in names)) for r in found), key=repr)


def spied(patched: pytest.MonkeyPatch) -> list[object]:
    """Return a list that gets the result of each attempt to load in one pass."""
    found, write = list[object](), loads.write_in_one_pass

    def call(*given: Any) -> object:
        found.append(write(*given))
        return found[-1]

    patched.setattr(loads, "write_in_one_pass", call)
    return found


@pytest.mark.parametrize("seed", sample(range(6), 0))
@pytest.mark.parametrize("has_rivals", sample([False, True], False))
def test_generated_files_give_the_rows_of_their_generator_in_every_way_to_load(
    spark: SparkSession, put: Put, loading: Loading, monkeypatch: pytest.MonkeyPatch, seed: int, has_rivals: bool
) -> None:
    random = Random(seed)
    ways = {way: renamed(TYPED) for way in ("small", "cached", "once", "once, with small files", "once, read twice")}

    def putting(load: Load) -> Callable[[str, bytes], None]:
        return lambda at, body: put(load.feed.prefix_of(at.partition("/")[0]) + at.partition("/")[2], body)

    expected = fill([putting(load) for load in ways.values()], random, has_rivals=has_rivals)
    found: dict[str, Loaded] = {}
    for way, load in ways.items():
        with monkeypatch.context() as patched:
            passes = spied(patched)
            if way == "cached":
                patched.setattr(loads, "write_in_one_pass", lambda *_: None)
            if way != "small":
                patched.setattr(small_files, "SMALL", 3_000 if "small" in way else 0)
                patched.setattr(batch, "TASK_BYTES", random.choice([5_000, 20_000, 1 << 25]))
            if way == "once, read twice":
                patched.setattr(first_pass, "_MOST_ROWS", 3)
            found[way] = loading(load, *DAYS)
            is_once = bool(passes and passes[-1])
            assert is_once == (way.startswith("once") and not has_rivals), way
        rows = stored(spark, load)
        assert rows == {at: tuple(map(as_stored, row)) for at, row in expected.rows.items()}, way
        assert [entry[:3] for entry in entries(spark, load)] == sorted(expected.entries, key=repr), way
        assert found[way].rows_read == expected.landed
        assert [account.unaccounted for account in found[way].accounts if account.unaccounted] == []
        assert loading(load, *DAYS).files_read == 0
    first = found["small"]
    for way, load in ways.items():
        assert entries(spark, load) == entries(spark, ways["small"]), way
        assert {p: c.version for p, c in found[way].content.items()} == {p: c.version for p, c in first.content.items()}
        held = loads.held_at(spark, load.table, list(DAYS), found[way].snapshot_id)
        assert held.content == first.content, way
    at, row = random.choice(list(expected.rows.items()))
    given = dict(zip(KINDS, row, strict=False))
    for name in ("price", "rate", "weight", "opened"):  # data files are found by their statistics
        if (value := given[name]) is not None:
            where = f"day = '{at[0]}' AND id = {at[1]} AND {name} = CAST('{value}' AS {KINDS[name]})"
            for load in ways.values():
                assert spark.table(load.table.identifier).where(where).count() == 1, where
