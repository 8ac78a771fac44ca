"""Files of ORC and Avro, small and large, beside bad ones, in one load with files of other formats."""

import hashlib
import io
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, FixedWidth, Table
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.sources.feed import Feed, Grain
from tests.proof.kinds import avro_kinds
from tests.tidemark.lakehouse.conftest import Loading, Put, quarantined, renamed
from tests.tidemark.lakehouse.parsing.declared import rows_of

COLUMNS = {"trip_id": "bigint", "rider": "string", "fare": "decimal(18,4)", "began_at": "timestamp"}
TRIPS = Load(
    Feed("trips", "trips/", Grain.DAY, COLUMNS, required=("trip_id",)),
    Table("core.trips", {"day": "date"} | COLUMNS | LINEAGE, ("day", "trip_id"), partitioned_by="day"),
    lambda landed: landed,
    code_version="1",
)
DAY = "2026-10-01"
BEGAN = datetime(2026, 10, 1, 7, 30, 0, 250_000)
SCHEMA = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "trip_id", "type": "long"},
        {"name": "rider", "type": ["null", "string"]},
        {"name": "fare", "type": avro_kinds.logical("bytes", "decimal", precision=18, scale=4)},
        {"name": "began_at", "type": avro_kinds.logical("long", "local-timestamp-micros")},
    ],
}


def rider(n: int) -> str | None:
    """Different texts, so that a large file is large."""
    return None if n % 7 == 0 else f"Zoë {hashlib.sha512(str(n).encode()).hexdigest()}"


def as_orc(ids: range) -> bytes:
    sink = io.BytesIO()
    found = {
        "trip_id": pa.array(ids, pa.int64()),
        "rider": pa.array(map(rider, ids), pa.string()),
        "fare": pa.array([Decimal(n) / 8 for n in ids], pa.decimal128(18, 4)),
        "began_at": pa.array([BEGAN] * len(ids), pa.timestamp("us")),
    }
    orc.write_table(pa.table(found), sink, compression="zlib", stripe_size=1 << 20)
    return sink.getvalue()


def as_avro(ids: range) -> bytes:
    rows = [{"trip_id": n, "rider": rider(n), "fare": Decimal(n) / 8, "began_at": BEGAN} for n in ids]
    return avro_kinds.file_of(SCHEMA, rows, codec="snappy")


def test_orc_and_avro_files_of_each_size_are_loaded_beside_bad_files(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    load = renamed(TRIPS)
    ids = [range(50), range(50, 20_050), range(20_050, 20_100), range(20_100, 40_100)]
    large = {"orc": as_orc(ids[1]), "avro": as_avro(ids[3])}
    bodies: dict[str, Any] = {
        "small.orc": as_orc(ids[0]),
        "large.ORC": large["orc"],
        "small.avro": as_avro(ids[2]),
        "large.AVRO": large["avro"],
        "half.orc": large["orc"][: 1 << 20],
        "half.avro": large["avro"][: (1 << 20) + 100_000],
        "bad.avro": b"trip_id\n1\n",
    }
    sizes = {name: len(body) for name, body in bodies.items()}
    assert min(sizes["large.ORC"], sizes["large.AVRO"], sizes["half.avro"]) > small_files.SMALL, sizes
    for name, body in bodies.items():
        put(load.feed.prefix_of(DAY) + name, body)
    loading(load, DAY)
    assert quarantined(spark, load) == [(name, 0, "unreadable") for name in ("bad.avro", "half.avro", "half.orc")]
    found = spark.table(load.table.identifier).select("trip_id", "rider", "fare", "began_at").toPandas()
    found = found.sort_values("trip_id", ignore_index=True)
    assert found["trip_id"].tolist() == list(range(40_100))
    assert [r or None for r in found["rider"].tolist()] == [rider(n) for n in range(40_100)]
    assert all(fare == Decimal(n) / 8 for n, fare in enumerate(found["fare"]))
    assert set(found["began_at"].astype(str)) == {"2026-10-01 07:30:00.250"}


def test_fixed_width_text_of_each_size_is_loaded_and_bad_lines_are_named(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    places = {"trip_id": (1, 8), "rider": (9, 140), "fare": (149, 12), "began_at": (161, 23)}
    load = renamed(TRIPS, format=FixedWidth(columns=places), suffixes=(".txt",))

    def lines(ids: range) -> bytes:
        return "".join(f"{n:>8}{rider(n) or '':<140}{n / 8:>12.3f}2026-10-01 07:30:00.250\n" for n in ids).encode()

    put(load.feed.prefix_of(DAY) + "small.txt", lines(range(50)) + b"     123short\n\n" + b"x" * 183 + b"\n")
    large = lines(range(50, 7_050))
    assert len(large) > small_files.SMALL
    put(load.feed.prefix_of(DAY) + "large.TXT", large + b"  999999short\n")
    loading(load, DAY)
    assert quarantined(spark, load) == [
        ("large.TXT", 7_001, "malformed"),
        ("small.txt", 51, "malformed"),
        ("small.txt", 52, "bad_type"),
    ]
    found = spark.table(load.table.identifier).selectExpr("count(*)", "sum(fare)", "count(rider)").collect()[0]
    assert tuple(found) == (7_050, sum(Decimal(n) / 8 for n in range(7_050)), sum(n % 7 > 0 for n in range(7_050)))


def test_variant_of_spark_is_refused_with_the_column_and_spark_writes_orc_that_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    trips = spark.sql("SELECT 1L AS trip_id, parse_json('{\"a\": 1}') AS v, 'x' AS rider, DATE'2026-10-01' AS day")
    trips.coalesce(1).write.parquet(str(tmp_path / "parquet"))
    trips.drop("v").coalesce(1).write.orc(str(tmp_path / "orc"))
    ((parquet,), (written,)) = (list((tmp_path / name).glob(f"*.{name}")) for name in ("parquet", "orc"))
    body = parquet.read_bytes()
    with pytest.raises(Unusable, match=r"column v is a VARIANT, which is not read; .* to_json\(v\)"):
        rows_of(body, {"trip_id": "bigint", "v": "string"}, key="a.parquet")
    assert rows_of(body, {"trip_id": "bigint"}, key="a.parquet")[0][0] == 1, "undeclared, it does not matter"
    columns = {"trip_id": "bigint", "rider": "string", "day": "string"}
    assert rows_of(written.read_bytes(), columns, key="a.orc")[0][:3] == (1, "x", "2026-10-01")
