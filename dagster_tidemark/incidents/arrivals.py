"""States of expected arrivals: each window of a source is pending, on time, late, missing or incomplete.

Pure. Does not belong here: due times (`incidents.expected`), reading the observed files (`incidents.contents`), and
incidents about misses (`incidents.causes`).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from dagster_tidemark.incidents.expected import ExpectationRefused, ExpectedArrival, parts_of
from dagster_tidemark.incidents.incident import ArrivalRow, ArrivalState
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.unbuilt import Windows
from dagster_tidemark.sources.feed import Partition

LOOK_BACK = timedelta(days=7)
"""A miss is reported for this long."""
_LONGEST_WINDOW = timedelta(days=32)
_FEWEST_USUAL, _USUAL_WINDOWS = 3, 14
_SHOWN = 3


INCOMPLETE = (ArrivalState.EMPTY, ArrivalState.REPEATED, ArrivalState.FEWER)
"""States of a window with data that is less than declared, or old."""
MISSES = (ArrivalState.MISSING, *INCOMPLETE)


@dataclass(frozen=True)
class ArrivedFiles:
    """The files of a window as observed last.

    Args:
        digest: Hash of their bytes without their names; empty if it is unknown.
        is_gone: True if the files were removed as intended: expired, or accepted by a person.
    """

    files: int
    bytes: int
    digest: str = ""
    is_gone: bool = False


@dataclass(frozen=True)
class Arrival:
    """The state of a window.

    Args:
        due_at: When its data is due (Unix seconds); None if it is not expected.
        arrived_at: When its data arrived. If several files are expected, when the newest did.
        said: The fault of its data in words; empty if it has none.
    """

    source: str
    partition: Partition
    state: ArrivalState
    due_at: float | None
    ends_at: float
    arrived_at: float | None = None
    said: str = ""


Contents = Callable[[str, Mapping[Partition, str]], Mapping[Partition, ArrivedFiles]]
"""From a source, and the data version of some of its partitions, to their files. Unknown ones are left out."""


Rows = Callable[[str, Mapping[Partition, int]], Mapping[Partition, int]]
"""From a table, and the id of the latest build of some of its partitions, to their rows. Unknown ones are left out."""


@dataclass(frozen=True)
class ArrivedVersion:
    """The files of a window at an earlier time.

    Args:
        arrived_at: When they arrived (Unix seconds).
        rows: Rows of the table that loaded them; None if no load ended before the next version arrived.
    """

    arrived_at: float
    files: ArrivedFiles
    rows: int | None = None


Versions = Callable[[str, Collection[str], Mapping[Partition, str]], Mapping[Partition, Sequence[ArrivedVersion]]]
"""From a source, the tables that load it, and the data version of some of its partitions, to their known versions,
oldest first."""


def arrivals(
    expected: Sequence[ExpectedArrival],
    graph: Graph,
    history: History,
    windows: Windows,
    since: Mapping[str, float],
    now: float,
    contents: Contents = lambda _, __: {},
    rows: Rows = lambda _, __: {},
    versions: Versions = lambda *_: {},
) -> list[Arrival]:
    """Return the state of each window that was due in the last seven days, or will be due.

    Args:
        since: By source, the start of the expectation. Windows that were due before are ignored.
    """
    found: list[Arrival] = []
    for each in expected:
        node = graph.nodes.get(each.source)
        if node is not None:
            # A miss is reported after the grace, and for a week from then on.
            shown = now - LOOK_BACK.total_seconds() - each.grace.total_seconds()
            earliest = max(since.get(each.source, now), shown)
            of_source = _Source(each, node, graph, history, now, contents, rows, versions)
            found += of_source.states(windows, earliest)
    return found


@dataclass
class _Source:
    expected: ExpectedArrival
    node: Node
    graph: Graph
    history: History
    now: float
    contents: Contents
    rows: Rows
    versions: Versions

    def states(self, windows: Windows, earliest: float) -> Iterable[Arrival]:
        longest = _LONGEST_WINDOW.total_seconds() + self.expected.longest
        until = self.now + longest if self.expected.by else self.now
        every = list(windows(self.node.key, earliest - longest, until))
        self._require_keys(every)
        spans = {
            partition: window
            for partition in every
            if self.expected.is_about(partition) and (window := self.node.window(partition)) is not None
        }
        due = {partition: self.expected.due_at(window) for partition, window in spans.items()}
        judged = [p for p, at in due.items() if (spans[p].end if at is None else at) >= earliest]
        known = self.history.facts.with_content(self.node.key)
        compared = due if self.expected.distinct or self.expected.usual else judged
        files = self.contents(
            self.node.key,
            {p: self.history.facts.version((self.node.key, p)) or "" for p in compared if p in known},
        )
        earlier = _earlier({p: spans[p].end for p in files}, files) if compared is due else {}
        loaded = self._loaded([p for p in judged if p in known]) if self.expected.rows else {}
        corrected = self._corrected({p: at for p in judged if (at := due[p]) is not None}, earlier)
        for partition in judged:
            end, due_at = spans[partition].end, due[partition]
            if due_at is None:
                yield Arrival(self.node.key, partition, ArrivalState.NOT_EXPECTED, None, end)
                continue
            overdue_at = due_at + self.expected.grace.total_seconds()
            arrived_at = corrected.get(partition, self._arrived_at(partition)) if partition in known else None
            content = files.get(partition) if partition in known else ArrivedFiles(0, 0)
            fault, said = self._fault(partition, content, earlier.get(partition, _Earlier()))
            if fault is None and not (content is not None and content.is_gone):
                fault, said = self._too_few_rows(partition, loaded.get(partition))
            if fault is not None:
                # A source may still deliver the rest.
                state = fault if self.now >= overdue_at else ArrivalState.PENDING
            else:
                is_late = arrived_at is not None and arrived_at > overdue_at
                state = ArrivalState.LATE if is_late else ArrivalState.ON_TIME
            yield Arrival(self.node.key, partition, state, due_at, end, arrived_at, said)

    def _require_keys(self, windows: Collection[Partition]) -> None:
        """Raise if no window has one of the expected keys: it would never be missed."""
        unknown = set(self.expected.keys).difference(*map(parts_of, windows))
        if windows and unknown:
            raise ExpectationRefused(
                f"ExpectedArrival({self.node.key}): keys has {', '.join(sorted(unknown))}, which no window has; its "
                f"windows are such as {next(iter(windows))}"
            )

    def _corrected(
        self, due: Mapping[Partition, float], earlier: "Mapping[Partition, _Earlier]"
    ) -> dict[Partition, float]:
        """Return the arrival of the first complete version of each window whose newest version came late."""
        if not self.expected.counts_content:
            return {}
        facts, grace = self.history.facts, self.expected.grace.total_seconds()
        late = {
            partition: facts.version((self.node.key, partition)) or ""
            for partition, at in due.items()
            if (first := facts.first_arrival((self.node.key, partition))) is not None
            and first <= at + grace < (self._arrived_at(partition) or 0.0)
        }
        tables = [reader.key for reader, _ in self.graph.readers.get(self.node.key, ())] if self.expected.rows else []
        complete: dict[Partition, float] = {}
        for partition, found in (self.versions(self.node.key, tables, late) if late else {}).items():
            for version in found:
                fault, _ = self._fault(partition, version.files, earlier.get(partition, _Earlier()))
                if fault is None and self._too_few_rows(partition, version.rows)[0] is None:
                    complete[partition] = version.arrived_at
                    break
        return complete

    def _loaded(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the rows of partitions whose newest data is in the table that loads them.

        If several tables load the source, the one with the most rows counts.
        """
        found: dict[Partition, int] = {}
        for reader, read in self.graph.readers.get(self.node.key, ()):
            builds = {
                p: built.id
                for p in partitions
                if (built := self.history.facts.built((reader.key, p))) is not None
                and read.upstream is not None
                and list(read.upstream(p)) == [p]
                and not any(self.history.news(read, (reader.key, p)))
            }
            for partition, count in self.rows(reader.key, builds).items() if builds else ():
                found[partition] = max(count, found.get(partition, 0))
        return found

    def _too_few_rows(self, partition: Partition, rows: int | None) -> tuple[ArrivalState | None, str]:
        """Return the state of a window with fewer rows than declared. A window that is not loaded yet is in order."""
        if rows is None or rows >= self.expected.rows:
            return None, ""
        return ArrivalState.FEWER, f"{self.node.key} {partition} has {rows} of {self.expected.rows} rows"

    def _arrived_at(self, partition: Partition) -> float | None:
        target = (self.node.key, partition)
        if not self.expected.counts_content:
            return self.history.facts.first_arrival(target)
        arrivals_ = [each.arrived_at for each in self.history.facts.changes(target) if each.arrived_at is not None]
        return max(arrivals_, default=None)

    def _fault(
        self, partition: Partition, content: ArrivedFiles | None, earlier: "_Earlier"
    ) -> tuple[ArrivalState | None, str]:
        """Return the state of a window that has not all of its data, with the reason; None if it has."""
        where, expected = f"{self.node.key} {partition}", self.expected
        if content is None or content.is_gone:
            return None, ""
        if content.files == 0:
            return ArrivalState.MISSING, ""
        if content.bytes == 0 and not expected.may_be_empty:
            return ArrivalState.EMPTY, f"{where} has only empty files"
        if content.files < expected.files:
            return ArrivalState.FEWER, f"{where} has {content.files} of {expected.files} files"
        if expected.distinct and earlier.has_same_bytes:
            return ArrivalState.REPEATED, f"{where} has the same bytes as an earlier window"
        if earlier.usual is not None and content.bytes < expected.usual * earlier.usual:
            return ArrivalState.FEWER, f"{where} has {content.bytes} bytes, usual are {earlier.usual:.0f}"
        return None, ""


