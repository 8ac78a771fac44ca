"""Selections of `tidemark pause`, `skip` and `rebuild`: an asset, a group, a feed or a stream, and partitions.

Pure. Belongs here: from names to assets, and the refusal of impossible selections. Does not belong here: the commands
(`cli.overrides`) and their work on an instance (`cli.override_work`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from dagster_tidemark.asset_graph.partition_keys import ends_of_range
from dagster_tidemark.errors import Terminal
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.overrides import OverrideKind
from dagster_tidemark.planner.wording import names

GROUP = "group:"


class NotSelectable(Terminal):
    """A name selects nothing, or the command does not apply to the selected assets."""


@dataclass(frozen=True)
class Selectable:
    """Everything of a code location that a person can name.

    Args:
        groups: Keys of the assets of each group.
        feeds: Source asset of each feed.
        streams: Table of each stream.
        automated: Assets that the automation requests, by the planner or by their own condition.
    """

    graph: Graph
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    feeds: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)
    automated: Collection[str] = ()


@dataclass(frozen=True)
class Selected:
    """Assets and streams that a command concerns.

    Args:
        left_out: Assets of a group that the command cannot concern, each with the reason.
    """

    assets: tuple[str, ...]
    streams: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Partitions:
    """Partitions that a command concerns: some keys, or a range from the first to the last. Empty means all."""

    keys: tuple[str, ...] = ()
    first: str | None = None
    last: str | None = None


def selected(known: Selectable, what: str, kind: OverrideKind) -> Selected:
    """Return the assets and streams that a name selects.

    Raises:
        NotSelectable: nothing has this name, or the command cannot concern what it names.
    """
    keys, streams = _named(known, what)
    reasons = {key: why for key in keys if (why := _why_not(known, key, kind))}
    streams = streams if kind is OverrideKind.PAUSE else ()
    assets = tuple(key for key in keys if key not in reasons)
    if not assets and not streams:
        said = "; ".join(dict.fromkeys(reasons.values())) or f"{what} has no asset"
        raise NotSelectable(f"{kind} {what}: {said}")
    return Selected(assets, streams, {} if streams else reasons)


def _named(known: Selectable, what: str) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return the keys of the assets with a name, and the names of the streams."""
    by_table = {table: stream for stream, table in known.streams.items()}
    if what.startswith(GROUP):
        group = known.groups.get(what.removeprefix(GROUP))
        if group is None:
            raise NotSelectable(_unknown(f"there is no group {what.removeprefix(GROUP)!r}", what, _all(known)))
        return group, tuple(by_table[key] for key in group if key in by_table)
    if what in known.streams or what in by_table:
        return [known.streams.get(what, what)], (by_table.get(what, what),)
    source = known.feeds.get(what, what)
    node = known.graph.nodes.get(source)
    if node is None:
        raise NotSelectable(_unknown(f"there is no asset, feed or stream {what!r}", what, _all(known)))
    if not node.source and source in known.graph.nodes and what not in known.feeds:
        return [what], ()
    readers = [reader.key for reader, _ in known.graph.readers.get(source, ())]
    if not readers:
        raise NotSelectable(f"{what}: nothing is loaded from {source}")
    return list(dict.fromkeys(readers)), ()


def _why_not(known: Selectable, key: str, kind: OverrideKind) -> str:
    """Return why a command cannot concern an asset; empty if it can."""
    node = known.graph.nodes.get(key)
    if key in known.streams.values() and kind is not OverrideKind.PAUSE:
        return f"{key} is written by a stream, whose messages are not partitions: purge or redrive its queue instead"
    if node is None or node.source:
        return f"no run of the automation builds {key}"
    if kind is OverrideKind.PAUSE:
        return "" if key in known.automated else f"the automation never requests {key}: only people run it"
    if not node.automated:
        return f"the planner does not decide when {key} runs: its own condition or a person does"
    return ""


def _all(known: Selectable) -> list[str]:
    return [*known.graph.nodes, *(GROUP + group for group in known.groups), *known.feeds, *known.streams]


def _unknown(said: str, what: str, known: Iterable[str]) -> str:
    every = sorted(set(known))
    # A person often types the last part of a key only.
    near = [name for name in every if name.rpartition("/")[2].removeprefix(GROUP) == what]
    near += [name for name in get_close_matches(what, every, n=3, cutoff=0.5) if name not in near]
    return f"{said}; did you mean {', '.join(near[:3])}?" if near else f"{said}; known: {names(every)}"


def partitions(graph: Graph, assets: Collection[str], given: Sequence[str]) -> Partitions:
    """Return the partitions of the option `--partitions`: a range FROM..TO (or FROM...TO, as Dagster), or single keys.

    Raises:
        NotSelectable: an asset has no such partition, or the range is no range for it.
    """
    ranges = [ends for value in given if (ends := ends_of_range(value))]
    if len(ranges) > 1 or (ranges and len(given) > 1):
        raise NotSelectable(f"--partitions: expected one range FROM..TO or single keys, found {', '.join(given)}")
    keys = ranges[0] if ranges else given
    for asset in assets:
        for key in keys:
            _require(graph, graph.nodes[asset], key)
        if ranges:
            _require_range(graph.nodes[asset], *keys)
    if ranges:
        return Partitions(first=keys[0], last=keys[1])
    return Partitions(tuple(dict.fromkeys(keys)))


def _require(graph: Graph, node: Node, key: str) -> None:
    if not node.partitioned:
        raise NotSelectable(f"--partitions {key}: {node.key} has no partitions; leave the option out")
    problem = node.problem(key)
    if problem:
        raise NotSelectable(f"--partitions {key}: {node.key} has no such partition: {problem}")
    for definition, part in sorted(node.dynamic(key)) if node.dynamic else ():
        existing = graph.moment.dynamic.get(definition, ())
        if part not in existing:
            expected = f"{node.key}: expected keys of {definition}"
            said = f"--partitions {key}: {expected}, found {part!r}, which does not exist"
            near = get_close_matches(str(part), existing, n=3)
            raise NotSelectable(f"{said}; did you mean {', '.join(near)}?" if near else f"{said}; add the key first")


def _require_range(node: Node, first: str, last: str) -> None:
    if node.dynamic:
        raise NotSelectable(
            f"--partitions {first}..{last}: the keys of {node.key} are added and removed, which would move the "
            "ends of a range; name single keys"
        )
    if isinstance(node.order(first), tuple):
        raise NotSelectable(f"--partitions {first}..{last}: {node.key} has several dimensions; name single keys")
    if node.order(first) > node.order(last):
        raise NotSelectable(f"--partitions {first}..{last}: {first} comes after {last}; write {last}..{first}")
