"""Changed code on branches, on a real Spark server: what is shown, what publishing leaves, and what a kill leaves."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.definitions import build_definitions
from dagster_tidemark.engine.code_plan import CodePlan, follow, plan_of
from dagster_tidemark.event_log import deployed
from dagster_tidemark.lakehouse.row_diff import RowDiff, row_diff
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.preview import preview_runs, publish
from dagster_tidemark.preview.lake import PreviewLake
from dagster_tidemark.preview.manifest import DEFAULT, PreviewManifest, Store, TablePreview
from dagster_tidemark.preview.targets import choose
from dagster_tidemark.settings import Settings
from tests.live.waiting import all_the_time
from tests.toys.partitions import DAYS, HOURS, WITHIN

# Dagster of its own nested resources, and of what the project uses knowingly.
pytestmark = [
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run"),
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
]

DAY_KEYS = ["2026-10-01", "2026-10-02"]
HOUR_KEYS = [f"{day}-{hour:02}:00" for day in DAY_KEYS for hour in range(24)]
Rows = list[tuple[Any, ...]]


class Killed(BaseException):
    """The process died here, as far as anybody can see."""


@dataclass
class Toy:
    """A chain of tables: base (hours) -> hourly -> daily -> whole, of which the code of hourly changes."""

    spark: SparkSession
    settings: Settings
    instance: DagsterInstance
    folder: Path
    tag: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    ran: list[tuple[str, str]] = field(default_factory=list)
    built_after: dict[str, int] = field(default_factory=dict)
    base: int = 1
    name: str = DEFAULT

    @property
    def tables(self) -> dict[str, Table]:
        hours = {"hour": "timestamp", "k": "bigint", "n": "bigint"}
        found = [
            Table(f"{self.tag}.base", hours, ("hour", "k"), "hour"),
            Table(f"{self.tag}.hourly", hours, ("hour", "k"), "hour"),
            Table(f"{self.tag}.daily", {"day": "date", "n": "bigint"}, ("day",), "day"),
            Table(f"{self.tag}.whole", {"days": "bigint", "n": "bigint"}, ("days",)),
        ]
        return {table.name: table for table in found}

    def code(self, factor: int, version: str, **more: Any) -> dg.Definitions:
        """The code location whose hourly table multiplies by a factor."""
        tag, ran, spark = self.tag, self.ran, self.spark
        single = dg.BackfillPolicy.single_run()

        @dg.asset(key=[tag, "base"], partitions_def=HOURS, backfill_policy=single, code_version="1")
        def base(context: dg.AssetExecutionContext) -> DataFrame:
            keys = [(key, k) for key in context.partition_keys for k in range(3)]
            hour = "to_timestamp(key, 'yyyy-MM-dd-HH:mm') AS hour"
            frame = spark.createDataFrame(keys, "key string, k bigint")
            return frame.selectExpr(hour, "k", f"hour(to_timestamp(key, 'yyyy-MM-dd-HH:mm')) + {self.base}L AS n")

        @dg.asset(
            key=[tag, "hourly"],
            ins={"base": dg.AssetIn(key=[tag, "base"])},
            partitions_def=HOURS,
            backfill_policy=single,
            code_version=version,
            check_specs=[dg.AssetCheckSpec("positive", asset=[tag, "hourly"])],
        )
        def hourly(base: DataFrame) -> Iterator[Any]:
            ran.append(("hourly", version))
            found = base.withColumn("n", F.when(F.col("k") == 1, F.col("n") * factor).otherwise(F.col("n")))
            yield dg.Output(found.where(F.lit(factor < 5) | (F.col("k") != 2)))
            yield dg.AssetCheckResult(passed=factor > 0, check_name="positive", description=f"factor {factor}")

        @dg.asset(
            key=[tag, "daily"],
            ins={"hourly": dg.AssetIn(key=[tag, "hourly"], partition_mapping=WITHIN)},
            partitions_def=DAYS,
            backfill_policy=single,
            code_version="1",
        )
        def daily(hourly: DataFrame) -> DataFrame:
            ran.append(("daily", version))
            return hourly.groupBy(F.to_date("hour").alias("day")).agg(F.sum("n").alias("n"))

        @dg.asset(key=[tag, "whole"], ins={"daily": dg.AssetIn(key=[tag, "daily"])}, code_version="1")
        def whole(daily: DataFrame) -> DataFrame:
            ran.append(("whole", version))
            return daily.agg(F.count("*").alias("days"), F.sum("n").alias("n"))

        @dg.asset_check(asset=dg.AssetKey([tag, "daily"]), name="seen")
        def seen(lakehouse: dg.ResourceParam[Any]) -> dg.AssetCheckResult:
            rows = lakehouse.read(self.tables[f"{tag}.daily"]).agg(F.sum("n").alias("n")).collect()
            return dg.AssetCheckResult(passed=True, metadata={"sum": int(rows[0].n or 0)})

        asap = {"tidemark/pace": "asap"}
        assets = [
            each.map_asset_specs(lambda spec: spec.replace_attributes(tags={**spec.tags, **asap}))
            for each in (base, hourly, daily, whole)
        ]
        session = dg.ResourceDefinition.hardcoded_resource(SimpleNamespace(session=spark))
        lake = dg.ResourceDefinition.hardcoded_resource(
            SimpleNamespace(read=lambda table: spark.table(table.identifier))
        )
        return build_definitions(
            self.settings, [*assets, seen], [], self.tables.values(), spark=session, lakehouse=lake, **more
        )

    def run(self, code: dg.Definitions, asset: str, partitions: Sequence[str | None] = (None,)) -> None:
        """An ordinary run on the instance."""
        done = dg.materialize(
            list(code.assets or ()),
            selection=[dg.AssetKey([self.tag, asset])],
            instance=self.instance,
            resources=dict(code.resources or {}),
            run_config=preview_runs.QUIET,
            **preview_runs.run_of(partitions),
        )
        assert done.success

    def built(self, factor: int = 1, version: str = "1") -> dg.Definitions:
        """All of it, built by this code, which is deployed."""
        code = self.code(factor, version)
        for asset, keys in (("base", HOUR_KEYS), ("hourly", HOUR_KEYS), ("daily", DAY_KEYS), ("whole", [None])):
            self.run(code, asset, keys)
        self.deploy(code)
        return code

    def deploy(self, code: dg.Definitions) -> None:
        """From now on this is the running code."""
        graph = follow(code, self.instance, contract_scale=1.0).history.graph
        deployed.keep(self.instance, ("toy", "toy"), graph)

    def plan(self, code: dg.Definitions) -> CodePlan:
        """What deploying this code would make run."""
        return plan_of(code, self.instance, contract_scale=1.0)

    @property
    def store(self) -> Store:
        """Where the preview is recorded."""
        return Store(self.folder, self.name)

    def preview(self, code: dg.Definitions, partitions: str | None = None) -> PreviewManifest:
        """Build a preview of this code."""
        follower = follow(code, self.instance, contract_scale=1.0)
        plan = self.plan(code)
        manifest = PreviewManifest.begun({}, {})
        lake = PreviewLake(self.spark, self.tables, manifest, self.settings)
        refused = preview_runs.refusals(code, follower.history.graph, lake, [asset.key for asset in plan.assets])
        targets = choose(plan, follower.history.graph, partitions, refused)
        manifest.left_out = targets.left_out
        self.built_after.clear()

        def note(own: TablePreview) -> None:
            self.built_after[own.asset.partition("/")[2]] = len(manifest.runs)

        preview_runs.build(code, follower.history, targets, lake, self.store, lambda _: None, note)
        return manifest

    def diff(self, manifest: PreviewManifest, asset: str) -> RowDiff:
        """What the preview changes."""
        own = manifest.of(f"{self.tag}/{asset}")
        keys = None if None in own.partitions else [str(p) for p in own.partitions]
        return row_diff(self.spark, self.tables[own.table], keys, own.base, own.head)

    def publish(self, code: dg.Definitions) -> publish.Published:
        """Publish what is recorded."""
        manifest = self.store.read()
        assert manifest is not None
        publish.require_publishable(manifest, {})
        publisher = publish.Publisher(code, self.instance, self.spark, self.tables, manifest, self.store)
        found = publisher.publish()
        preview_runs.discard(self.spark, self.tables, self.store, manifest)
        return found

    def rows(self, asset: str) -> Rows:
        """What readers see."""
        return sorted(tuple(row) for row in self.spark.table(f"lake.{self.tag}.{asset}").collect())

    def all_rows(self) -> dict[str, Rows]:
        """What readers see of all that the change reaches."""
        return {asset: self.rows(asset) for asset in ("hourly", "daily", "whole")}

    def expected(self, factor: int) -> dict[str, Rows]:
        """What a full build with a factor gives, worked out by hand."""
        hourly = []
        for row in self.rows("base"):
            if factor < 5 or row[1] != 2:
                hourly.append((row[0], row[1], row[2] * factor if row[1] == 1 else row[2]))
        days: dict[Any, int] = {}
        for hour, _, n in hourly:
            days[hour.date()] = days.get(hour.date(), 0) + n
        daily = sorted(days.items())
        return {"hourly": sorted(hourly), "daily": daily, "whole": [(len(daily), sum(n for _, n in daily))]}

    def branches(self) -> set[str]:
        """The branches of all tables but main."""
        return {
            row.name
            for table in self.tables.values()
            for row in self.spark.sql(f"SELECT name FROM {table.identifier}.refs").collect()
        } - {"main"}

    def left(self, code: dg.Definitions) -> dict[str, list[str | None]]:
        """What the planner still wants to build because of this code, once it is deployed."""
        self.deploy(code)
        plan = self.plan(code)
        return {
            asset.key.partition("/")[2]: sorted(r.partition for r in asset.rebuilds)  # type: ignore[type-var]
            for asset in plan.assets
            if asset.rebuilds
        }


@contextmanager
def polling(toy: Toy) -> Iterator[dict[str, list[Rows]]]:
    """The different states that a reader saw, who has looked all the time, and once more in the end."""
    seen: dict[str, list[Rows]] = {asset: [] for asset in toy.all_rows()}
    spark = new_session(toy.settings)

    def look() -> None:
        for asset, states in seen.items():
            rows = sorted(tuple(row) for row in spark.table(f"lake.{toy.tag}.{asset}").collect())
            if rows not in states:
                states.append(rows)

    look()
    try:
        with all_the_time(look):
            yield seen
    finally:
        spark.stop()


@pytest.fixture
def toy(spark: SparkSession, spark_server: Settings, tmp_path: Path) -> Iterator[Toy]:
    with DagsterInstance.ephemeral() as instance:
        yield Toy(spark, spark_server, instance, tmp_path)


def test_preview_shows_the_row_diff_and_publishing_it_computes_nothing(toy: Toy) -> None:
    toy.built()
    before, code = toy.all_rows(), toy.code(7, "2")
    assert {a.key.partition("/")[2]: len(a.rebuilds) for a in toy.plan(code).assets} == {
        "hourly": 48,
        "daily": 2,
        "whole": 1,
    }
    toy.ran.clear()
    manifest = toy.preview(code)
    assert toy.ran == [("hourly", "2"), ("daily", "2"), ("whole", "2")], "one run each"
    assert toy.built_after == {"hourly": 1, "daily": 2, "whole": 3}, "each can be compared while others are built"
    assert toy.all_rows() == before, "readers see nothing"
    hourly = toy.diff(manifest, "hourly")
    assert (hourly.rows_before, hourly.rows_after) == (144, 96)
    assert (hourly.added, hourly.removed, hourly.changed, dict(hourly.columns)) == (0, 48, 48, {"n": 48})
    assert (int(hourly.totals["n"].before or 0), int(hourly.totals["n"].after or 0)) == (
        sum(row[2] for row in before["hourly"]),
        sum(row[2] for row in toy.expected(7)["hourly"]),
    )
    assert toy.diff(manifest, "daily").changed == 2
    checks = [check for run in manifest.runs for check in preview_runs.events(run.checks)]
    assert {check.check_name: check.passed for check in checks} == {"positive": True, "seen": True}
    (seen,) = [check for check in checks if check.check_name == "seen"]
    assert seen.metadata["sum"].value == sum(n for _, n in toy.expected(7)["daily"]), "it looked at the branch"

    toy.ran.clear()
    with polling(toy) as seen_by_readers:
        found = toy.publish(code)
    assert len(found.forwarded) == 3 and not found.left
    assert toy.ran == [], "nothing was computed"
    assert toy.all_rows() == toy.expected(7)
    assert toy.branches() == set() and toy.store.read() is None
    assert toy.left(code) == {}
    after = toy.all_rows()
    for asset, states in seen_by_readers.items():
        assert before[asset] in states and after[asset] in states
        assert all(rows in (before[asset], after[asset]) for rows in states), f"{asset}: readers saw a mixture"


def test_each_of_two_previews_has_its_own_branches_and_publishes_what_it_showed(toy: Toy) -> None:
    toy.built()
    before, seven, three = toy.all_rows(), toy.code(7, "2"), toy.code(3, "3")
    toy.name = "seven"
    first = toy.preview(seven)
    toy.name = "three"
    second = toy.preview(three)
    assert Store.names(toy.folder) == ["seven", "three"]
    assert toy.branches() == {first.branch, second.branch} and toy.all_rows() == before
    toy.ran.clear()
    found = toy.publish(three)
    assert len(found.forwarded) == 3 and not found.left
    assert toy.ran == [] and toy.all_rows() == toy.expected(3)
    assert toy.branches() == {first.branch}, "the other preview is still there"
    toy.name = "seven"
    assert toy.store.read() is not None
    preview_runs.discard(toy.spark, toy.tables, toy.store, first)
    assert toy.branches() == set() and Store.names(toy.folder) == [] and toy.all_rows() == toy.expected(3)


@pytest.mark.proof
def test_partitions_committed_after_a_preview_are_kept_and_left_to_rebuild(toy: Toy) -> None:
    old, code = toy.built(), toy.code(7, "2")
    toy.preview(code)
    toy.base = 100
    for asset in ("base", "hourly"):
        toy.run(old, asset, HOUR_KEYS[30:31])
    toy.ran.clear()
    found = toy.publish(code)
    assert not found.forwarded
    assert {asset.partition("/")[2]: left for asset, left in found.left.items()} == {
        "hourly": [HOUR_KEYS[30]],
        "daily": [DAY_KEYS[1]],
        "whole": [None],
    }
    theirs = [row for row in toy.rows("hourly") if row[0].day == 2 and row[0].hour == 6]
    assert [row[2] for row in theirs] == [106, 106, 106], "as the old code has built it"
    ours = [row for row in toy.rows("hourly") if row not in theirs]
    assert ours == [row for row in toy.expected(7)["hourly"] if (row[0].day, row[0].hour) != (2, 6)]
    assert toy.ran == []
    assert toy.left(code) == {"hourly": [HOUR_KEYS[30]], "daily": [DAY_KEYS[1]], "whole": [None]}
    toy.run(code, "hourly", [HOUR_KEYS[30]])
    toy.run(code, "daily", [DAY_KEYS[1]])
    toy.run(code, "whole")
    assert toy.all_rows() == toy.expected(7)
    assert toy.left(code) == {} and toy.branches() == set()


@pytest.mark.proof
def test_input_data_after_a_preview_leaves_only_its_readers_to_rebuild(toy: Toy) -> None:
    old, code = toy.built(), toy.code(7, "2")
    toy.preview(code, f"{HOUR_KEYS[0]}...{HOUR_KEYS[23]}")
    toy.base = 100
    toy.run(old, "base", [HOUR_KEYS[3]])
    found = toy.publish(code)
    assert {asset.partition("/")[2]: left for asset, left in found.left.items()} == {
        "hourly": [HOUR_KEYS[3]],
        "daily": [DAY_KEYS[0]],
        "whole": [None],
    }
    assert toy.left(code)["hourly"] == [HOUR_KEYS[3], *HOUR_KEYS[24:]]


@pytest.mark.proof
def test_commit_to_another_partition_does_not_prevent_publishing(toy: Toy) -> None:
    old, code = toy.built(), toy.code(7, "2")
    manifest = toy.preview(code, ",".join(HOUR_KEYS[:2]))
    assert manifest.of(f"{toy.tag}/hourly").partitions == HOUR_KEYS[:2]
    assert manifest.of(f"{toy.tag}/daily").partitions == DAY_KEYS[:1]
    later = ["2026-10-03-00:00"]
    toy.run(old, "base", later)
    toy.run(old, "hourly", later)
    found = toy.publish(code)
    assert found.forwarded == [f"{toy.tag}/daily", f"{toy.tag}/whole"] and not found.left
    rows = toy.rows("hourly")
    assert rows[:4] == toy.expected(7)["hourly"][:4] and len([row for row in rows if row[0].day == 3]) == 3
    assert toy.left(code)["hourly"] == [*HOUR_KEYS[2:], *later]


def test_killed_publish_is_completed_when_repeated(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.built()
    code = toy.code(7, "2")
    toy.preview(code)
    toy.ran.clear()
    for nth in range(1, 20):
        came = [0]

        def reached(_: str, came: list[int] = came, nth: int = nth) -> None:
            came[0] += 1
            if came[0] == nth:
                raise Killed

        monkeypatch.setattr(publish, "reached", reached)
        try:
            toy.publish(code)
            break
        except Killed:
            continue
    assert nth > 4, "it died in more than one place"
    assert toy.all_rows() == toy.expected(7) and toy.ran == []
    assert toy.left(code) == {} and toy.branches() == set() and toy.store.read() is None


def test_preview_with_a_failed_check_is_not_published_and_can_be_discarded(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.built()
    before, code = toy.all_rows(), toy.code(-1, "2")
    manifest = toy.preview(code, HOUR_KEYS[0])
    with pytest.raises(publish.NotToPublish, match=r"hourly positive; correct the code and preview again"):
        toy.publish(code)
    with pytest.raises(publish.NotToPublish, match="preview again"):
        publish.require_publishable(replace(manifest, code={"x": "1"}), {"x": "2"})
    with pytest.raises(publish.NotToPublish, match="older than 2 days"):
        publish.require_publishable(replace(manifest, created=manifest.created - 3 * 86_400), {})
    preview_runs.discard(toy.spark, toy.tables, toy.store, manifest)
    assert toy.branches() == set() and toy.store.read() is None and toy.all_rows() == before

    def dies(_: str) -> None:
        raise Killed

    monkeypatch.setattr(preview_runs, "reached", dies)
    with pytest.raises(Killed):
        toy.preview(code, HOUR_KEYS[0])
    left = toy.store.read()
    assert left is not None and toy.branches() == {left.branch}
    preview_runs.discard(toy.spark, toy.tables, toy.store, left)
    assert toy.branches() == set()
