"""A code location with one asset, or a few, of every shape that Dagster's graphs have; each belongs to one story.

Belongs here: the assets, their partitions, mappings, conditions and checks. Does not belong here: what their bodies do
(`tests.proof.shapes_bodies`), and what happens to them (`tests.proof.shape_stories`, `tests.proof.fault_stories`).
"""

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

import dagster as dg

from dagster_tidemark.engine.condition import derived, with_automation
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.sensors.contract_sensor import contract_checks, contract_sensor
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import load_settings
from dagster_tidemark.tags import CONTENT
from tests.proof.shapes_bodies import MINUTE, SOON, all_of, build, partitions_of, room, source, table

CITIES = dg.DynamicPartitionsDefinition(name="cities")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
DAYS = dg.DailyPartitionsDefinition("2026-10-01")
SHELVES = dg.StaticPartitionsDefinition([f"shelf {number}" for number in range(30)])
FEW_DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-04")
TEN_DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-11")
DAY_AND_REGION = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
DAY_AND_CITY = dg.MultiPartitionsDefinition({"day": DAYS, "city": CITIES})
MONTHS = dg.MonthlyPartitionsDefinition("2026-05-01")
WEEKDAYS = dg.TimeWindowPartitionsDefinition(cron_schedule="0 0 * * 1-5", start="2026-10-01", fmt="%Y-%m-%d")
QUARTERS = dg.TimeWindowPartitionsDefinition(
    cron_schedule="*/15 * * * *", start="2026-10-01-00:00", fmt="%Y-%m-%d-%H:%M"
)
BERLIN_HOURS = dg.HourlyPartitionsDefinition("2026-10-24-00:00", timezone="Europe/Berlin")
BERLIN_DAYS = dg.DailyPartitionsDefinition("2026-10-24", timezone="Europe/Berlin")
ODD_HOURS = dg.HourlyPartitionsDefinition("2026/10/01 00h", fmt="%Y/%m/%d %Hh")
GRAINS = {"monthly": MONTHS, "weekdays": WEEKDAYS, "quarters": QUARTERS, "odd": ODD_HOURS, "berlin": BERLIN_HOURS}


def _mapped(name: str, mapping: dg.PartitionMapping) -> dg.AssetDep:
    return dg.AssetDep(dg.AssetKey.from_user_string(name), partition_mapping=mapping)


class Broken(dg.PartitionMapping):
    """A mapping that raises for one day. Not made from one of Dagster's own: those have to be its own to be loaded."""

    @property
    def description(self) -> str:
        return "raises"

    def validate_partition_mapping(self, *_: Any) -> None:
        """Nothing is known to be wrong with it."""

    def _look(self, subset: Any) -> None:
        if subset is not None and "2026-10-13" in subset.get_partition_keys():
            raise RuntimeError("no map leads there")

    def get_downstream_partitions_for_partitions(self, upstream_partitions_subset: Any, *args: Any, **more: Any) -> Any:
        self._look(upstream_partitions_subset)
        identity = dg.IdentityPartitionMapping()
        return identity.get_downstream_partitions_for_partitions(upstream_partitions_subset, *args, **more)

    def get_upstream_mapped_partitions_result_for_partitions(
        self, downstream_partitions_subset: Any, *args: Any, **more: Any
    ) -> Any:
        self._look(downstream_partitions_subset)
        identity = dg.IdentityPartitionMapping()
        return identity.get_upstream_mapped_partitions_result_for_partitions(
            downstream_partitions_subset, *args, **more
        )


class BrokenAlways(Broken):
    """A mapping that raises."""

    def _look(self, subset: Any) -> None:
        raise RuntimeError("no map leads there")


class Raising(dg.AutomationCondition[Any]):
    """A condition that raises."""

    @property
    def name(self) -> str:
        return "raising"

    @property
    def description(self) -> str:
        return "raises"

    def evaluate(self, context: Any) -> Any:
        raise RuntimeError("somebody's condition")


def _of_the_day(day: str | None) -> Iterable[tuple[str, str | None]]:
    return [("core/sales", f"{day}|{region}") for region in ("eu", "us")]


def _same_day(day: str | None) -> Iterable[tuple[str, str | None]]:
    return [("raw/odd_mapping", day)]


