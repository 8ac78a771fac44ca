"""Random graphs, what happened to them, and what the next deploy changes in their code.

Belongs here: the generator, and the play of one history. Does not belong here: what is held against it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark.engine.code_plan import CodePlan, plan_of
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.toy_graph import ASAP, START, WITHIN, asset, lag, source

SOURCES = {"raw/h": "hours", "raw/d": "days", "raw/n": "none"}
KINDS = ("hours", "days", "none", "regions")
WAYS = (
    "bump",
    "bump several",
    "bump and back",
    "identical output",
    "added",
    "removed",
    "reads more",
    "reads more and bump",
    "earlier start",
    "contract",
    "not automated any more",
    "during a run",
    "with news",
    "nothing",
)
_FIRST_DAY = "2026-10-04"
_REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
_NINE = dg.FreshnessPolicy.cron("0 9 * * *", timedelta(minutes=30))


@dataclass(frozen=True)
class Declared:
    """An asset of a history, as the generator thinks of it. `start` is the first day of its partitions."""

    name: str
    kind: str
    reads: tuple[str, ...]
    version: int = 1
    pace: str = "lag"
    start: str = _FIRST_DAY
    latest: frozenset[str] = frozenset()
    automated: bool = True


@dataclass
class Deploy:
    """A history up to a deploy, and what it changes.

    Args:
        identical: Assets whose output does not depend on their code.
        ran: Every partition that was built by a run that began its way after the deploy.
        waited: Those of runs that stood in the queue as the deploy came, and so ran with its code.
        news: Sources whose data arrived just before it.
    """

    seed: int
    way: str
    before: Sequence[Declared]
    after: Sequence[Declared]
    identical: frozenset[str]
    plan: CodePlan = field(default_factory=lambda: CodePlan(()))
    ran: list[Target] = field(default_factory=list)
    waited: list[Target] = field(default_factory=list)
    news: list[Target] = field(default_factory=list)
    simulation: Simulation | None = None


def generated(seed: int, way: str | None = None) -> Deploy:
    """A random graph, and a change of it."""
    chance = random.Random(f"code plan {seed}")
    way = way or chance.choice(WAYS)
    before = _graph(chance)
    after, identical = _changed(chance, way, before)
    return Deploy(seed, way, before, after, identical)


def play(deploy: Deploy) -> Deploy:
    """A day of data, the plan, the deploy, and a day and a half in which nothing arrives."""
    chance = random.Random(f"play {deploy.seed}")

    def content(target: Target, inputs: Mapping[Target, str], default: str) -> str:
        return repr((target, sorted(inputs.items(), key=repr))) if target[0] in deploy.identical else default

    simulation = Simulation(
        dg.Definitions(assets=_assets(deploy.before)), start=START, seed=deploy.seed, content=content, pace=RunPace()
    )
    deploy.simulation = simulation
    for _ in range(chance.randint(4, 10)):
        _arrives(simulation, chance, simulation.time(minutes=chance.randint(1, 600)))
    if deploy.way == "bump and back":
        bumped, _ = _changed(random.Random(f"{deploy.seed}"), "bump several", deploy.before)
        simulation.deploy(_assets(bumped), at=simulation.time(hours=30))
        simulation.deploy(_assets(deploy.before), at=simulation.time(hours=30, seconds=chance.choice([3, 30, 400])))
    simulation.run(hours=33.5)
    if deploy.way == "with news":
        for _ in range(3):
            deploy.news.append(_arrives(simulation, chance, simulation.time(hours=33.5, seconds=1)))
        simulation.run(seconds=chance.choice([2, 40]))
    if deploy.way == "during a run":
        built = sorted({run.assets[0] for run in simulation.runs if run.succeeded})
        if built:
            name = chance.choice(built)
            last = [run for run in simulation.runs if run.succeeded and run.assets[0] == name][-1]
            simulation.slow(name, seconds=600)
            simulation.request(last.assets, last.partitions, at=simulation.time(hours=33.5, seconds=1))
            simulation.run(seconds=60)
    with simulation.clock.frozen():
        deploy.plan = plan_of(dg.Definitions(assets=_assets(deploy.after)), simulation.instance, contract_scale=1.0)
    already, deployed_at = len(simulation.runs), simulation.clock.now
    simulation.deploy(_assets(deploy.after), at=simulation.clock.now + 1)
    simulation.run(hours=40)
    for index, run in enumerate(simulation.runs):
        if index >= already or (run.started_at or 0) > deployed_at:
            into = deploy.ran if index >= already else deploy.waited
            into += [(key, partition) for key in run.committed for partition in run.of[key]]
    # What time alone brings is no matter of the code.
    deploy.ran = [(key, p) for key, p in deploy.ran if simulation.graph.nodes[key].exists_from(p) <= deployed_at]
    return deploy


def _arrives(simulation: Simulation, chance: random.Random, at: float) -> Target:
    name = chance.choice(list(SOURCES))
    partition = {
        "hours": f"2026-10-0{chance.choice((4, 5))}-{chance.randint(0, 3):02}:00",
        "days": f"2026-10-0{chance.choice((4, 5))}",
        "none": None,
    }[SOURCES[name]]
    simulation.arrive(name, partition, at=at)
    return name, partition


def _graph(chance: random.Random) -> list[Declared]:
    found: list[Declared] = []
    kinds = dict(SOURCES)
    for number in range(chance.randint(3, 8)):
        name = f"t/{number}"
        kind = chance.choice(KINDS) if number > 1 else chance.choice(KINDS[:2])
        reads = tuple(sorted(chance.sample(list(kinds), k=min(len(kinds), chance.choice([1, 1, 2])))))
        latest = frozenset(r for r in reads[1:] if kinds[r] == "none" and chance.random() < 0.5)
        pace = chance.choice(["asap", "lag", "lag", "nine" if kind in ("hours", "days") else "lag", "pulled"])
        found.append(Declared(name, kind, reads, chance.randint(1, 3), pace, latest=latest))
        kinds[name] = kind
    return found


def _changed(chance: random.Random, way: str, before: Sequence[Declared]) -> tuple[list[Declared], frozenset[str]]:
    after = list(before)
    at = chance.randrange(len(after))

    def put(index: int, **more: Any) -> None:
        after[index] = replace(after[index], **more)

    def bump(index: int) -> None:
        put(index, version=after[index].version + 1)

    identical: frozenset[str] = frozenset()
    if way in ("bump", "during a run", "with news"):
        bump(at)
    elif way == "bump several":
        for index in chance.sample(range(len(after)), k=min(3, len(after))):
            bump(index)
    elif way == "identical output":
        bump(at)
        identical = frozenset({after[at].name})
    elif way == "added":
        name = f"t/{len(after)}"
        after.append(Declared(name, chance.choice(KINDS[:3]), (chance.choice([*SOURCES, after[at].name]),)))
        if chance.random() < 0.5:
            bump(at)
    elif way == "removed":
        read = {name for each in after for name in each.reads}
        leaves = [index for index, each in enumerate(after) if each.name not in read]
        if len(after) > 1:
            after.pop(chance.choice(leaves))
    elif way in ("reads more", "reads more and bump"):
        more = [s for s in SOURCES if s not in after[at].reads]
        if more:
            put(at, reads=tuple(sorted((*after[at].reads, chance.choice(more)))))
        if way == "reads more and bump":
            bump(at)
    elif way == "earlier start":
        put(at, start=chance.choice(["2026-10-05", "2026-10-02"]))
    elif way == "contract":
        put(at, pace=chance.choice(["asap", "lag", "pulled"]))
        if chance.random() < 0.5:
            bump(chance.randrange(len(after)))
    elif way == "not automated any more":
        put(at, automated=False, version=after[at].version + 1)
    return after, identical


def _assets(declared: Sequence[Declared]) -> list[Any]:
    by: dict[str, Callable[[str], dg.PartitionsDefinition[str] | None]] = {
        "hours": lambda start: dg.HourlyPartitionsDefinition(f"{start}-00:00", end_offset=1),
        "days": lambda start: dg.DailyPartitionsDefinition(start, end_offset=1),
        "none": lambda _: None,
        "regions": lambda _: _REGIONS,
    }
    kinds = SOURCES | {each.name: each.kind for each in declared}
    found: list[Any] = [source(name.removeprefix("raw/"), by[kind](_FIRST_DAY)) for name, kind in SOURCES.items()]
    for each in declared:
        deps = [_dep(each, read, kinds) for read in each.reads if read in kinds]
        more: dict[str, Any] = {"code_version": str(each.version)}
        more |= {"asap": ASAP, "nine": {"freshness_policy": _NINE}, "pulled": {}}.get(
            each.pace, {"freshness_policy": lag(minutes=30)}
        )
        if not each.automated:
            more["automation_condition"] = None
        found.append(asset(each.name, *deps, by=by[each.kind](each.start), **more))
    return found


def _dep(each: Declared, read: str, kinds: Mapping[str, str]) -> dg.AssetDep:
    mine, theirs = each.kind, kinds[read]
    timed = ("hours", "days")
    mapping: dg.PartitionMapping | None = None
    if mine in timed and theirs in timed:
        mapping = WITHIN
    elif theirs != "none" and mine != theirs:
        mapping = dg.AllPartitionMapping()
    metadata = {"use_latest": True} if read in each.latest else {}
    return dg.AssetDep(dg.AssetKey.from_user_string(read), partition_mapping=mapping, metadata=metadata)
