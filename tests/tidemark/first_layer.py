"""A table loaded from files and a mart below it, whose first layer changes; and DuckDB's result from the same files.

Belongs here: the location, its runs, and the oracle, which shares no code with a load. Does not belong here: the tests.
"""

import csv
import io
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import dagster as dg
import duckdb
from dagster import DagsterInstance
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.definitions import build_definitions
from dagster_tidemark.engine.code_plan import CodePlan, follow, plan_of
from dagster_tidemark.event_log import deployed
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.execution.load_asset import load_partitions
from dagster_tidemark.feed_factory import feed_assets
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.preview import preview_runs, publish
from dagster_tidemark.preview.lake import PreviewLake
from dagster_tidemark.preview.manifest import PreviewManifest, Store
from dagster_tidemark.preview.targets import choose
from dagster_tidemark.sensors.change_detection import look_at_feed
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.s3 import S3Bucket
from tests.toys.partitions import DAYS, HOURS, WITHIN

START = datetime(2026, 10, 1, tzinfo=UTC)
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Code:
    """A version of the first layer.

    Args:
        limit: Rows with `n` from here on are turned away.
        factor: The transform multiplies `n` by it.
        key: The columns that identify a row within an hour.
        more: True if its table also has the column `half`.
    """

    version: str
    limit: int = 1_000
    factor: int = 1
    key: tuple[str, ...] = ("id",)
    more: bool = False


OLD = Code("1")


@dataclass
class Lake:
    """The resource `lakehouse` of ordinary runs."""

    spark: SparkSession
    landing: S3Bucket
    loaded: list[tuple[str, str]] = field(default_factory=list)

    def load(self, context: Any, feed: Feed, table: Table, transform: Any) -> Any:
        version = context.assets_def.code_versions_by_key[context.asset_key]
        self.loaded += [(str(key), version) for key in context.partition_keys]
        load = Load(feed, table, transform, version)
        known: dict[str, Any] = {"start": Settings().start_date, "misplaced": None}
        return load_partitions(context, self.spark, self.landing, load, context.instance, **known)