def _day_before(day: str | None) -> str:
    return str(date.fromisoformat(str(day)) - timedelta(days=1))


def _keys() -> list[Any]:
    """Partitions by key, and assets whose definition alone says what there is to build."""
    multi = dg.MultiToSingleDimensionPartitionMapping("day")
    return [
        source("raw/visits", CITIES),
        table("core/visits", "raw/visits", by=CITIES),
        table("marts/visits", _mapped("core/visits", dg.AllPartitionMapping()), reads=all_of("core/visits")),
        source("raw/sales", DAY_AND_REGION),
        table("core/sales", "raw/sales", by=DAY_AND_REGION),
        table("marts/sales", _mapped("core/sales", multi), by=DAYS, reads=_of_the_day),
        source("raw/trips", DAY_AND_CITY),
        table("core/trips", "raw/trips", by=DAY_AND_CITY),
        source("raw/rates"),
        table("core/rates", "raw/rates", by=REGIONS, reads=lambda _: [("raw/rates", None)]),
        table("core/rates_daily", "raw/rates", by=FEW_DAYS, reads=lambda _: [("raw/rates", None)]),
        table("core/constant"),
        table("core/constants", by=REGIONS),
    ]


def _times() -> list[Any]:
    """Partitions of time, and tables that read other windows than their own."""
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    grains = [
        asset
        for name, by in GRAINS.items()
        for asset in (source(f"raw/{name}", by), table(f"core/{name}", f"raw/{name}", by=by))
    ]
    return [
        *grains,
        table(
            "marts/berlin",
            "core/berlin",
            by=BERLIN_DAYS,
            reads=lambda day: [(asset, p) for asset, p in all_of("core/berlin")(day) if str(p).startswith(str(day))],
        ),
        source("raw/amounts", TEN_DAYS),
        table(
            "core/total",
            "raw/amounts",
            _mapped("core/total", before),
            by=TEN_DAYS,
            reads=lambda day: [("core/total", _day_before(day)), ("raw/amounts", day)],
        ),
        source("raw/daily", DAYS),
        table(
            "core/last",
            _mapped("raw/daily", dg.LastPartitionMapping()),
            reads=lambda _: [("raw/daily", DAYS.get_last_partition_key())],
        ),
    ]


def _operations() -> list[Any]:
    """Operations that build several, or one in several steps, and how many partitions a run may have."""
    found = []
    for name, can_subset in (("whole", False), ("parts", True)):
        found += [source(f"raw/{name}", DAYS), _several(name, can_subset=can_subset)]
    return [
        *found,
        source("raw/graph", DAYS),
        _graph(),
        source("raw/single", DAYS),
        table("core/single", "raw/single", by=DAYS, single=True),
        source("raw/fives", DAYS),
        table("core/fives", "raw/fives", by=DAYS, backfill_policy=dg.BackfillPolicy.multi_run(5)),
        source("raw/nothing", DAYS),
        _yields_nothing(),
    ]


