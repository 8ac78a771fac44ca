"""What sources and tables hold in a simulation: versions instead of rows.

Belongs here: what a look at a source finds, and which content a build gives. Does not belong here: when that happens.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.sources.feed import Partition

Reads = Callable[[Target], Iterable[Target]]
"""From a partition to all partitions it is made from."""

Content = Callable[[Target, Mapping[Target, str], str], str]
"""From a partition, its inputs' contents and the content they give by default, to the content it gets."""


@dataclass
class Source:
    """A partition of a source: its version, what arrived since it was last looked at, and what was last seen."""

    version: str = ""
    arrivals: int = 0
    unseen_since: float | None = None
    seen: str | None = None


@dataclass
class Tables:
    """The sources and tables of a simulation.

    Args:
        override: What the content version of a partition becomes, if not a hash of its inputs' and its code's.
        reads: What a partition is made from, if not what the planner's graph says.
    """

    override: Content | None = None
    reads: Reads | None = None
    graph: Graph = field(default_factory=lambda: Graph({}))
    code_versions: Mapping[str, str | None] = field(default_factory=dict)
    sources: dict[Target, Source] = field(default_factory=dict)
    written: dict[Target, str] = field(default_factory=dict)

    def arrived(self, target: Target, version: str | None, at: float) -> None:
        """Data arrives in a source partition."""
        source = self.sources.setdefault(target, Source())
        source.arrivals += 1
        source.version = version or f"{source.arrivals} files"
        if source.unseen_since is None:
            source.unseen_since = at

    def look(self, target: Target, now: float) -> tuple[str, float] | None:
        """Version and arrival of what a look finds, if it is another version than the last look found."""
        source = self.sources[target]
        arrived_at, source.unseen_since = source.unseen_since, None
        if source.seen == source.version:
            return None
        source.seen = source.version
        return source.version, now if arrived_at is None else arrived_at

    def inputs(self, target: Target) -> dict[Target, str]:
        """What the inputs of a partition hold now, as far as they hold anything."""
        wanted = self._by_graph(target) if self.reads is None else self.reads(target)
        return {source: held for source in wanted if (held := self.holds(source)) is not None}

    def content(
        self,
        target: Target,
        inputs: Mapping[Target, str] | None = None,
        code_versions: Mapping[str, str | None] | None = None,
    ) -> str:
        """The content a partition gets when it is built from what its inputs hold now, or from these; by this code."""
        found = self.inputs(target) if inputs is None else inputs
        code = self.code_versions if code_versions is None else code_versions
        told = repr((target, code.get(target[0]), sorted(found.items(), key=repr)))
        default = hashlib.sha256(told.encode()).hexdigest()[:16]
        return self.override(target, found, default) if self.override else default

    def write(self, asset: str, contents: Mapping[Partition, str]) -> None:
        """A step commits."""
        self.written |= {(asset, partition): content for partition, content in contents.items()}

    def fresh(self, target: Target) -> bool:
        """Whether a partition holds what a build of now, inputs first, would give."""
        return self.written.get(target) == self.content(target)

    def holds(self, target: Target) -> str | None:
        """The version of a source's partition, or the content of a table's; None where there is nothing."""
        source = self.sources.get(target)
        return source.version if source else self.written.get(target)

    def _by_graph(self, target: Target) -> Iterator[Target]:
        node = self.graph.nodes.get(target[0])
        for read in node.inputs if node else ():
            try:
                wanted = read.upstream(target[1]) if read.upstream else self._partitions(read.key)
            except Exception:  # a mapping can be anybody's code; the planner's answer to it is what is tested
                continue
            yield from ((read.key, partition) for partition in wanted)

    def _partitions(self, asset: str) -> list[Partition]:
        return [partition for key, partition in [*self.sources, *self.written] if key == asset]