@dataclass
class Layer:
    """raw (hours) -> core -> daily, on an instance, a bucket and a Spark server."""

    spark: SparkSession
    settings: Settings
    instance: DagsterInstance
    folder: Path
    hours: int
    tag: str = field(default_factory=lambda: f"l{uuid.uuid4().hex[:8]}")
    daily_ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client: Any = boto3.client("s3", **self.settings.aws_options())
        self.landing = S3Bucket(lambda: self.client, self.settings.landing_bucket)
        self.lake = Lake(self.spark, self.landing)
        self.opened = 0

    # Files.

    def partitions(self) -> list[str]:
        """Return the partitions."""
        return [f"{START + timedelta(hours=h):%Y-%m-%d-%H:00}" for h in range(self.hours)]

    def days(self) -> list[str]:
        return sorted({key[:10] for key in self.partitions()})

    def put(self, hour: str, name: str, body: str) -> None:
        key = f"{self.tag}/dt={hour[:10]}/hour={hour[11:13]}/{name}"
        self.client.put_object(Bucket=self.settings.landing_bucket, Key=key, Body=body.encode())

    def fill(self) -> None:
        """Put files with good rows, doubles, rows turned away, no row at all, and a header that does not fit."""
        for at, hour in enumerate(self.partitions()):
            rows = [(i, at * 10 + i * 7, i % 2) for i in range(5)]
            rows += [(90, "x", 0), (91, 5_000, 0), (92, 400 + at, 1)]
            self.put(hour, "a.csv", "id,n,k\n" + "".join(f"{i},{n},{k}\n" for i, n, k in rows))
            if at % 3 == 0:
                self.put(hour, "b.csv", f"id,n,k\n1,{at + 500},0\n1,{at + 501},1\n77,3,1\n")
            if at % 4 == 1:
                self.put(hour, "empty.csv", "id,n,k\n")
            if at % 5 == 2:
                self.put(hour, "other.csv", "what,ever\n1,2\n")

    # Code.

    @property
    def table(self) -> Table:
        return self.table_of(OLD)

    def table_of(self, code: Code) -> Table:
        columns = {"hour": "timestamp", "id": "bigint", "n": "bigint", "k": "bigint", "twice": "bigint"} | LINEAGE
        columns |= {"half": "bigint"} if code.more else {}
        return Table(f"{self.tag}.core", columns, ("hour", *code.key), "hour")

    def tables(self, code: Code = OLD) -> dict[str, Table]:
        daily = Table(f"{self.tag}.daily", {"day": "date", "n": "bigint", "rows": "bigint"}, ("day",), "day")
        return {each.name: each for each in (self.table_of(code), daily)}

    def feed(self, code: Code = OLD) -> Feed:
        return Feed(
            name=self.tag,
            prefix=f"{self.tag}/",
            grain=Grain.HOUR,
            columns={"id": "bigint", "n": "bigint", "k": "bigint"},
            required=("id", "n", "k"),
            rules={"too_large": f"n < {code.limit}"},
            quarantine_share=1.0,
        )

    def code(self, code: Code) -> dg.Definitions:
        tag = self.tag

        def transform(rows: DataFrame) -> DataFrame:
            rows = rows.withColumn("n", F.col("n") * code.factor).withColumn("twice", F.col("n") * 2)
            return rows.withColumn("half", F.expr("n div 2")) if code.more else rows

        first = feed_assets(
            self.feed(code),
            self.table_of(code),
            partitions_def=HOURS,
            transform=transform,
            code_version=code.version,
            tags={"tidemark/pace": "asap"},
        )

        @dg.asset(
            key=[tag, "daily"],
            ins={"core": dg.AssetIn(key=[tag, "core"], partition_mapping=WITHIN)},
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            code_version="1",
            tags={"tidemark/pace": "asap"},
        )
        def daily(context: dg.AssetExecutionContext, core: DataFrame) -> DataFrame:
            self.daily_ran += list(context.partition_keys)
            by_day = core.groupBy(F.to_date("hour").alias("day"))
            return by_day.agg(F.sum("n").alias("n"), F.count("*").alias("rows"))

        fixed = dg.ResourceDefinition.hardcoded_resource
        return build_definitions(
            self.settings,
            [*first, daily],
            [self.feed(code)],
            self.tables(code).values(),
            spark=fixed(SimpleNamespace(session=self.spark)),
            lakehouse=fixed(self.lake),
        )

    # Runs.

    def observe(self) -> None:
        """Look at the feed, as the sensor does after a file has landed."""
        log = ObservationLedger(self.instance)
        look_at_feed(log, self.landing, self.feed())

    def run(self, code: dg.Definitions, asset: str, partitions: Sequence[str]) -> None:
        done = dg.materialize(
            list(code.assets or ()),
            selection=dg.AssetSelection.assets([self.tag, asset]),
            instance=self.instance,
            resources=dict(code.resources or {}),
            run_config=preview_runs.QUIET,
            raise_on_error=True,
            **preview_runs.run_of(partitions),
        )
        assert done.success

    def built(self) -> dg.Definitions:
        """Build everything with the old code, and deploy this code."""
        code = self.code(OLD)
        self.observe()
        self.run(code, "core", self.partitions())
        self.run(code, "daily", self.days())
        self.deploy(code)
        return code

    def deploy(self, code: dg.Definitions) -> None:
        graph = follow(code, self.instance, contract_scale=1.0).history.graph
        deployed.keep(self.instance, ("toy", "toy"), graph)

    def plan(self, code: dg.Definitions) -> CodePlan:
        return plan_of(code, self.instance, contract_scale=1.0)

    def left(self, code: dg.Definitions) -> dict[str, list[str]]:
        """Deploy this code, and return the partitions that the planner still wants to build."""
        self.deploy(code)
        return {
            asset.key.partition("/")[2]: sorted(str(r.partition) for r in asset.rebuilds)
            for asset in self.plan(code).assets
            if asset.rebuilds
        }

    @property
    def store(self) -> Store:
        return Store(self.folder)

    def preview(self, code: dg.Definitions, version: Code, partitions: str | None = None) -> PreviewManifest:
        history = follow(code, self.instance, contract_scale=1.0).history
        plan, tables = self.plan(code), self.tables(version)
        manifest = PreviewManifest.begun({}, {})

        def landing() -> S3Bucket:
            self.opened += 1
            return self.landing

        lake = PreviewLake(self.spark, tables, manifest, self.settings, landing=landing, instance=self.instance)
        refused = preview_runs.refusals(code, history.graph, lake, [asset.key for asset in plan.assets])
        targets = choose(plan, history.graph, partitions, refused)
        manifest.left_out = targets.left_out
        preview_runs.build(code, history, targets, lake, self.store, lambda _: None)
        return manifest

    def publish(self, code: dg.Definitions, version: Code) -> publish.Published:
        manifest = self.store.read()
        assert manifest is not None
        publish.require_publishable(manifest, {})
        tables = self.tables(version)
        publisher = publish.Publisher(
            code, self.instance, self.spark, tables, manifest, self.store, [self.feed(version)]
        )
        found = publisher.publish()
        preview_runs.discard(self.spark, tables, self.store, manifest)
        return found

    # What is there.

    def core(self, identifier: str = "") -> Rows:
        found = self.spark.table(identifier or f"lake.{self.tag}.core")
        return sorted(tuple(row) for row in found.select("hour", "id", "n", "k", "twice", "source_file").collect())

    def daily(self) -> Rows:
        return sorted(tuple(row) for row in self.spark.table(f"lake.{self.tag}.daily").collect())

    def quarantine(self, branch: str = "") -> Rows:
        """Return the entries as (partition, file, row number), without those of files without rows."""
        where = f".branch_{branch}" if branch else ""
        found = self.spark.table(f"lake.ops.quarantine{where}").where(f"asset = '{self.tag}/core'")
        rows = found.where("reason <> 'no rows'").select("partition", "source_file", "row_number", "loaded_by")
        return sorted((tuple(row) for row in rows.collect()), key=str)

    def told_of_quarantine(self) -> int:
        """Return the number of rows in the latest result of the check on the quarantine."""
        found = event_storage.latest_check_metadata(
            self.instance, dg.AssetCheckKey(dg.AssetKey([self.tag, "core"]), "quarantine")
        )
        assert found is not None
        return int(str(found["rows"]))

    def branches(self) -> set[str]:
        tables = [f"lake.{self.tag}.core", f"lake.{self.tag}.daily", "lake.ops.quarantine"]
        return {row.name for t in tables for row in self.spark.sql(f"SELECT name FROM {t}.refs").collect()} - {"main"}

    # The oracle.

    def expected(self, code: Code) -> tuple[Rows, Rows, Rows]:
        """Return core, daily and quarantine, computed by DuckDB from the files in the bucket."""
        landed: list[tuple[Any, ...]] = []
        broken: Rows = []
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.settings.landing_bucket, Prefix=f"{self.tag}/"
        )
        for found in (found for page in pages for found in page.get("Contents", ())):
            name, day, hour = found["Key"], found["Key"].split("dt=")[1][:10], found["Key"].split("hour=")[1][:2]
            body = self.client.get_object(Bucket=self.settings.landing_bucket, Key=name)["Body"].read().decode()
            lines = list(csv.reader(io.StringIO(body)))
            if lines[0] != ["id", "n", "k"]:
                broken.append((f"{day}-{hour}:00", name, None, code.version))
                continue
            for number, row in enumerate(lines[1:], 1):
                landed.append((f"{day}-{hour}:00", name, found["LastModified"], number, *row))
        db = duckdb.connect()
        db.execute("SET TimeZone = 'UTC'")
        db.execute("CREATE TABLE landed (p TEXT, file TEXT, arrived TIMESTAMPTZ, row BIGINT, id TEXT, n TEXT, k TEXT)")
        db.executemany("INSERT INTO landed VALUES (?, ?, ?, ?, ?, ?, ?)", landed)
        good = f"coalesce(try_cast(n AS BIGINT) < {code.limit}, false)"
        core = db.sql(f"""
            SELECT strptime(p, '%Y-%m-%d-%H:%M') AS hour, id::BIGINT AS id, n::BIGINT * {code.factor} AS n,
                k::BIGINT AS k, n::BIGINT * {code.factor} * 2 AS twice, file
            FROM landed WHERE {good}
            QUALIFY row_number() OVER (
                PARTITION BY p, {", ".join(code.key)} ORDER BY arrived DESC, file DESC, row DESC) = 1""")
        rows = sorted(core.fetchall())
        per_day = db.sql("SELECT hour::DATE, sum(n)::BIGINT, count(*) FROM core GROUP BY 1 ORDER BY 1").fetchall()
        bad = db.sql(f"SELECT p, file, row, '{code.version}' FROM landed WHERE NOT ({good})").fetchall()
        return rows, per_day, sorted([*bad, *broken], key=str)

    def found(self) -> tuple[Rows, Rows, Rows]:
        return self.core(), self.daily(), self.quarantine()