@dataclass(frozen=True)
class _Earlier:
    """Comparison of a window with the earlier windows of its key.

    Args:
        usual: Median of their bytes; None if there are too few.
    """

    has_same_bytes: bool = False
    usual: float | None = None


def _earlier(ends: Mapping[Partition, float], files: Mapping[Partition, ArrivedFiles]) -> dict[Partition, _Earlier]:
    """Compare each window with the earlier windows. In a keyed source, only windows of the same key are compared."""
    found: dict[Partition, _Earlier] = {}
    digests: dict[tuple[str, ...], set[str]] = {}
    sizes: dict[tuple[str, ...], deque[int]] = {}
    time = _time_position(ends)
    for partition in sorted(ends, key=lambda each: ends[each]):
        parts = parts_of(partition)
        key = (*parts[:time], *parts[time + 1 :])
        seen, sized = digests.setdefault(key, set()), sizes.setdefault(key, deque(maxlen=_USUAL_WINDOWS))
        usual = median(sized) if len(sized) >= _FEWEST_USUAL else None
        content = files[partition]
        found[partition] = _Earlier(content.digest in seen, usual)
        if content.bytes:
            sized.append(content.bytes)
            if content.digest:
                seen.add(content.digest)
    return found


def _time_position(ends: Mapping[Partition, float]) -> int:
    """Return the position of the time in keys such as `berlin|2026-10-05`: there, each value has one window.

    On the first day each city has one window, too: the time has fewer values.
    """
    split = [(parts_of(partition), end) for partition, end in ends.items()]
    found: dict[int, int] = {}
    for position in range(len(split[0][0]) if split else 0):
        windows: dict[str, float] = {}
        if all(windows.setdefault(parts[position], end) == end for parts, end in split):
            found[position] = len(windows)
    return min(found, key=lambda position: found[position], default=0)


