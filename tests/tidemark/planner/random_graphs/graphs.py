"""A random graph from a seed, and Dagster's definitions of it."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.declarations import with_dep_metadata_moved
from dagster_tidemark.engine.condition import derived
from dagster_tidemark.engine.guarded_conditions import guarded
from tests.tidemark.planner.random_graphs.mappings import WAYS, ways
from tests.tidemark.planner.random_graphs.shapes import GRAINS, TIMES, Read, Table, World, definition

BEGINS = (
    datetime(2026, 10, 5, tzinfo=UTC),
    datetime(2026, 10, 24, 16, tzinfo=UTC),  # Europe's clocks go back on the 25th
    datetime(2026, 10, 31, 20, tzinfo=UTC),  # New York's on the first
    datetime(2027, 3, 13, 20, tzinfo=UTC),  # New York's go ahead on the 14th
    datetime(2027, 3, 27, 16, tzinfo=UTC),  # Europe's on the 28th
    datetime(2026, 9, 30, 18, tzinfo=UTC),  # a month ends
)
ZONES = ("UTC", "UTC", "Europe/Berlin", "America/New_York")
CRONS = ("0 9 * * *", "@daily", "@hourly", "0 */6 * * *")
_WITHOUT_CONFIG = "warehouse"
_WEIGHTS = {"quarters": 0.3, "hours": 4, "days": 5, "single": 4, "static": 3, "dynamic": 3, "days x static": 2}


def random_world(seed: int) -> World:
    """A graph, and no events yet."""
    chance = random.Random(f"{seed}/graph")
    begin = chance.choice(BEGINS) if chance.random() < 0.6 else BEGINS[0] + timedelta(hours=chance.randrange(24))
    grains = [chance.choices(GRAINS, [_WEIGHTS.get(g, 1) for g in GRAINS])[0] for _ in range(chance.randint(2, 4))]
    sources = [
        Table(f"raw/s{n}", grain, kind="external" if chance.random() < 0.3 else "source")
        for n, grain in enumerate(chance.choices(grains, k=chance.randint(1, 3)))
    ]
    tables = list(sources)
    for n in range(chance.randint(2, 8)):
        tables.append(_table(chance, f"t{n}", grains, tables))
    if chance.random() < 0.25:
        tables += _operation(chance, tables)
    hours = chance.choice((6.0, 9.0, 14.0, 24.0, 36.0)) if chance.random() < 0.7 else 6.0
    zone, offset = chance.choice(ZONES), chance.choice((0, 0, 1, 1, -1))
    return World(seed, begin, zone, offset, hours, tuple(tables))


def _table(chance: random.Random, key: str, grains: list[str], above: list[Table]) -> Table:
    grain = chance.choice(grains)
    broken = ""
    reads: list[Read] = []
    for other in chance.sample(above, min(len(above), chance.choice((1, 1, 1, 2, 2, 3)))):
        way = chance.choice(ways(other.grain, grain))
        if grain != "single" and other.grain == grain and chance.random() < 0.03:
            way = "raises sometimes" if grain == "static" and chance.random() < 0.5 else "raises"
            broken = "its mapping raises"
        ripple = (
            chance.choice((1, 2)) if other.grain == "single" and grain == "days" and chance.random() < 0.5 else None
        )
        reads.append(Read(other.key, way, chance.random() < 0.07, ripple))
    if all(read.use_latest for read in reads):
        reads = [Read(read.key, read.way, ripple_days=read.ripple_days) for read in reads]
    if chance.random() < 0.04:
        reads = []
    if grain == "days" and reads and chance.random() < 0.12:
        reads.append(Read(key, "before"))
    plannable = chance.random() < 0.97
    condition = chance.choices(("derived", "nightly", "missing", "none", "raises"), (90, 2, 2, 3, 1.5))[0]
    return Table(
        key,
        grain,
        tuple(reads),
        contract=_contract(chance),
        asap=chance.random() < 0.3,
        every_input=len(reads) > 1 and chance.random() < 0.05,
        policy=chance.choice(("single", "single", None, 3)) if grain != "single" else None,
        condition=condition,
        code=chance.choice(("1", "1", None)),
        constant=chance.random() < 0.07,
        check=chance.random() < 0.12,
        optional=chance.random() < 0.07,
        broken=broken
        or ("its condition raises" if condition == "raises" else "" if plannable else "no run can be planned"),
        plannable=plannable,
    )


def _contract(chance: random.Random) -> tuple[Any, ...] | None:
    kind = chance.choices(("lag", "cron", None), (5, 2, 3))[0]
    if kind == "lag":
        return "lag", chance.choice((600.0, 1200.0, 3600.0, 7200.0, 21600.0))
    if kind == "cron":
        return "cron", chance.choice(CRONS), chance.choice((1800.0, 3600.0)), chance.choice(ZONES)
    return None


def _operation(chance: random.Random, above: list[Table]) -> list[Table]:
    """Two or three tables of one operation that cannot be split."""
    read = chance.choice([table for table in above if not table.broken])
    parts = [
        Table(
            f"part{n}",
            read.grain,
            (Read(read.key),),
            contract=_contract(chance),
            asap=chance.random() < 0.3,
            group="operation",
            policy="single" if read.grain != "single" else None,
        )
        for n in range(chance.randint(2, 3))
    ]
    return parts


def _is_built(asset: Any) -> bool:
    return isinstance(asset, dg.AssetsDefinition) and asset.is_materializable


@dg.resource(config_schema={"url": str})
def _nowhere() -> None:
    raise NotImplementedError


def definitions(world: World) -> dg.Definitions:
    """Dagster's definitions of a graph. Nothing of it is ever run."""
    assets: list[Any] = [_outside(world, table) for table in world.tables if table.outside]
    own = [table for table in world.tables if not table.outside]
    assets += [_asset(world, table) for table in own if table.group is None]
    if grouped := [table for table in own if table.group]:
        assets.append(_together(world, grouped))
    assets = [each.map_asset_specs(with_dep_metadata_moved) if _is_built(each) else each for each in assets]
    checks = [_check(table) for table in own if table.check]
    return dg.Definitions(assets=assets, asset_checks=checks, resources={_WITHOUT_CONFIG: _nowhere})


