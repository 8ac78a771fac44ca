"""Pending data of each partition, followed through the graph back to the sources.

Belongs here: the incremental computation from the history. Does not belong here: which partitions exist
(`planner.candidates`), when one is due (`planner.demand`) and when it is requested (`planner.planner`).

Only partitions that an event may have affected are computed again, in topological order. Their readers follow only if
the result differs. An idle tick computes nothing, and one change only the partitions that depend on it. If a
computation fails (a user's mapping may raise), the partition is set aside with the reason until it is computed again.

Longer than 250 lines, because the triggers of a computation and the computation are one mechanism.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dagster_tidemark.planner.candidates import Candidates
from dagster_tidemark.planner.event_records import Built
from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.overrides import OverrideKind, Overrides, changed_assets
from dagster_tidemark.planner.skips import Later, Skips
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.wording import name
from dagster_tidemark.sources.feed import Partition

_AT_ONCE = 500
"""Partitions computed between two calls of `stop`."""

_LOOK_AGAIN = 60.0
"""Seconds until a partition that was set aside is computed again without any event."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Pending work of a partition: changes of its inputs that it does not contain.

    Args:
        arrival: Arrival of the oldest data that the partition does not contain. If it was never built, the time when
            its last required input had data.
        pending_upstreams: Input partitions that have pending work, each with the oldest arrival that affects this one.
        news: Earliest arrival of the input changes that the partition does not contain and that a run can read now.
        stale: Reason for a rebuild without new data; empty if none is needed.
        has_stale_upstream: True if the partition is stale, or one of its direct or indirect inputs.
        missing_inputs: Required inputs without any data.
        unchanged: Inputs that have not changed, if all inputs have to change before a run.
        built: True if it was ever built.
        withheld_since: Time since when a built partition owes data that no run can build, because a required input has
            nothing for it (Unix seconds); None if it owes none.
    """

    arrival: float | None = None
    pending_upstreams: Mapping[Target, float] = field(default_factory=dict)
    news: float | None = None
    stale: str = ""
    has_stale_upstream: bool = False
    missing_inputs: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    built: bool = True
    withheld_since: float | None = None


@dataclass
class _OfInput:
    """State of one input for one partition. `needs_none`: the partition reads no partition of the input."""

    present: bool = False
    needs_none: bool = False
    first: float | None = None
    oldest: float | None = None
    rebuilt: str = ""
    there: float | None = None
    has_stale_upstream: bool = False
    pending_upstreams: dict[Target, float] = field(default_factory=dict)


@dataclass
class PendingWork:
    """Pending work by partition, updated from a history.

    Args:
        of: Pending work by asset and partition. Partitions without an entry contain all data that arrived.
        aside: Partitions whose computation failed, with the reason.
        moved: True if the backlog changed since the last reset.
        skips: Partitions that lack something because a person skipped it, or skipped an input of theirs.
        asked_again: Partitions that rebuilds have not reached yet, with the ids of the rebuilds. They also count while
            a later skip holds the rebuild back, because the skip may be ended.
        not_loaded: Code version that an asset's runs use and that the planning process has not loaded, by asset.
        looked: Partitions that were computed again. None means that they are not collected.
    """

    graph: Graph
    history: History
    of: dict[str, dict[Partition, Pending]] = field(default_factory=dict)
    aside: dict[Target, str] = field(default_factory=dict)
    moved: bool = True
    asked_again: dict[Target, tuple[str, ...]] = field(default_factory=dict)
    not_loaded: dict[str, str] = field(default_factory=dict)
    looked: set[Target] | None = None
    candidates: Candidates = field(init=False)
    skips: Skips = field(init=False)
    _dirty: dict[str, set[Partition]] = field(default_factory=dict)
    _ordered: dict[str, Sequence[Partition]] = field(default_factory=dict)
    _asleep: list[tuple[float, str, bool, str]] = field(default_factory=list)
    _sleeping: set[Target] = field(default_factory=set)
    _troubles: object = None
    _overrides: Overrides = field(default_factory=Overrides)
    _owed: dict[Target, tuple[int | None, float | None]] = field(default_factory=dict)
    """Last build, and oldest arrival since then, of each partition with a mapping that depends on time."""

    def __post_init__(self) -> None:
        self.candidates = Candidates(self.graph, self.history)
        self.skips = Skips(self.history)

    @property
    def begins_next(self) -> float:
        """Time of the next computation without any event, for example because a window begins (Unix seconds)."""
        return min(self._asleep[0][0] if self._asleep else float("inf"), self.candidates.look_again_at)

    def settle(self, now: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Compute again the partitions that an event or the beginning of a window affects.

        Args:
            stop: Called repeatedly. If it returns True, the rest is left for the next call.

        Returns:
            True if nothing was left.
        """
        if not self._collect(now, stop):
            return False
        count = 0
        for key, node in self.graph.nodes.items():
            while partitions := self._dirty.get(key):
                # If partitions read their own past, they are computed in order. Otherwise a partition would be computed
                # again after each earlier one. Others are sorted because the order of a set differs between processes.
                waiting = sorted(partitions, key=node.order if node.reads_itself else str)
                for partition in waiting:
                    self._look(node, partition, now)
                    count += 1
                    if count % _AT_ONCE == 0 and stop():
                        return False
        self._dirty.clear()
        troubles = dict(self.history.broken), dict(self.candidates.failed), dict(self.candidates.odd)
        self.moved, self._troubles = self.moved or troubles != self._troubles, troubles
        return True

    def in_order(self, node: Node) -> Sequence[Partition]:
        """Return the partitions of an asset that have pending work, the newest first.

        The oldest come first for an asset that reads its own past: a later partition waits for an earlier one.
        """
        found = self._ordered.get(node.key)
        if found is None:
            entries = self.of.get(node.key, {})
            ordered = called(lambda: sorted(entries, key=node.order, reverse=not node.reads_itself))
            # If the partitions definition raises, the decision on each partition reports the error.
            found = self._ordered[node.key] = list(entries) if isinstance(ordered, Raised) else ordered
        return found

    def get(self, target: Target) -> Pending | None:
        """Return the pending work of a partition, or None."""
        return self.of.get(target[0], {}).get(target[1])

    def readers(self, target: Target) -> Iterable[tuple[Input, Target, Pending]]:
        """Yield the readers of a partition that have pending work."""
        for node, read in self.graph.readers.get(target[0], ()):
            entries = self.of.get(node.key)
            if not entries:
                continue
            broad = read.downstream is None
            partitions = list(entries) if broad else self.history.reading(node, read, target[1])
            for partition in partitions:
                if partition in entries:
                    yield read, (node.key, partition), entries[partition]

    def inputs(self, read: Input, partition: Partition) -> Iterable[tuple[Target, Pending]]:
        """Return the pending work of the input's partitions that a partition reads."""
        entries = self.of.get(read.key)
        if not entries:
            return []
        wanted = list(entries) if read.upstream is None else read.upstream(partition)
        return [((read.key, p), entries[p]) for p in wanted if p in entries]

    def _follow_overrides(self) -> None:
        """Mark the partitions whose skips or rebuilds have changed, and plan again if any override has."""
        before, after = self._overrides, self.history.overrides
        if before is after or before == after:
            return
        self._overrides, self.moved = after, True
        changed = changed_assets(before, after) & self.graph.nodes.keys()
        known = [target for target in self.history.facts if target[0] in changed] if changed else []
        known += [(key, p) for key in changed for p in (*self.of.get(key, ()), *self.skips.of.get(key, ()))]
        for target in known:
            self._mark(target)
            self._mark_readers(target)

    def _collect(self, now: float, stop: Callable[[], bool]) -> bool:
        """Mark the partitions that events, overrides and the time affect. Return False if `stop` ended this early."""
        self._follow_overrides()
        for target in self.candidates.moved(now):
            self._mark(target)
            self._mark_readers(target)
        count = 0
        while self.history.dirty:
            count += 1
            if count % _AT_ONCE == 0 and stop():
                return False
            target = self.history.dirty.pop()
            if self.history.problem(target):  # only an earlier version of the code had this partition
                continue
            try:
                self._mark(target)
                self._mark_readers(target)
                self._wake_with(target, now)
            except BaseException:  # interrupted half-way: the rest is still to do
                self.history.dirty.add(target)
                raise
        self.history.dirty.clear()  # an emptied set keeps its memory: 64 bytes for each of a million partitions
        while self._asleep and self._asleep[0][0] <= now:
            _, key, partitioned, partition = heapq.heappop(self._asleep)
            target = (key, partition if partitioned else None)
            self._sleeping.discard(target)
            self._mark(target)
            self._mark_readers(target)
        return True

    def _wake_with(self, target: Target, now: float) -> None:
        """Schedule a partition for the time when it begins to exist, if an event arrives before that time."""
        node = self.graph.nodes.get(target[0])
        if node is not None and node.partitioned and not node.problem(target[1]):
            begins = node.exists_from(target[1])
            if begins > now:
                self._sleep(target, begins)

    def _mark(self, target: Target) -> None:
        if target[0] in self.graph.nodes:
            self._dirty.setdefault(target[0], set()).add(target[1])

    def _mark_readers(self, target: Target) -> None:
        for node, read in self.graph.readers.get(target[0], ()):
            marked = self._dirty.setdefault(node.key, set())
            marked.update(self.history.reading(node, read, target[1]))
            if node.partitioned and (read.downstream is None or (node.key, target) in self.history.broken):
                marked.update(self.of.get(node.key, ()), self.skips.of.get(node.key, ()))

    def _look(self, node: Node, partition: Partition, now: float) -> None:
        """Compute one partition again. It stays marked until its computation is complete."""
        target = (node.key, partition)
        entries = self.of.setdefault(node.key, {})
        before, why = entries.get(partition), self.aside.pop(target, None)
        if self.looked is not None:
            self.looked.add(target)
        skipped = self.skips.pop(target)
        self.asked_again.pop(target, None)
        after = called(lambda: self._pending(node, target) if self._exists(node, target, now) else None)
        if isinstance(after, Raised):
            self.aside[target] = str(after)
            self._sleep(target, now + _LOOK_AGAIN)
            self._ask_again(node, target)
            after = None
        if self.history.facts.is_built(target) or (after is not None and not _others(node, after.missing_inputs)):
            self.candidates.note(node, partition)
        if after is not None:
            entries[partition] = after
        elif before is not None:
            del entries[partition]
        if (after is None) is not (before is None):
            self._ordered.pop(node.key, None)
        left_out = self.skips.get(target)
        if _told(after) != _told(before) or (skipped is None) is not (left_out is None):
            self._mark_readers(target)
        self.moved = self.moved or after != before or why != self.aside.get(target) or skipped is not left_out
        self._dirty[node.key].discard(partition)

    def _ask_again(self, node: Node, target: Target) -> None:
        """Note the rebuilds that have not reached a partition, so that they are not found complete."""
        overrides, built = self.history.overrides, self.history.facts.built(target)
        cuts, as_of = overrides.cuts.get(node.key), built.as_of if built else None
        if not cuts:
            return
        found = called(overrides.unfinished_rebuilds, node, target[1], as_of)
        if isinstance(found, Raised):  # the partitions definition raises: any rebuild of the asset may cover it
            rebuilds = (each for each in cuts if each.kind is OverrideKind.REBUILD)
            found = [each for each in rebuilds if as_of is None or each.as_of > as_of]
        if found:
            self.asked_again[target] = tuple(each.id for each in found)

    def _exists(self, node: Node, target: Target, now: float) -> bool:
        if node.refused or not (node.inputs or node.automated):
            return False
        if node.problem(target[1]):
            return False
        begins = self.candidates.begins(node, target)
        if begins > now:
            self._sleep(target, begins)
            return False
        exists = node.exists(target[1])
        if not exists and self.candidates.was_never(target):
            self.aside[target] = f"partition {target[1]!r} does not exist; its data is used when the key is added"
        return exists

    def _sleep(self, target: Target, until: float) -> None:
        if target not in self._sleeping:
            self._sleeping.add(target)
            heapq.heappush(self._asleep, (until, target[0], target[1] is not None, str(target[1])))

    def _pending(self, node: Node, target: Target) -> Pending | None:
        said = [(read, self._of_input(node, read, target)) for read in node.inputs]
        pending_upstreams = {source: arrival for _, of in said for source, arrival in of.pending_upstreams.items()}
        missing_inputs = tuple(read.key for read, of in said if not (of.present or of.needs_none or read.optional))
        has_stale_upstream = any(of.has_stale_upstream for _, of in said)
        built = self.history.facts.built(target)
        if built is None:
            return self._first(node, target, said, pending_upstreams, missing_inputs, has_stale_upstream)
        if node.reads_itself:
            missing_inputs = ()  # it was built although a window has no data, and can be built again
        arrivals = [of.oldest for _, of in said if of.oldest is not None]
        unchanged: tuple[str, ...] = ()
        if node.requires_all and arrivals:
            unchanged = tuple(r.key for r, of in said if of.oldest is None and not of.rebuilt and not r.use_latest)
            arrival = None if unchanged else max(arrivals)
        else:
            arrival = min(arrivals, default=None)
        arrival = self._still_owed(node, target, arrival, missing_inputs)
        stale = self._stale(node, target, built) or next((of.rebuilt for _, of in said if of.rebuilt), "")
        self.skips.note_built(node, target)
        news = min((of.there for _, of in said if of.there is not None), default=None)
        withheld_since = None
        if missing_inputs:  # no run can build it again: nothing is pending here or below
            withheld_since = self._withheld_since(node, target, missing_inputs, arrival)
            arrival, news, pending_upstreams = None, None, {}
        if arrival is None and withheld_since is None and not (stale or unchanged or has_stale_upstream):
            return None
        return Pending(
            arrival,
            pending_upstreams,
            news,
            stale,
            has_stale_upstream or bool(stale),
            missing_inputs,
            unchanged,
            withheld_since=withheld_since,
        )

    def _withheld_since(
        self, node: Node, target: Target, missing_inputs: tuple[str, ...], arrival: float | None
    ) -> float | None:
        """Return since when a built partition owes data that it cannot contain without its missing inputs, or None.

        A partition without a window owes it from the deploy that added an input, or gave it other partitions, after the
        build. If a person built it without the input, it owes only data that arrived later. A person who builds a
        window without an input accepts that it lacks something. Only an input that was added after the build can make
        it owe later data.
        """
        declared, defined = self.graph.moment.inputs_since.get(node.key, {}), self.graph.moment.defined_at
        added_at = max(max(declared.get(key, 0.0), defined.get(key, 0.0)) for key in missing_inputs)
        was_added = added_at > self.history.covered(target).started_at
        if node.window(target[1]) is not None:
            return max(added_at, arrival) if was_added and arrival is not None else None
        return added_at if was_added else arrival

    def _first(
        self,
        node: Node,
        target: Target,
        said: list[tuple[Input, _OfInput]],
        pending_upstreams: Mapping[Target, float],
        missing_inputs: tuple[str, ...],
        has_stale_upstream: bool,
    ) -> Pending | None:
        """Return the pending work of a partition that was never built."""
        skipped = self.skips.of_input(node, target, missing_inputs)
        if skipped is not None:
            self.skips.note(target, skipped)
            return None
        skip, later = self.history.overrides.skip_of(node, target[1]), Later((), ())
        if skip is not None:
            pending = [(read, of.pending_upstreams.values()) for read, of in said]
            later = self.skips.later(node, target, pending, skip, self.candidates)
            if later.first is None:
                self.skips.note(target, skip)
                if not missing_inputs:
                    self._ask_again(node, target)
                return None
        drives = any(of.present for read, of in said if read.key != node.key)
        if node.reads_itself and (not drives or _others(node, missing_inputs)):
            gap = self.candidates.gap(node, target, self.of.get(node.key, {}), self._mark)
            if gap is not None:  # a window without all of its data, which later windows read as their past
                return Pending(gap, pending_upstreams, gap, "", has_stale_upstream, (), (), built=False)
        if not drives and not node.enumerated:
            return None
        first = [of.first for read, of in said if of.first is not None and not read.optional]
        if node.enumerated:
            first.append(self.candidates.begins(node, target))
        without_required = min((of.first for _, of in said if of.first is not None), default=None)
        arrival = None if missing_inputs else max(first, default=without_required)
        if arrival == float("-inf"):
            arrival = self.candidates.since(node.key)
        elif arrival is not None:  # no run could build it before it existed
            arrival = max(arrival, node.exists_from(target[1]))
        if arrival is not None and later.first is not None:  # data from before a skip does not make it late
            arrival = max(arrival, later.first)
        arrival = self._still_owed(node, target, arrival, missing_inputs)
        there = min((of.there for _, of in said if of.there is not None), default=arrival)
        if skip is not None:  # a run would find nothing new before the inputs are built
            there = min(later.present, default=None)
        if node.reads_itself and not _others(node, missing_inputs):
            self.candidates.ask_for_past(node, target, self._mark)
        if not missing_inputs:  # once a rebuild has ended, the skip before it applies again
            self._ask_again(node, target)
        return Pending(arrival, pending_upstreams, there, "", has_stale_upstream, missing_inputs, (), built=False)

    def _still_owed(
        self, node: Node, target: Target, arrival: float | None, missing_inputs: tuple[str, ...]
    ) -> float | None:
        """Return the arrival of the oldest data since the last build, even if the mapping no longer selects that data.

        A table that reads only the last hour gets new data every hour. If only the latest hour counted, the table would
        never be due.
        """
        if all(read.stamp is None for read in node.inputs):
            return arrival
        built = self.history.facts.built(target)
        build = built.id if built else None
        if (skip := self.history.overrides.skip_of(self.graph.nodes[target[0]], target[1])) is not None:
            build = max(build or 0, skip.as_of)
        before = self._owed.get(target, (build, arrival))
        oldest = _min(before[1], arrival) if before[0] == build else arrival
        if arrival is not None or missing_inputs:
            self._owed[target] = build, oldest
        else:  # it contains everything it reads
            self._owed.pop(target, None)
        return oldest if arrival is not None else None

    def _stale(self, node: Node, target: Target, built: Built) -> str:
        cut = self.history.overrides.cut_of(node, target[1])
        if cut is not None and cut.as_of > built.as_of:
            self._ask_again(node, target)
            if cut.kind is OverrideKind.REBUILD:
                return f"rebuild {cut.told()}"
            if cut.codes.get(node.key) == node.code_version:
                return ""  # what older code or a lost run left behind is skipped, too
        if built.code_version and node.code_version and built.code_version != node.code_version:
            if built.as_of <= self.graph.moment.loaded_after:
                return f"built by code {built.code_version}, the current code is {node.code_version}"
            # The run was created after this code was loaded, but used other code: the files were edited since. A
            # rebuild would use that code again, and would request the next rebuild.
            self.not_loaded[node.key] = built.code_version
        run = self.history.again.get(target)
        return f"the platform stopped before run {run.split('-')[0]} could rebuild this" if run else ""

    def _of_input(self, node: Node, read: Input, target: Target) -> _OfInput:
        found = _OfInput()
        built = self.history.facts.is_built(target)
        is_any_added = built and self.graph.moment.inputs_added
        added_at = self.history.added_after(read, target, self.history.covered(target)) if is_any_added else None
        counts_from = float("-inf") if added_at is None else added_at
        if built:
            for source, change in self.history.news(read, target):
                if change.arrived_at is None:
                    found.rebuilt = found.rebuilt or f"{name(source)} was rebuilt with other content"
                else:
                    found.there = found.oldest = _min(found.oldest, max(change.arrived_at, counts_from))
        first_arrival = self.history.facts.first_arrival
        for source in self.history.inputs_of(read, target[1]):
            if not built and not self.history.is_there(source):
                continue
            found.present = True
            if not built:
                found.there = found.first = _min(found.first, first_arrival(source))
        only_has_to_exist = read.use_latest and (found.present or self._comes_by_itself(read.key))
        for source, pending in self.inputs(read, target[1]):
            found.has_stale_upstream = found.has_stale_upstream or pending.has_stale_upstream
            if pending.arrival is None or only_has_to_exist:
                continue
            if not pending.built:
                found.present = True
                found.first = _min(found.first, pending.arrival)
            arrival = max(pending.arrival, counts_from)
            if not built or self.history.reaches(read, pending.arrival, target):
                found.pending_upstreams[source] = arrival
                found.oldest = _min(found.oldest, arrival)
            elif read.use_latest:  # the input was wiped: its readers do not run without it
                found.pending_upstreams[source] = pending.arrival
        if not found.present:
            found.needs_none = self.candidates.needs_none(node, read, target[1]) or self.skips.is_past(
                node, read, target
            )
        return found

    def _comes_by_itself(self, key: str) -> bool:
        """Return True if an asset runs even if no reader needs it. Other assets run only for their readers."""
        node = self.graph.nodes.get(key)
        return node is None or node.contract is not None or node.asap


def _others(node: Node, missing_inputs: tuple[str, ...]) -> bool:
    """Return True if an input other than the table itself is missing."""
    return any(key != node.key for key in missing_inputs)


def _told(pending: Pending | None) -> object:
    """Return the facts about a partition that its readers depend on."""
    return pending and (pending.arrival, pending.has_stale_upstream, pending.built)


def _min(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
