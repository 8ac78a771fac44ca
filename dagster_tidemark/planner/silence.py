"""Sources without data for a partition, with the time since when each is silent.

Pure. Belongs here: facts about silent sources from the history. Does not belong here: their effect on a contract
(`planner.contract_status`, `planner.unbuildable_data`, `planner.unbuilt`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.wording import moment, names


@dataclass
class Silence:
    """The silent sources of partitions, at one time."""

    graph: Graph
    history: History
    _known: dict[str, float | None] = field(default_factory=dict)

    def of(self, target: Target) -> str:
        """Name the sources without data for a partition, the longest silent first; all sources if none is known."""
        return self.told({source for source, _ in self.lacking(target)} or self.graph.sources_of[target[0]])

    def told(self, sources: Iterable[str]) -> str:
        """Name some sources and since when each is silent, the longest silent first."""
        last = {source: self._last(source) for source in sources}
        ordered = sorted(last, key=lambda source: (last[source] or float("-inf"), source))
        return names(
            f"{source} never had data" if (at := last[source]) is None else f"{source} silent since {moment(at)}"
            for source in ordered
        )

    def lacking(self, target: Target) -> set[Target]:
        """Return the source partitions without data that a partition requires.

        The search follows inputs that are not built. It ends at a partition whose mapping raises, which cannot be
        built. Optional inputs are not required.
        """
        found, seen, stack = set[Target](), {target}, [target]
        while stack:
            one = stack.pop()
            node = self.graph.nodes.get(one[0])
            is_whole = node is not None and node.partitioned and one[1] is None  # all partitions of an input
            for read in node.inputs if node else ():
                try:
                    upstream_of = None if is_whole else read.upstream
                    known = self.history.facts.with_content(read.key)
                    if read.optional or (any(self.history.inputs_of(read, one[1])) if upstream_of else known):
                        continue
                    wanted = [(read.key, p) for p in (upstream_of(one[1]) if upstream_of else (None,))]
                except (
                    Exception
                ):  # a user's mapping raises: the planner sets this partition aside, and it stays unbuilt
                    found.add(one)
                    continue
                upstream = self.graph.nodes.get(read.key)
                if upstream is None or not upstream.inputs:
                    found.update(wanted)
                    continue
                stack += [source for source in wanted if source not in seen]
                seen.update(wanted)
        return found

    def _last(self, source: str) -> float | None:
        """Return when a source's newest partition last got data. Late files of older partitions do not count."""
        if source not in self._known:
            node, known = self.graph.nodes.get(source), self.history.facts.with_content(source)
            of = {p: max(self._arrivals((source, p)), default=None) for p in known}
            spoke = [p for p in known if of[p] is not None]
            newest = max(spoke, key=lambda p: (node.order(p) if node else 0, of[p]), default=None)
            self._known[source] = of.get(newest) if spoke else None
        return self._known[source]

    def _arrivals(self, target: Target) -> list[float]:
        return [at for change in self.history.facts.changes(target) if (at := change.arrived_at) is not None]


def reaches_back(graph: Graph, history: History, source: str, before: float) -> bool:
    """Return True if a source had data for a time before `before` (Unix seconds).

    A source that never had data counts as well, unless its first event is later than `before`.
    """
    node, known = graph.nodes.get(source), history.facts.with_content(source)
    if not known:
        return history.first_seen.get(source, float("-inf")) <= before
    windows = [window for p in known if node is not None and (window := node.window(p)) is not None]
    if windows:
        return any(window.start < before for window in windows)
    return any((history.facts.first_arrival((source, p)) or before) < before for p in known)
