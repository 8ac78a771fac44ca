"""The files of the TPC-H benchmark: each table, in each format that its generators write, equals DuckDB's reading.

`SCALE=1` takes files of 1 GB. The generator is another project; JSON and compressed files are written by DuckDB.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import duckdb
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, Csv, Feed, Grain, Table
from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.conftest import Report
from tests.tidemark.lakehouse.conftest import renamed

SCALE = os.environ.get("SCALE", "0.05")
DAY = "2026-10-01"
MONEY = "decimal(15,2)"
TABLES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "region": ({"r_regionkey": "int", "r_name": "string", "r_comment": "string"}, ("r_regionkey",)),
    "nation": (
        {"n_nationkey": "int", "n_name": "string", "n_regionkey": "int", "n_comment": "string"},
        ("n_nationkey",),
    ),
    "supplier": (
        {
            "s_suppkey": "bigint",
            "s_name": "string",
            "s_address": "string",
            "s_nationkey": "int",
            "s_phone": "string",
            "s_acctbal": MONEY,
            "s_comment": "string",
        },
        ("s_suppkey",),
    ),
    "customer": (
        {
            "c_custkey": "bigint",
            "c_name": "string",
            "c_address": "string",
            "c_nationkey": "int",
            "c_phone": "string",
            "c_acctbal": MONEY,
            "c_mktsegment": "string",
            "c_comment": "string",
        },
        ("c_custkey",),
    ),
    "part": (
        {
            "p_partkey": "bigint",
            "p_name": "string",
            "p_mfgr": "string",
            "p_brand": "string",
            "p_type": "string",
            "p_size": "int",
            "p_container": "string",
            "p_retailprice": MONEY,
            "p_comment": "string",
        },
        ("p_partkey",),
    ),
    "partsupp": (
        {
            "ps_partkey": "bigint",
            "ps_suppkey": "bigint",
            "ps_availqty": "int",
            "ps_supplycost": MONEY,
            "ps_comment": "string",
        },
        ("ps_partkey", "ps_suppkey"),
    ),
    "orders": (
        {
            "o_orderkey": "bigint",
            "o_custkey": "bigint",
            "o_orderstatus": "string",
            "o_totalprice": MONEY,
            "o_orderdate": "date",
            "o_orderpriority": "string",
            "o_clerk": "string",
            "o_shippriority": "int",
            "o_comment": "string",
        },
        ("o_orderkey",),
    ),
    "lineitem": (
        {
            "l_orderkey": "bigint",
            "l_partkey": "bigint",
            "l_suppkey": "bigint",
            "l_linenumber": "int",
            "l_quantity": MONEY,
            "l_extendedprice": MONEY,
            "l_discount": MONEY,
            "l_tax": MONEY,
            "l_returnflag": "string",
            "l_linestatus": "string",
            "l_shipdate": "date",
            "l_commitdate": "date",
            "l_receiptdate": "date",
            "l_shipinstruct": "string",
            "l_shipmode": "string",
            "l_comment": "string",
        },
        ("l_orderkey", "l_linenumber"),
    ),
}
"""From a table to the types of its columns in the order of its files, and its key."""
FORMATS = {"tbl": ".tbl", "csv": ".csv", "parquet": ".parquet", "json": ".json", "csv.gz": ".csv.gz"}
IN_PARTS = ("orders", "lineitem")
"""Tables that are also loaded from ten files each."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, duckdb.DuckDBPyConnection]]:
    """The generated files, and a database with a view of each table."""
    folder, generator = tmp_path_factory.mktemp("tpch"), Path(sys.executable).with_name("tpchgen-cli")
    for form in ("tbl", "csv", "parquet"):
        subprocess.run([generator, form, "-s", SCALE, "-o", folder], check=True, capture_output=True)
    for table in IN_PARTS:
        of_parts = ("-T", table, "--parts", "10", "-o", folder / "parts")
        subprocess.run([generator, "tbl", "-s", SCALE, *of_parts], check=True, capture_output=True)
    with duckdb.connect() as database:
        for table, (columns, _) in TABLES.items():
            types = {name: kind.replace("string", "varchar") for name, kind in columns.items()}
            database.sql(
                f"CREATE TABLE {table} AS SELECT * EXCLUDE (nothing) FROM read_csv('{folder}/{table}.tbl', delim='|', "
                f"header=false, quote='', columns={types | {'nothing': 'varchar'}})"
            )
            database.sql(f"COPY {table} TO '{folder}/{table}.json'")
            database.sql(f"COPY {table} TO '{folder}/{table}.csv.gz' (HEADER)")
        yield folder, database


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_tpch_tables_of_each_format_equal_their_reading_by_duckdb(
    files: tuple[Path, duckdb.DuckDBPyConnection], cloud: Settings, spark: SparkSession, report: Report
) -> None:
    folder, database = files
    client = boto3.client("s3", **cloud.aws_options())
    landing = S3Bucket(lambda: client, cloud.landing_bucket)
    differences = _compared(database, spark)
    begun, loaded, wrong = time.monotonic(), dict[str, int](), list[str]()
    cases = [(table, form, [folder / f"{table}{ending}"]) for table in TABLES for form, ending in FORMATS.items()]
    cases += [(table, "tbl", sorted((folder / "parts" / table).iterdir())) for table in IN_PARTS]
    for table, form, paths in cases:
        load = renamed(_load(table, form))
        for path in paths:
            client.put_object(Bucket=landing.name, Key=load.feed.prefix_of(DAY) + path.name, Body=path.read_bytes())
        done = run_load(spark, landing, load, [DAY], run_id=f"tpch-{len(loaded)}")
        name = f"{table}, {len(paths)} x {FORMATS[form]}"
        loaded[name] = done.rows_read
        wrong += [f"{name}: {said}" for said in differences(table, load)]
    figures = {"scale": SCALE, "rows": sum(loaded.values()), "loads": len(loaded), "differences": wrong}
    report("tpch", figures | {"seconds": round(time.monotonic() - begun), "rows of each load": loaded})
    assert not wrong


def _load(table: str, form: str) -> Load:
    columns, key = TABLES[table]
    text = None
    if form == "tbl":
        text = Csv(separator="|", header=False, quote=None, trailing_separator=True)
    return Load(
        Feed(table, f"{table}/", Grain.DAY, columns, suffixes=(FORMATS[form],), format=text, required=tuple(columns)),
        Table(f"core.{table}", {"day": "date"} | columns | LINEAGE, ("day", *key), partitioned_by="day"),
        lambda rows: rows,
        code_version="1",
    )


def _compared(database: duckdb.DuckDBPyConnection, spark: SparkSession) -> Callable[[str, Load], list[str]]:
    def _differences(table: str, load: Load) -> list[str]:
        """Return what differs between a table and DuckDB's, rows that occur twice included."""
        found = spark.table(load.table.identifier).select(*TABLES[table][0]).toArrow()
        database.register("found", found)
        counts = {
            "rows only in DuckDB": f"SELECT * FROM {table} EXCEPT ALL SELECT * FROM found",
            "rows only in the table": f"SELECT * FROM found EXCEPT ALL SELECT * FROM {table}",
        }
        said = [f"{n} {what}" for what, query in counts.items() if (n := len(database.sql(query).fetchall()))]
        entries = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").count()
        return said + ([f"{entries} rejected"] if entries else [])

    return _differences
