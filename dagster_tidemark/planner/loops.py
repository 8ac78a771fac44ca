"""Loops through observations: a source that gets new data because of a table made from it.

Dagster refuses a cycle of assets, but it cannot see that a source observes data that a table writes. Then each build
brings new data, which requests the next build. The order of events suggests such a loop: new data of a source partition
repeatedly arrives soon after a commit of the same table, and never without such a commit. This is a loop if the table
is made from that source, directly or through other such pairs of table and source.

A suspicion is tested: the next runs are requested later than usual, or earlier if they are usually requested late. In a
loop, the new data then arrives later or earlier too. Other data keeps its times, and the count starts again. Pure.
Belongs here: the count and the loops. Does not belong here: the decision on a due partition (`planner.evaluate`).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from dagster_tidemark.planner import run_retries
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.wording import names

_SUSPECTED_AFTER = 10
"""Rounds in a row before a loop is suspected. In each, new data follows a commit of the same table."""

_CONFIRMED_BY = 3
"""Rounds in a row that confirm a suspected loop. Each is longer or shorter than usual, because its run was delayed."""

_TESTED = 8
"""Most rounds of a test. After these, an unconfirmed suspicion is dropped, and the next one needs twice the rounds."""

_LONGER, _SHORTER = 1.6, 0.7
"""A round counts as changed if it takes more or less than these multiples of its usual duration."""

_SOON = 60.0
"""Most seconds from a commit to the new data that it causes: a queue takes seconds, a listing sensor up to a minute."""

_ROUND_SECONDS = 600.0
"""Most seconds in a round of a detected loop. A slower loop costs at most six runs an hour."""

_PAUSE_OF_A_TEST = 2.5
"""Time between the starts of two runs during a test, as a multiple of the usual round."""

A_LOOP = "a loop: "

_COMMITS = 50
"""Number of tables whose latest commit is kept."""

_FOLLOWED = 1000
"""Most source partitions counted at once. A loop adds a round every few minutes, which keeps it among the latest."""


@dataclass
class _Count:
    """Count of a source partition's rounds in a row. A round is a commit of one of the tables, followed by new data.

    Args:
        usual: Usual seconds of a round; None until the loop is suspected.
        tested: Rounds since the loop was suspected.
        moved: Rounds in a row of the test that were longer or shorter than usual.
        confirmed: Rounds since the loop was confirmed.
    """

    since: float
    latest: float
    tables: frozenset[str] = frozenset()
    times: int = 0
    strikes: int = 0
    usual: float | None = None
    tested: int = 0
    moved: int = 0
    confirmed: int = 0

    def add(self, tables: frozenset[str], at: float) -> None:
        """Count one more round."""
        seconds, self.tables, self.times, self.latest = at - self.latest, tables, self.times + 1, at
        if self.confirmed:
            self.confirmed += 1
        elif self.usual is not None:
            is_moved = not _SHORTER * self.usual < seconds < _LONGER * self.usual
            self.tested, self.moved = self.tested + 1, self.moved + 1 if is_moved else 0
            self.confirmed = int(self.moved >= _CONFIRMED_BY)
        elif self.times >= _SUSPECTED_AFTER * 2 ** min(self.strikes, 10):
            usual = (at - self.since) / self.times
            self.usual = usual if usual < _ROUND_SECONDS else None

    @property
    def is_dropped(self) -> bool:
        return not self.confirmed and self.tested >= _TESTED


@dataclass(frozen=True)
class Loop:
    """A loop through observations.

    Args:
        source: The source whose new data follows the builds.
        tables: The tables of the loop, inputs before readers.
        pause: Seconds between two builds of a table that reads the source.
        confirmed: False for a suspicion, which the next runs test.
    """

    source: str
    tables: tuple[str, ...]
    pause: float
    confirmed: bool

    @property
    def reason(self) -> str:
        """Description of the loop. The text stays the same while the loop continues."""
        return f"{A_LOOP}{self.source} gets new data each time {names(self.tables)} is built, which builds it again"


@dataclass
class Loops:
    """Latest commits, and counts of the new data that follows them, which show loops."""

    _counts: OrderedDict[Target, _Count] = field(default_factory=OrderedDict)
    _commits: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def committed(self, table: str, at: float) -> None:
        """Record the latest commit of a table (Unix seconds)."""
        self._commits[table] = at
        self._commits.move_to_end(table)
        if len(self._commits) > _COMMITS:
            self._commits.popitem(last=False)

    def arrived(self, source: Target, at: float) -> None:
        """Record new data of a source partition (Unix seconds)."""
        count = self._counts.pop(source, None)
        recent = self._committed_since(max(at - _SOON, count.latest if count else float("-inf")))
        tables = recent & count.tables if count and count.times else recent
        if tables:
            count = count or _Count(at, at)
            count.add(tables, at)
        if count is None:
            return
        if not tables or count.is_dropped:
            is_strike = count.usual is not None and not count.confirmed
            count = _Count(at, at, strikes=count.strikes + is_strike)
            if not count.strikes:
                return
        self._counts[source] = count
        if len(self._counts) > _FOLLOWED:
            self._counts.popitem(last=False)

    def _committed_since(self, after: float) -> frozenset[str]:
        return frozenset(table for table, _ in takewhile(lambda c: c[1] > after, reversed(self._commits.items())))

    def of(self, graph: Graph) -> dict[str, Loop]:
        """Return the loops of a graph, by table. The tables are part of a loop and read the loop's source."""
        suspected = {source: count for source, count in self._counts.items() if count.usual is not None}
        caused: dict[str, set[str]] = {}
        for (source, _), count in suspected.items():
            for table in count.tables:
                caused.setdefault(table, set()).add(source)
        found: dict[str, Loop] = {}
        for (source, _), count in suspected.items():
            tables = _on_the_way(graph, source, count.tables, caused)
            if not tables:
                continue
            pause = (
                run_retries.backoff(1 + count.confirmed) if count.confirmed else _PAUSE_OF_A_TEST * (count.usual or 0.0)
            )
            loop = Loop(source, tuple(key for key in graph.nodes if key in tables), pause, bool(count.confirmed))
            for reader, read in graph.readers.get(source, ()):
                known = found.get(reader.key)
                if reader.key in tables and not read.use_latest and (known is None or known.pause < loop.pause):
                    found[reader.key] = loop
        return found


def _on_the_way(graph: Graph, source: str, causes: frozenset[str], caused: Mapping[str, set[str]]) -> set[str]:
    """Return the tables between a source and the tables that cause its new data; empty if none is reachable."""
    down = _reached(source, lambda key: _after(graph, key, caused))
    before: dict[str, set[str]] = {}
    for key in down | {source}:
        for following in _after(graph, key, caused):
            before.setdefault(following, set()).add(key)
    up = set[str]()
    for cause in causes & down:
        up |= {cause} | _reached(cause, lambda key: iter(before.get(key, ())))
    return {key for key in up & down if key in graph.nodes and not graph.nodes[key].source}


def _after(graph: Graph, key: str, caused: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the readers of an asset, and the sources that get new data because of its builds."""
    yield from (reader.key for reader, read in graph.readers.get(key, ()) if not read.use_latest)
    yield from caused.get(key, ())


def _reached(start: str, near: Callable[[str], Iterator[str]]) -> set[str]:
    found, stack = set[str](), [start]
    while stack:
        for key in near(stack.pop()):
            if key not in found:
                found.add(key)
                stack.append(key)
    return found
