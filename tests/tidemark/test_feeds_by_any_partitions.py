"""Feeds by region, by day and region, by quarter of an hour and by a zone's hours, from files to rows.

Real S3, SQS, Spark and Iceberg; the landing sensor and `reconcile` observe, and the runs are those that the sensors ask
for.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import boto3
import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import (
    LINEAGE,
    ByDimensions,
    ByKey,
    ByTime,
    Feed,
    Grain,
    Table,
    build_definitions,
    feed_assets,
)
from dagster_tidemark.engine.complete_listings import note_listing, place_of
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.sensors.reconcile_schedules import reconcile
from dagster_tidemark.settings import Settings
from tests.sampling import sample

START = date(2026, 9, 28)
BERLIN = "Europe/Berlin"
DAYS = dg.DailyPartitionsDefinition(str(START), end_offset=1)
REGIONS = dg.StaticPartitionsDefinition(["apac", "emea"])
MORE_REGIONS = dg.StaticPartitionsDefinition(["apac", "emea", "mars"])
QUARTERS = dg.TimeWindowPartitionsDefinition(
    start=f"{START}-00:00", cron_schedule="*/15 * * * *", fmt="%Y-%m-%d-%H:%M", end_offset=1
)
HOURS = dg.HourlyPartitionsDefinition(f"{START}-00:00", timezone=BERLIN, end_offset=1)


@dataclass(frozen=True)
class Cut:
    """How a feed is cut, three places with the partition of each, and one of no partition with the reason.

    Args:
        columns: The partition columns of the table.
        values: For each of the three partitions the values of these columns, as Spark writes them.
        later: A definition, and a feed's keys, that have the misplaced file's partition.
    """

    grain: Grain
    definition: Any
    by: Any
    columns: Mapping[str, str]
    places: Sequence[str]
    partitions: Sequence[str]
    values: Sequence[tuple[str, ...]]
    misplaced: str
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)
    later: tuple[Any, str] | None = None


CUTS = {
    "region": Cut(
        Grain.NONE,
        REGIONS,
        ByKey("region"),
        {"region": "string"},
        ["region=apac/", "region=emea/", "region=emea/"],
        ["apac", "emea", "emea"],
        [("apac",), ("emea",), ("emea",)],
        "region=mars/",
        "unknown_key",
        {"keys": {"region": ["apac", "emea"]}},
        (MORE_REGIONS, "mars"),
    ),
    "day and region": Cut(
        Grain.DAY,
        dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS}),
        ByDimensions({"day": ByTime("day"), "region": ByKey("region")}),
        {"day": "date", "region": "string"},
        ["emea/dt=2026-10-01/", "apac/dt=2026-10-01/", "emea/dt=2026-10-02/"],
        ["2026-10-01|emea", "2026-10-01|apac", "2026-10-02|emea"],
        [("2026-10-01", "emea"), ("2026-10-01", "apac"), ("2026-10-02", "emea")],
        "mars/dt=2026-10-01/",
        "unknown_key",
        {"keys": {"region": ["apac", "emea"]}, "folders": "{region}/dt=%Y-%m-%d"},
        (dg.MultiPartitionsDefinition({"day": DAYS, "region": MORE_REGIONS}), "2026-10-01|mars"),
    ),
    "quarter hour": Cut(
        Grain.QUARTER_HOUR,
        QUARTERS,
        ByTime("begins"),
        {"begins": "timestamp"},
        [f"dt=2026-10-01/hour=07/minute={minute}/" for minute in ("00", "15", "45")],
        ["2026-10-01-07:00", "2026-10-01-07:15", "2026-10-01-07:45"],
        [(f"2026-10-01 07:{minute}:00",) for minute in ("00", "15", "45")],
        "dt=2026-10-01/hour=07/minute=20/",
        "outside_layout",
    ),
    "hour of Berlin": Cut(
        Grain.HOUR,
        HOURS,
        ByTime("hour", timezone=BERLIN),
        {"hour": "timestamp"},
        ["dt=2026-10-25/hour=02/", "dt=2026-10-25/hour=02+0100/", "dt=2026-10-25/hour=03/"],
        ["2026-10-25-02:00", "2026-10-25-02:00+0100", "2026-10-25-03:00"],
        [("2026-10-25 00:00:00",), ("2026-10-25 01:00:00",), ("2026-10-25 02:00:00",)],
        "dt=2026-10-25/hour=02+0200/",
        "outside_layout",
        {"timezone": BERLIN},
    ),
}


class Place:
    """A bucket and a queue of its own, and the location of one feed."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance, cut: Cut) -> None:
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.settings = settings.model_copy(update={"landing_bucket": self.name, "events_queue": self.name})
        self.instance, self.cut = instance, cut
        self.s3 = boto3.client("s3", **settings.aws_options())
        self.s3.create_bucket(Bucket=self.name)
        self.sqs = boto3.client("sqs", **settings.aws_options())
        self.url = self.sqs.create_queue(QueueName=self.name)["QueueUrl"]
        self.table = Table(
            f"test.{self.name}",
            {**cut.columns, "id": "bigint", "word": "string"} | LINEAGE,
            row_key=(*cut.columns, "id"),
            partitioned_by=cut.by,
            comment="A thing",
        )
        self.declare(cut.definition, **cut.options)

    def declare(self, definition: Any, **options: Any) -> None:
        """Load the location with this definition."""
        columns = {"id": "bigint", "word": "string"}
        self.feed = Feed(self.name, "things/", self.cut.grain, columns, required=("id",), **options)
        self.assets = feed_assets(
            self.feed, self.table, partitions_def=definition, tags={"tidemark/pace": "asap"}, code_version="1"
        )
        self.defs = build_definitions(self.settings, self.assets, [self.feed], [self.table])
        # Only notifications and `reconcile` are tested here; `sensors/test_first_listings.py` tests first listings.
        place = place_of(self.feed, self.name, self.settings.start_date)
        note_listing(self.instance, self.settings.code_location, self.feed.name, time.time(), place)
        self.resources = self.defs.resources or {}

    def put(self, key: str, *rows: str, told: bool = True) -> None:
        """A file lands, and is told of unless its notification is lost."""
        body = "\n".join(["id,word", *rows, ""])
        self.s3.put_object(Bucket=self.name, Key=f"things/{key}", Body=body.encode())
        if told:
            self.tell(key)

    def delete(self, key: str) -> None:
        self.s3.delete_object(Bucket=self.name, Key=f"things/{key}")
        self.tell(key)

    def tell(self, key: str) -> None:
        said = {"bucket": {"name": self.name}, "object": {"key": f"things/{key}".replace("+", "%2B")}}
        self.sqs.send_message(QueueUrl=self.url, MessageBody=json.dumps({"Records": [{"s3": said}]}))

    def look(self) -> int:
        """A tick of the landing sensor and one for what is due over ranges; their runs, to their ends."""
        repository, requests = self.defs.get_repository_def(), []
        for name in ("landing", "catch_up"):
            resources = {}
            if name == "landing":
                resources = {n: self.resources[n] for n in ("tidemark_landing", "tidemark_events_queue")}
            sensor = repository.get_sensor_def(name)
            with dg.build_sensor_context(self.instance, resources=resources, repository_def=repository) as context:
                result = sensor(context)
            requests += list(result.run_requests or ()) if isinstance(result, dg.SensorResult) else []
        for request in requests:
            ran = dg.materialize(
                [asset for asset in self.assets if isinstance(asset, dg.AssetsDefinition)],
                partition_key=request.partition_key,
                tags=request.tags,
                instance=self.instance,
                resources=self.resources,
            )
            assert ran.success
        return len(requests)

    def reconcile(self, days: Sequence[date] | None = None) -> set[str | None]:
        found = reconcile(self.ledger, self.resources["landing"].open(), [self.feed], days=days)
        return {observation.partition for observation in found.changed}

    @property
    def ledger(self) -> ObservationLedger:
        return ObservationLedger(self.instance, START)

    def rows(self, spark: SparkSession) -> set[tuple[str, ...]]:
        found = spark.table(self.table.identifier).select(*self.cut.columns, "id", "word").collect()
        assert len({(*row,) for row in found}) == len(found)
        return {tuple(map(str, row)) for row in found}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")  # Dagster of its own nested resources