def _outside(world: World, table: Table) -> Any:
    by = definition(world, table.grain)
    if table.kind == "external":
        return dg.AssetSpec(_key(table.key), partitions_def=by, deps=[dg.AssetKey("somewhere")])

    @dg.observable_source_asset(key=_key(table.key), partitions_def=by)
    def _observe() -> dg.DataVersionsByPartition:
        raise NotImplementedError

    return _observe


def _asset(world: World, table: Table) -> Any:
    more: dict[str, Any] = {"output_required": False} if table.optional else {}
    if not table.plannable:
        more["required_resource_keys"] = {_WITHOUT_CONFIG}

    @dg.asset(
        key=_key(table.key),
        deps=_deps(table),
        partitions_def=definition(world, table.grain),
        automation_condition=_condition(table),
        freshness_policy=_policy(table),
        code_version=table.code,
        tags=_tags(table),
        backfill_policy={None: None, "single": dg.BackfillPolicy.single_run()}.get(
            table.policy, dg.BackfillPolicy.multi_run(3)
        ),
        **more,
    )
    def _body() -> None:
        raise NotImplementedError

    return _body


def _together(world: World, tables: list[Table]) -> Any:
    by = definition(world, tables[0].grain)
    specs = [
        dg.AssetSpec(
            _key(table.key),
            deps=_deps(table),
            automation_condition=_condition(table),
            freshness_policy=_policy(table),
            code_version=table.code,
            tags=_tags(table),
        )
        for table in tables
    ]

    @dg.multi_asset(specs=specs, partitions_def=by, backfill_policy=dg.BackfillPolicy.single_run() if by else None)
    def _body():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    return _body


def _check(table: Table) -> Any:
    @dg.asset_check(name="complete", asset=_key(table.key), blocking=True)
    def _complete() -> dg.AssetCheckResult:
        raise NotImplementedError

    return _complete


def _deps(table: Table) -> list[dg.AssetDep]:
    return [
        dg.AssetDep(
            _key(read.key),
            partition_mapping=WAYS[read.way]() if read.way else None,
            metadata={
                **({"use_latest": True} if read.use_latest else {}),
                **({"ripple_days": read.ripple_days} if read.ripple_days else {}),
            },
        )
        for read in table.reads
    ]


class _Mistaken(dg.AutomationCondition):  # type: ignore[type-arg]
    """A user's own condition with a defect."""

    def evaluate(self, context: Any) -> Any:
        raise ValueError("the author of this condition made a mistake")


def _condition(table: Table) -> Any:
    return {
        "derived": derived,
        "idle": lambda: guarded(derived() & ~dg.AutomationCondition.in_progress()),
        "nightly": lambda: guarded(derived() & dg.AutomationCondition.cron_tick_passed("0 */4 * * *")),
        "missing": lambda: guarded(derived() | dg.AutomationCondition.on_missing()),
        "none": lambda: None,
        "raises": lambda: guarded(derived() & _Mistaken()),
    }[table.condition]()


def _policy(table: Table) -> Any:
    if table.contract is None:
        return None
    kind, *rest = table.contract
    if kind == "lag":
        return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=rest[0]))
    schedule, bound, zone = rest
    return dg.FreshnessPolicy.cron(schedule, timedelta(seconds=bound), timezone=zone)


def _tags(table: Table) -> dict[str, str]:
    pace = {"tidemark/pace": "asap"} if table.asap else {}
    return pace | ({"tidemark/requires": "every_input_changed"} if table.every_input else {})


def _key(key: str) -> dg.AssetKey:
    return dg.AssetKey.from_user_string(key)


__all__ = ["TIMES", "definitions", "random_world"]
