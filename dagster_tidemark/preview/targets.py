"""Chooses the partitions that a preview builds: partitions of changed assets, and the partitions that read them.

Belongs here: the choice, as plain data. Does not belong here: the plan of all partitions (`engine.code_plan`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dagster_tidemark.asset_graph.partition_keys import ends_of_range
from dagster_tidemark.engine.code_plan import CodePlan
from dagster_tidemark.errors import Terminal
from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.grouping import ranges
from dagster_tidemark.planner.rehearsal import Rebuild
from dagster_tidemark.sources.feed import Partition


class NoSuchPartitions(Terminal):
    """The user chose partitions, but no changed asset would build any of them."""


@dataclass(frozen=True)
class Group:
    """Assets that one operation builds together (usually one asset), with the partitions to build, oldest first."""

    assets: tuple[str, ...]
    partitions: tuple[Partition, ...]


@dataclass
class Targets:
    """Assets and partitions that a preview builds, in topological order.

    Args:
        left_out: Assets with planned partitions that are not previewed, with the reason. An asset is not listed if the
            user chose only some of its partitions.
        planned: Number of planned partitions of each asset.
    """

    groups: list[Group] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)

    @property
    def all(self) -> frozenset[Target]:
        """Every partition of every asset."""
        return frozenset((key, p) for group in self.groups for key in group.assets for p in group.partitions)


def choose(plan: CodePlan, graph: Graph, partitions: str | None, refused: Mapping[str, str]) -> Targets:
    """Return the previewed part of a plan, and the reasons why the other parts are not previewed.

    Args:
        partitions: Keys of partitions of changed assets, as a range `A...B` (or `A..B`, as in `tidemark pause`) or a
            comma-separated list. None means all planned partitions.
        refused: Assets that cannot be previewed, with the reason.

    Raises:
        NoSuchPartitions: no planned partition was chosen.
    """
    planned = {asset.key: asset.rebuilds for asset in plan.assets if asset.rebuilds}
    found, chosen, without = (
        Targets(planned={key: len(of) for key, of in planned.items()}),
        set[Target](),
        set[Target](),
    )
    done = set[str]()
    for key, node in graph.nodes.items():
        if key in done or key not in planned:
            continue
        assets = tuple(name for name in graph.nodes if name in node.together) or (key,)
        done.update(assets)
        mine = [r for name in assets for r in planned.get(name, ())]
        ready = [r for r in mine if not r.held]
        wanted = {r.partition for r in ready if _is_chosen(graph.nodes[r.asset], r, partitions, chosen | without)}
        why = next((refused[name] for name in assets if name in refused), "")
        above = {source[0] for name in assets for p in wanted for source in _reads(graph.nodes[name], p, without)}
        if above and not why:
            why = f"reads {', '.join(sorted(above))}, which is not previewed"
        if wanted and not why:
            found.groups.append(Group(assets, tuple(sorted(wanted, key=node.order))))
            chosen.update((name, p) for name in assets for p in wanted)
        else:
            without.update((name, p) for name in assets for p in wanted)
        for name in assets:
            rest = [r for r in planned.get(name, ()) if why or r.partition not in wanted]
            if said := _why_left_out(rest, why, wanted, planned, found.left_out, partitions):
                found.left_out[name] = said
    held = any(r.held for of in planned.values() for r in of)
    if partitions is not None and not found.groups and not without and not held:
        raise NoSuchPartitions(f"--partitions {partitions}: {_what_there_is(planned)}")
    return found


def _why_left_out(
    rest: Sequence[Rebuild],
    why: str,
    wanted: Collection[Partition],
    planned: Mapping[str, Sequence[Rebuild]],
    left_out: Mapping[str, str],
    partitions: str | None,
) -> str:
    """Return the reason why some planned partitions of an asset are not previewed.

    Return "" if there are none, or if the user chose only some of the asset's partitions with `--partitions`.
    """
    if not rest or (why and wanted):
        return why if rest else ""
    of = len(planned[rest[0].asset])
    after = {key for r in rest for key, _ in r.after if not r.certain}
    if held := [r for r in rest if r.held]:
        count, said = len(held), f"held, {held[0].held}"
    elif above := sorted(after & left_out.keys()):
        count, said = len(rest), f"reads {', '.join(above)}, which is not previewed"
    elif unselected := sorted(after - planned.keys()):
        count, said = len(rest), f"depends on {', '.join(unselected)}, which is not selected"
    elif partitions is not None:
        return "" if wanted else f"--partitions {partitions} selects none of its {of} partitions"
    else:
        count, said = len(rest), why or "its inputs are not previewed"
    return said if count == of else f"{count} of {of} partitions: {said}"


def runs_of(graph: Graph, assets: Sequence[str], partitions: Sequence[Partition]) -> list[Sequence[Partition]]:
    """Split a group's partitions into runs of consecutive partitions, oldest first, within backfill policies."""
    nodes = [graph.nodes[name] for name in assets]
    most = min((node.most for node in nodes if node.most is not None), default=None)
    newest_first = sorted(partitions, key=nodes[0].order, reverse=True)
    return sorted(ranges(nodes[0], newest_first, most), key=lambda run: nodes[0].order(run[0]))


def _is_chosen(node: Node, rebuild: Rebuild, partitions: str | None, above: set[Target]) -> bool:
    if rebuild.certain and (partitions is None or _has(node, partitions)(rebuild.partition)):
        return True
    return bool(_reads(node, rebuild.partition, above))


def _reads(node: Node, partition: Partition, among: set[Target]) -> set[Target]:
    """Return the members of `among` that a partition reads."""
    return {source for read in node.inputs for source in sources_through(read, partition, among)}


def sources_through(read: Input, partition: Partition, among: Collection[Target]) -> set[Target]:
    """Return the members of `among` that a partition reads through one input."""
    mine = {target for target in among if target[0] == read.key}
    return mine & {(read.key, p) for p in read.upstream(partition)} if mine and read.upstream is not None else mine


def _has(node: Node, partitions: str) -> Callable[[Partition], bool]:
    """Return a function that tests if a partition was chosen. It returns False for assets with other kinds of keys."""
    ends = ends_of_range(partitions)
    keys = [key.strip() for key in ends or partitions.split(",")]
    if not node.partitioned or any(node.problem(key) for key in keys):
        return lambda _: False
    if ends is None:
        return lambda partition: partition in keys
    (along, begins), (other, ends) = (node.place(key) for key in keys)

    def between(partition: Partition) -> bool:
        of, place = node.place(partition)
        return bool(of == along == other and begins <= place <= ends)

    return between


def _what_there_is(planned: Mapping[str, Sequence[Rebuild]]) -> str:
    keys = {
        asset: [r.partition for r in rebuilds if r.certain and r.partition is not None and not r.held]
        for asset, rebuilds in planned.items()
    }
    said = [f"{asset} {min(of)}...{max(of)}" for asset, of in keys.items() if of]
    return f"no changed asset would build these; planned partitions: {', '.join(said) or 'none'}"
