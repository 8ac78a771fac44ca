"""Order of runs that write a table with a blocking check, and runs that read it.

A run reads its inputs some time after its request. If another run writes an input in between, the reader contains data
that no check has seen. So a reader is not requested while one of its guarded inputs is being written, and a guarded
table is not written between the request of a reader and its begin. Pure. Does not belong here: results of checks
(`planner.check_results`), and inputs that are built in the same run, whose checks Dagster waits for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dagster_tidemark.planner.decisions import Asked, Decision, Request, State, asker
from dagster_tidemark.planner.graph import Graph, Input, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.wording import name
from dagster_tidemark.sources.feed import Partition


class GuardedWrites:
    """Partitions of tables with blocking checks that runs under way, or requested runs, have not written yet.

    Runs of people do not count: a manual backfill must not delay new data.
    """

    def __init__(self, graph: Graph, history: History, asked: Asked) -> None:
        self._of: dict[str, set[Partition]] = {}
        ours = (target for target, runs in history.running.items() if not runs <= asked.by_people)
        for key, partition in (*ours, *asked.reserved):
            if graph.blocking(key):
                self._of.setdefault(key, set()).add(partition)

    def read_by(self, read: Input, partition: Partition) -> list[Target]:
        """Return the partitions of an input that a partition reads and that are being written."""
        written = self._of.get(read.key)
        if not written:
            return []
        wanted = written if read.upstream is None else read.upstream(partition)
        return [(read.key, p) for p in wanted if p in written]

    def has(self, target: Target) -> bool:
        """Return True if a partition is being written."""
        return target[1] in self._of.get(target[0], ())


@dataclass
class ReadsToCome:
    """Reads of guarded tables by runs that have been requested and have not begun to read.

    Args:
        guarded: Tables with a blocking check that this pass would write. Reads of other tables are not collected.
    """

    graph: Graph
    history: History
    asked: Asked
    guarded: Collection[str]
    _readers: dict[Target, Target] = field(default_factory=dict)
    _of_all: dict[str, list[tuple[Target, Collection[Target]]]] = field(default_factory=dict)

    def add_runs(self) -> None:
        """Add the runs under way, except those of people."""
        for request in self.asked.runs:
            self.add(request.targets)
        for run_id, run in self.history.open_runs.items():
            if run_id not in self.asked.by_people:
                # A run that has begun reads the inputs of its first table at once, and those of the others later.
                begun = (
                    "" if run_id in self.asked.queued else self._first({*run.built, *(key for key, _ in run.planned)})
                )
                self.add([target for target in run.planned if target[0] != begun], run.planned)

    def add(self, targets: Collection[Target], together: Collection[Target] = ()) -> None:
        """Add the reads of partitions.

        Args:
            together: Partitions that the same run builds; by default the same ones.
        """
        of_run = set(together or targets)
        for target in targets:
            node = self.graph.nodes.get(target[0])
            for read in node.inputs if node else ():
                if read.key in self.guarded:
                    self._add(target, read, of_run)

    def of(self, source: Target) -> Target | None:
        """Return a partition that reads another one, in another run; None if there is none."""
        of_all = (reader for reader, of_run in self._of_all.get(source[0], ()) if source not in of_run)
        return self._readers.get(source) or next(of_all, None)

    def _add(self, reader: Target, read: Input, of_run: Collection[Target]) -> None:
        if read.upstream is None:
            self._of_all.setdefault(read.key, []).append((reader, of_run))
            return
        wanted = called(read.upstream, reader[1])
        if not isinstance(wanted, Raised):  # else the planner sets the reader aside
            sources = ((read.key, partition) for partition in wanted)
            self._readers |= {source: reader for source in sources if source not in of_run}

    def _first(self, assets: Collection[str]) -> str:
        return next((key for key in self.graph.nodes if key in assets), "")


def readers_first(
    requests: Sequence[Request],
    decisions: Mapping[Target, Decision],
    late_readers: Iterable[Target],
    graph: Graph,
    history: History,
    asked: Asked,
) -> tuple[list[Request], dict[Target, Decision]]:
    """Return the requests whose guarded tables no waiting run reads, and the changed decisions on the others.

    Args:
        late_readers: Partitions that wait past their latest start until a guarded input is written. Otherwise a table
            that is always being written would delay them forever.
    """
    guarded = {asset for request in requests for asset in request.assets if graph.blocking(asset)}
    if not guarded:
        return list(requests), {}
    reads = ReadsToCome(graph, history, asked, guarded)
    reads.add_runs()
    for target in late_readers:
        reads.add([target])
    # The own condition of an asset may refuse its run, and a sensor that is switched off requests none.
    made = [request for request in requests if not request.conditional and asker(graph, request) not in asked.off]
    for request in made:  # of two partitions of a table that reads its own past, the later one comes first
        reads.add([target for target in request.targets if graph.nodes[target[0]].reads_itself], request.targets)
    held: dict[Target, Decision] = {}
    kept: list[Request] = []
    place = {key: n for n, key in enumerate(graph.nodes)}
    # Readers come before what they read, and a held reader holds nothing back.
    for request in sorted(requests, key=lambda request: -max(place[asset] for asset in request.assets)):
        found = (reads.of(target) for target in request.targets if target[0] in guarded)
        reader = next((one for one in found if one is not None), None)
        if reader is None:
            kept.append(request)
            if request in made:
                reads.add(request.targets)
            continue
        reason = f"{name(reader)} reads it first: its run has not begun"
        changed = (decisions[target] for target in request.targets if target in decisions)
        held |= {decision.target: decision.but(state=State.THROTTLED, reason=reason) for decision in changed}
    ours = set(map(id, kept))
    return [request for request in requests if id(request) in ours], held