def arrival_rows(found: Iterable[Arrival]) -> tuple[ArrivalRow, ...]:
    """Return the misses, and the newest and the next window of each source, as rows."""
    by_source: dict[str, list[Arrival]] = {}
    for each in found:
        by_source.setdefault(each.source, []).append(each)
    rows: list[ArrivalRow] = []
    for every in by_source.values():
        shown = [each for each in every if each.state in MISSES]
        pending = [each for each in every if each.state is ArrivalState.PENDING]
        past = [each for each in every if each.state not in (*MISSES, ArrivalState.PENDING)]
        shown += _at(pending, min((each.due_at or 0.0 for each in pending), default=0.0))
        shown += _at(past, max((each.due_at or each.ends_at for each in past), default=0.0))
        for state in ArrivalState:
            of_state = sorted((each for each in shown if each.state is state), key=lambda each: each.due_at or 0.0)
            if of_state:
                rows.append(_row(of_state))
    return tuple(rows)


def _at(found: Collection[Arrival], at: float) -> list[Arrival]:
    return [each for each in found if (each.due_at or each.ends_at) == at]


def _row(found: Sequence[Arrival]) -> ArrivalRow:
    first = found[0]
    keys = tuple(str(each.partition) for each in found[:_SHOWN])
    return ArrivalRow(first.source, first.state, keys, len(found), first.due_at, first.arrived_at, first.said)