@pytest.mark.parametrize("name", sample(CUTS, "day and region"))
def test_feeds_with_each_partitioning_load_files_and_reconcile(
    name: str,
    spark: SparkSession,
    cloud: Settings,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in cloud.exports().items():
        monkeypatch.setenv(variable, value)
    cut = CUTS[name]
    place = Place(cloud, instance, cut)
    first, second, third = cut.places
    one, two, three = cut.values

    place.put(f"{first}a.csv", "1,x", "2,y")
    place.put(f"{second}a b+ü.csv", "1,x", told=False)
    place.put(f"{third}c.csv", "3,z", told=False)
    place.put(f"{cut.misplaced}a.csv", "9,lost")
    assert place.look() == 1, "one file was told of that has a partition"
    assert place.rows(spark) == {(*one, "1", "x"), (*one, "2", "y")}

    assert place.reconcile() == set(cut.partitions[1:]), "what no notification told"
    assert place.reconcile() == set()
    assert place.reconcile([date(2026, 10, 1), date(2026, 10, 25)]) == set()
    assert place.look() >= 1
    assert place.rows(spark) == {(*one, "1", "x"), (*one, "2", "y"), (*two, "1", "x"), (*three, "3", "z")}

    (told,) = (place.ledger.misplaced(place.feed) or {}).values()
    assert (told.reason, told.newest) == (cut.reason, f"things/{cut.misplaced}a.csv")
    entries = spark.table(QUARANTINE.identifier).where(f"asset = 'test/{place.name}'").collect()
    assert [(e.source_file, e.reason) for e in entries] == [(f"things/{cut.misplaced}a.csv", cut.reason)]

    place.put(f"{first}a.csv", "1,new")
    place.delete(f"{third}c.csv")
    assert place.look() >= 1
    assert place.rows(spark) == {(*one, "1", "new"), (*two, "1", "x")}

    if cut.later:
        definition, partition = cut.later
        keys = {"region": MORE_REGIONS.get_partition_keys()}
        place.declare(definition, **{**cut.options, "keys": keys})
        assert place.reconcile([date(2026, 10, 1)]) == {partition}
        assert place.ledger.misplaced(place.feed) == {} or cut.grain is not Grain.NONE
        place.reconcile()
        assert place.ledger.misplaced(place.feed) == {}
        place.tell(f"{first}a.csv")  # one partition alone is asked for as a message comes
        assert place.look() == 1
        assert {row for row in place.rows(spark) if "mars" in row} == {(*one[:-1], "mars", "9", "lost")}
        place.declare(cut.definition, **cut.options)
        assert place.reconcile() == set(), "nothing vanished: a key that is gone again is misplaced"
        assert [of.reason for of in (place.ledger.misplaced(place.feed) or {}).values()] == ["unknown_key"]