def _several(name: str, *, can_subset: bool) -> dg.AssetsDefinition:
    specs = [
        dg.AssetSpec(["core", f"{name}_{letter}"], deps=[["raw", name]], skippable=can_subset, **SOON)
        for letter in "ab"
    ]

    @dg.multi_asset(
        name=name,
        specs=specs,
        can_subset=can_subset,
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def _body(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        for key in sorted(context.selected_asset_keys):
            made = build(key.to_user_string(), partitions_of(context), lambda p: [(f"raw/{name}", p)], context.run_id)
            for partition, value in made.items():
                context.add_asset_metadata({CONTENT: value}, asset_key=key, partition_key=partition)
            yield dg.MaterializeResult(asset_key=key)

    return _body


def _graph() -> dg.AssetsDefinition:
    @dg.op(ins={"raw": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
    def first() -> None:
        """Nothing; there are two."""

    @dg.op(ins={"first": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
    def second(context: dg.OpExecutionContext) -> None:
        build("core/graph", partitions_of(context), lambda p: [("raw/graph", p)], context.run_id)

    @dg.graph_asset(
        key=["core", "graph"],
        ins={"raw": dg.AssetIn(["raw", "graph"], dagster_type=dg.Nothing)},
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        tags=SOON["tags"],
    )
    def graph(raw: Any) -> Any:
        return second(first(raw))

    return graph.map_asset_specs(lambda spec: spec.replace_attributes(freshness_policy=MINUTE))


def _yields_nothing() -> dg.AssetsDefinition:
    @dg.asset(key=["core", "nothing"], deps=[["raw", "nothing"]], partitions_def=DAYS, output_required=False, **SOON)
    def nothing(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
        made = build("core/nothing", partitions_of(context), lambda p: [("raw/nothing", p)], context.run_id)
        if "keep" in made.values():
            yield dg.Output(None)

    return nothing


def _others() -> list[Any]:
    """Tables that others build, and conditions, checks and mappings of somebody's own."""
    every_minute = dg.AutomationCondition.cron_tick_passed("* * * * *")
    days = {"by": DAYS}
    return [
        source("raw/upstream_of_vendor", DAYS),
        source("ext/vendor", DAYS, deps=[["raw", "upstream_of_vendor"]]),
        table("core/vendor", "ext/vendor", **days),
        source("ext/watched"),
        table("core/watched", "ext/watched"),
        source("other/table"),
        table("core/of_others", "other/table"),
        source("raw/checked", DAYS),
        table("core/checked", "raw/checked", **days),
        table("marts/checked", "core/checked", **days),
        source("raw/minutely", DAYS),
        table("core/minutely", "raw/minutely", automation_condition=derived() & every_minute, **days),
        source("raw/catalogue"),
        table(
            "core/shelves",
            "raw/catalogue",
            by=SHELVES,
            reads=lambda _: [("raw/catalogue", None)],
            automation_condition=dg.AutomationCondition.eager(),
        ),
        source("raw/odd_condition", DAYS),
        table("core/raising", "raw/odd_condition", automation_condition=Raising(), **days),
        table("core/raising_too", "raw/odd_condition", automation_condition=derived() & Raising(), **days),
        source("raw/unplanned", DAYS),
        table("core/unplanned", "raw/unplanned", required_resource_keys={"warehouse"}, **days),
        table(
            "core/unplanned_too",
            "raw/unplanned",
            required_resource_keys={"warehouse"},
            automation_condition=dg.AutomationCondition.missing(),
            **days,
        ),
        source("raw/odd_mapping", DAYS),
        table("core/unmapped", _mapped("raw/odd_mapping", BrokenAlways()), reads=_same_day, **days),
        table("core/partly_mapped", _mapped("raw/odd_mapping", Broken()), reads=_same_day, **days),
    ]


FAULTS = ("canceled", "killed", "unstarted", "overlapped", "wiped", "held", "queued", "restarted", "healthy")
"""What each story about a fault has: `raw/...`, `core/...` and `marts/...`, by the day."""


def _faults() -> list[Any]:
    found: list[Any] = []
    for name in FAULTS:
        found += [source(f"raw/{name}", DAYS), table(f"core/{name}", f"raw/{name}", by=DAYS)]
    three_minutes = dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=3))
    return [*found, table("marts/healthy", "core/healthy", by=DAYS, freshness_policy=three_minutes)]


@dg.asset_check(asset=dg.AssetKey(["core", "checked"]), blocking=True)
def good() -> dg.AssetCheckResult:
    """Whether the values are good: a file in the room says so."""
    return dg.AssetCheckResult(passed=not (room() / "broken" / "check").exists())


@dg.resource(config_schema={"url": dg.StringSource})
def warehouse() -> None:
    """A resource whose address is nowhere: no run that needs it can be planned."""


def definitions() -> dg.Definitions:
    """The code location."""
    assets = with_automation([*_keys(), *_times(), *_operations(), *_others(), *_faults()])
    scope = LocationScope(settings=load_settings())
    checks = [good, *contract_checks(assets, scope.settings)]
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        sensors=[
            *automation_sensors([*assets, *checks], scope=scope),
            catch_up_sensor(scope),
            contract_sensor(scope=scope),
        ],
        executor=dg.in_process_executor,
        resources={"warehouse": warehouse.configured({"url": {"env": "NO_SUCH_VARIABLE"}})},
    )


defs = definitions()
