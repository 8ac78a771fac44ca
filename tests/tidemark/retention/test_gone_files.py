"""Quarantine entries of files that are gone, in a real Iceberg table: which leave, and which stay."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from dagster_tidemark import build_definitions, location
from dagster_tidemark.cli import prune_lake
from dagster_tidemark.cli.app import app
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.feed_factory import feed_assets
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.retention import gone_files
from dagster_tidemark.retention.gone_files import prune_entries
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.listing import BucketUnavailable, FakeBucket, LandedObject
from tests.conftest import make_settings

FEED = Feed("orders", "orders/", Grain.DAY, {"id": "bigint"}, required=("id",))
ORDERS = Table("core.orders", {"id": "bigint"} | LINEAGE, ("id",))
OLD, YOUNG = datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC)
BEFORE = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
FOLDER = "orders/dt=2026-09-01/"


@dataclass
class Place:
    """A lake and a bucket."""

    lake: Catalog
    bucket: FakeBucket = field(default_factory=FakeBucket)

    def enter(self, *keys: str, asset: str = "core/orders", at: datetime = OLD) -> None:
        table = Appendable(self.lake, QUARANTINE)
        rows = [
            {"asset": asset, "source_file": key, "source_version": "1", "reason": "bad", "quarantined_at": at}
            for key in keys
        ]
        table.commit(TableCommit(rows_of(table.schema, rows)))

    def load(self, *keys: str) -> None:
        table = Appendable(self.lake, ORDERS)
        table.commit(TableCommit(rows_of(table.schema, [{"id": 1, "source_file": key} for key in keys])))

    def entered(self) -> list[str]:
        return sorted(Appendable(self.lake, QUARANTINE).rows(columns=("source_file",))["source_file"].to_pylist())

    def prune(self, *assets: str, prefix: str = "orders/") -> int:
        by_asset = dict.fromkeys(assets or ("core/orders",), (prefix,))
        found = gone_files.find(self.lake, self.bucket, by_asset, BEFORE)
        return gone_files.forget(self.lake, found)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path)
    Path(made.warehouse).mkdir()
    return made


@pytest.fixture
def place(settings: Settings) -> Place:
    return Place(open_lake(settings))


def test_only_old_entries_of_files_that_nothing_else_knows_are_deleted(place: Place) -> None:
    there, gone, loaded, young = (f"{FOLDER}{name}.csv" for name in ("there", "gone", "loaded", "young"))
    place.bucket.put(there, b"")
    place.load(loaded)
    place.enter(there, gone, gone, loaded)
    place.enter(young, at=YOUNG)
    place.enter(gone, asset="core/others")
    place.enter("sqs:queue")
    assert place.prune() == 2
    assert place.entered() == sorted([there, gone, loaded, young, "sqs:queue"]), "that of core/others among them"
    assert place.prune() == 0


def test_entries_of_misplaced_folders_stay(place: Place) -> None:
    place.bucket.put("orders/dt=2019-01-01/one.csv", b"")
    place.enter("orders/dt=2019-01-01/", "* outside_layout")
    assert place.prune() == place.prune(prefix="") == 0


def test_entries_stay_if_nothing_is_below_the_prefix_of_the_feed(place: Place) -> None:
    place.bucket.put("other/file.csv", b"")
    place.enter(f"{FOLDER}gone.csv")
    assert place.prune() == 0, "the bucket may be the wrong one"


def test_entries_stay_while_too_much_of_the_feed_is_gone(place: Place, settings: Settings) -> None:
    place.bucket.put("orders/dt=2026-10-01/kept.csv", b"")
    place.enter(f"{FOLDER}gone.csv")
    graph = dg.Definitions([dg.AssetSpec(["raw", "orders"]), _orders()]).resolve_asset_graph()
    with dg.DagsterInstance.ephemeral() as instance:
        ledger = ObservationLedger(instance, date(2026, 9, 1))
        left = []
        for alarm in ("wrong bucket?", None):
            ledger.tell(FEED, alarm)
            left.append(prune_entries(settings, place.bucket, instance, graph, [FEED], BEFORE, apply=True))
    assert left == [0, 1]


def test_nothing_is_deleted_if_the_bucket_cannot_be_listed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.bucket.put("orders/elsewhere/kept.csv", b"")
    place.enter(f"{FOLDER}gone.csv", "orders/elsewhere/gone.csv")
    list_folder = place.bucket.list_folder

    def _fails(prefix: str) -> list[LandedObject]:
        if prefix == FOLDER:
            raise BucketUnavailable("bucket landing does not answer")
        return list_folder(prefix)

    monkeypatch.setattr(place.bucket, "list_folder", _fails)
    with pytest.raises(BucketUnavailable):
        place.prune()
    assert len(place.entered()) == 2


def test_entries_stay_if_the_table_does_not_record_files(place: Place) -> None:
    table = Appendable(place.lake, Table("core.orders", {"id": "bigint"}, ("id",)))
    table.commit(TableCommit(rows_of(table.schema, [{"id": 1}])))
    place.bucket.put(f"{FOLDER}kept.csv", b"")
    place.enter(f"{FOLDER}gone.csv")
    assert place.prune() == 0


def test_lake_without_a_quarantine_has_nothing_to_delete(place: Place) -> None:
    assert place.prune() == 0
    assert not place.lake.table_exists(QUARANTINE.name), "looking creates no table"


@pytest.mark.parametrize("seed", range(3))
def test_random_entries_equal_an_oracle(place: Place, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone_files, "_FILES_AT_ONCE", 3)
    rng = random.Random(seed)
    keys = [f"{rng.choice(('orders/a/', 'orders/b/', 'orders/', 'other/'))}{n}.csv" for n in range(20)]
    there, loaded = rng.sample(keys, 6), rng.sample(keys, 4)
    entries = [
        (rng.choice(keys), rng.choice(("core/orders", "core/others")), rng.choice((OLD, YOUNG))) for _ in range(30)
    ]
    for key in there:
        place.bucket.put(key, b"")
    place.load(*loaded)
    for asset in ("core/orders", "core/others"):
        for at in (OLD, YOUNG):
            place.enter(*(key for key, of, entered in entries if (of, entered) == (asset, at)), asset=asset, at=at)
    stays = [
        key
        for key, asset, at in entries
        if at == YOUNG or key in there or key.startswith("other/") or (asset == "core/orders" and key in loaded)
    ]
    assert place.prune("core/orders", "core/others") == len(entries) - len(stays)
    assert place.entered() == sorted(stays)


@pytest.fixture
def said(settings: Settings, place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run `tidemark prune` in a location with a feed."""
    graph = dg.Definitions([dg.AssetSpec(["raw", "orders"]), _orders()]).resolve_asset_graph()
    (settings.state_dir / "dagster").mkdir()
    (settings.state_dir / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    for name, value in settings.exports().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(location, "asset_graph", lambda settings: graph)
    monkeypatch.setattr(location, "sensor_names", lambda settings: frozenset())
    monkeypatch.setattr(location, "feeds", lambda settings: [FEED])
    monkeypatch.setattr(prune_lake, "landing_bucket", lambda settings: place.bucket)
    place.bucket.put("orders/dt=2026-10-01/kept.csv", b"")

    def _said(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["prune", "--older-than", "1d", *words])
        assert result.exit_code == code, result.output
        return result.output

    return _said


def _orders() -> dg.AssetsDefinition:
    @dg.asset(key=["core", "orders"], deps=[["raw", "orders"]])
    def orders() -> None: ...

    return orders


def test_command_counts_first_and_deletes_with_apply(place: Place, said: Callable[..., str]) -> None:
    place.enter(f"{FOLDER}gone.csv", at=datetime.now(UTC) - timedelta(days=2))
    line = "quarantine entries of files that are gone: 1"
    assert line in said()
    assert len(place.entered()) == 1
    assert line in said("--apply")
    assert place.entered() == []


def test_command_names_the_bucket_that_cannot_be_listed_and_exits_with_1(
    place: Place, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.enter(f"{FOLDER}gone.csv", at=datetime.now(UTC) - timedelta(days=2))

    def _fails(prefix: str) -> Any:
        raise BucketUnavailable("bucket landing does not answer")

    monkeypatch.setattr(place.bucket, "list_folder", _fails)
    found = said("--apply", code=1)
    assert "quarantine entries of files that are gone stay: BucketUnavailable: bucket landing" in found
    assert len(place.entered()) == 1


def test_schedule_deletes_entries_only_if_the_location_has_feeds() -> None:
    def ops(feeds: list[Feed], tables: list[Table], assets: list[Any]) -> set[str]:
        defs = build_definitions(load_settings(), assets, feeds, tables, retention=timedelta(days=30))
        return {node.name for node in defs.resolve_job_def("prune").nodes}

    days = dg.DailyPartitionsDefinition("2026-09-28")
    table = replace(ORDERS, columns={"day": "date"} | ORDERS.columns, row_key=("day", "id"), partitioned_by="day")
    assets = feed_assets(FEED, table, partitions_def=days)
    assert ops([], [], []) == {"delete_old_records"}
    assert ops([FEED], [table], assets) == {"delete_old_records", "delete_entries_of_gone_files"}
