"""Facts from the event log: changes of partitions, and the changes that each partition contains.

The history results only from events, in the order of their storage ids. The planner compares the present content of
inputs with the content that a partition contains. So an event that is read late, twice or after a restart does no harm.

A partition contains what its latest materialization contains: every change of its inputs that was visible when
that run was created (the storage id of its planned event), and all changes made earlier in the same run.

Longer than 250 lines, so that every effect of an event can be read in one place.
"""

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

from dagster_tidemark.planner import run_retries
from dagster_tidemark.planner.check_results import CheckResult, CheckResults, LatestWrite
from dagster_tidemark.planner.event_records import (
    Built,
    Change,
    Failure,
    Materialization,
    OpenRun,
    Outcome,
    contains,
    reaches,
)
from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.loops import Loops
from dagster_tidemark.planner.overrides import Override, Overrides
from dagster_tidemark.planner.partition_facts import DynamicKeys, PartitionFacts, PartitionRecord
from dagster_tidemark.planner.run_durations import RunDurations
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.wording import name
from dagster_tidemark.sources.feed import Partition

_A_MOMENT = 1.0


@dataclass
class History:
    """State folded from the events read so far.

    Args:
        facts: Content and latest build of each partition.
        first_seen: When the first event about a source was read.
        replaced: Code version by asset before the present code was loaded. No event names the code of a run that wrote
            nothing.
        dirty: Targets that an event may have affected since the planner last computed them.
        set_aside: Events about partitions that their asset does not have, with the reason.
        former: Partitions of an earlier definition of their asset: events about them are skipped.
        again: Built partitions that still need a rebuild, because the platform lost their last run, with its id.
        checks: The latest results of blocking checks.
        broken: Reason why an asset's partitions that read a changed partition are unknown, by asset and that partition.
        unseen: Changes of wiped partitions that some reader did not contain.
        keys: Facts about partition keys that no event contains.
        durations: Durations of runs.
        loops: Loops through observations.
        overrides: Pauses, skips and rebuilds that people requested. No event contains it.
        revision: Number that every event increases.
    """

    graph: Graph
    facts: PartitionFacts = field(default_factory=PartitionFacts)
    first_seen: dict[str, float] = field(default_factory=dict)
    failures: dict[Target, Failure] = field(default_factory=dict)
    replaced: dict[str, str | None] = field(default_factory=dict)
    open_runs: dict[str, OpenRun] = field(default_factory=dict)
    running: dict[Target, set[str]] = field(default_factory=dict)
    dirty: set[Target] = field(default_factory=set)
    set_aside: dict[Target, str] = field(default_factory=dict)
    former: set[Target] = field(default_factory=set)
    again: dict[Target, str] = field(default_factory=dict)
    checks: CheckResults = field(default_factory=CheckResults)
    broken: dict[tuple[str, Target], str] = field(default_factory=dict)
    unseen: dict[Target, tuple[Change, ...]] = field(default_factory=dict)
    keys: DynamicKeys = field(default_factory=DynamicKeys)
    durations: RunDurations = field(default_factory=RunDurations)
    loops: Loops = field(default_factory=Loops)
    overrides: Overrides = field(default_factory=Overrides)
    revision: int = 0

    @property
    def heard_of(self) -> set[str]:
        """Assets with any known event. A failed run counts, and so does a run that had nothing to write."""
        return self.facts.assets_with_content().union(self.facts.assets_built(), (asset for asset, _ in self.failures))

    def observed(
        self,
        target: Target,
        *,
        id: int,
        version: str,
        arrived_at: float,
        listed_at: float | None,
        at: float | None = None,
    ) -> None:
        """Record the data version of a source partition, seen in a listing at `listed_at` (None: unknown)."""
        self.revision += 1
        if self._strange(target):
            return
        self.first_seen.setdefault(target[0], arrived_at if at is None else at)
        if listed_at is not None:
            if listed_at < (self.facts.of(target).listed_at or 0.0):
                return  # an older listing that was written later
            self.facts.to_change(target).listed_at = listed_at
        self._has_new_data(target, version, Change(id, arrived_at), arrived_at if at is None else at)

    def planned(self, targets: Iterable[Target], *, id: int, run_id: str, at: float = 0.0) -> None:
        """Record a created run and the targets that it will build."""
        self.revision += 1
        run = self.open_runs.setdefault(run_id, OpenRun(at, id, run_id=run_id))
        run.as_of = min(run.as_of, id)
        for target in targets:
            if self._strange(target):
                continue
            run.planned[target] = id
            self.running.setdefault(target, set()).add(run_id)

    def materialized(
        self,
        target: Target,
        *,
        id: int,
        run_id: str | None,
        as_of: int | None,
        version: str | None,
        at: float,
        code_version: str | None = None,
    ) -> None:
        """Record the write of a partition. `as_of` is None for an event without a run, which does not count as a build.

        A run's writes of one asset take effect together, after the last write. Each partition has its own event, and
        consumers would otherwise be requested for some of the partitions first and then for the rest.
        """
        self.revision += 1
        if self._strange(target):
            return
        version = version or str(id)
        node = self.graph.nodes.get(target[0])
        if node is not None and node.source:
            self.first_seen.setdefault(target[0], at)
        if run_id is None or as_of is None or run_id not in self.open_runs:
            self._has_new_data(target, version, Change(id, at), at)
            return
        run = self.open_runs[run_id]
        run.planned.pop(target, None)
        run.built[target[0]] = run.built.get(target[0], 0) + 1
        written = run.written.setdefault(target[0], [])
        shared_id = run.run_id or run_id
        written.append(Materialization(target, id, shared_id, as_of, version, at, run.created_at, code_version))
        if not any(key == target[0] for key, _ in run.planned):
            self._apply(run.written.pop(target[0]))

    def ended(
        self,
        run_id: str,
        *,
        at: float,
        outcome: Outcome = Outcome.FAILED,
        seconds: float | None = None,
        by_person: bool = False,
    ) -> None:
        """Record the end of a run. Planned partitions that it has not built count as failed.

        Args:
            outcome: Result of the run. After a success, there was nothing to write for planned partitions without rows.
            seconds: From its creation (queue time capped) to its end, if it succeeded.
            by_person: True if only a person requested it: failed partitions are retried after the shortest pause.
        """
        self.revision += 1
        run = self.open_runs.pop(run_id, OpenRun())
        for written in run.written.values():
            self._apply(written)
        if seconds is not None and run.built:
            self.durations.add(run.built, seconds)
        for target, as_of in run.planned.items():
            self._stop(target, run_id)
            self.dirty.add(target)
            if outcome is Outcome.SUCCEEDED:
                self._saw(target, run, as_of)
                continue
            built = self.facts.built(target)
            # When the log is read again, this end may be applied after a later build, which replaces the lost run.
            if outcome is Outcome.LOST and built is not None and built.as_of <= as_of:
                self.again[target] = run_id
            code, before = self._code_of_run(target[0], as_of), self.failures.get(target)
            if self._is_of_other_code(target[0], code):  # the code that is loaded now has not failed
                self.failures.pop(target, None)
                continue
            if before is not None and before.as_of == as_of:  # already counted: its events are read again
                continue
            self.failures[target] = run_retries.after(
                before,
                outcome,
                as_of=as_of,
                ended_at=at,
                seconds=max(0.0, at - run.created_at) if run.created_at else 0.0,
                code_version=code,
                starts_over=by_person or (before is not None and self.has_new_data(target, before.as_of)),
            )

    def checked(
        self,
        target: Target,
        check: str,
        *,
        id: int,
        passed: bool,
        run_id: str | None,
        evaluated_by: str | None = None,
        began: int | None = None,
    ) -> None:
        """Record the result of a blocking check.

        Args:
            target: The asset and partition; the partition is None if the check does not name one.
            run_id: The run whose materialization was checked. If this is None, or `evaluated_by` and that run wrote
                nothing, the result is about the whole asset.
            evaluated_by: The run that evaluated the check.
            began: Storage id of the first event of that run; None: the run has planned materializations, or none ran.
        """
        self.revision += 1
        asset, partition = target
        run = self.open_runs.get(evaluated_by) if evaluated_by is not None else None
        if run is not None:
            began = run.as_of
        result = CheckResult(id, passed, evaluated_by, began)
        own = self._of_run(asset, evaluated_by)
        if passed and not own and partition is None and run is not None and asset in run.built:
            return  # other runs have written its partitions again
        on = {partition} if partition is not None else own
        if passed and on and not (on := {p for p in on if p in own or result.is_on(self.written((asset, p)))}):
            return
        if not on and run_id not in (None, evaluated_by):
            on = self._of_run(asset, run_id)
            if not passed:  # it evaluated the whole table: partitions without a result share this result
                on |= {p for p in self.facts.with_content(asset) if check in self.unchecked((asset, p))}
            if not on:
                return  # the evaluated partitions were written again since then
        # If `on` is still empty, the log has no write that the result is about (runs can be deleted).
        self.checks.evaluated(asset, check, result, on)

    def blocking(self, target: Target) -> str | None:
        """Return the check that failed on the last write of a partition, or None."""
        return self.checks.blocking(target, self.written(target)) if target[0] in self.checks.of else None

    def unchecked(self, target: Target) -> tuple[str, ...]:
        """Return the blocking checks without a result on the last write of a partition."""
        blocking = self.graph.blocking(target[0])
        return self.checks.without_result(target, self.written(target), blocking) if blocking else ()

    def written(self, target: Target) -> LatestWrite:
        """Return the latest write of a partition."""
        facts = self.facts.of(target)
        built = facts.built
        # An external table has changes, but no builds. A build that a person reported counts as a change, too.
        reported = facts.changes[-1].id if facts.changes else 0
        return LatestWrite(reported) if built is None or reported > built.id else LatestWrite(built.id, built.run_id)

    def guarded_elsewhere(self, asset: str, check: str, *, blocking: bool) -> None:
        """Record that another code location declares a check of an asset as blocking, or no longer as blocking."""
        self.revision += 1
        checks = self.graph.elsewhere.setdefault(asset, set())
        (checks.add if blocking else checks.discard)(check)
        if not blocking:
            self.checks.keep({asset: self.graph.blocking(asset)})

    def _of_run(self, asset: str, run_id: str | None) -> set[Partition]:
        """Return the partitions of an asset that a run builds, or wrote last."""
        if run_id is None:
            return set()
        run = self.open_runs.get(run_id)
        found = {m.target[1] for m in run.written.get(asset, ())} if run else set()
        found |= {p for key, p in run.planned if key == asset} if run else set()
        return found | {
            p for p in self.facts.with_content(asset) if (b := self.facts.built((asset, p))) and b.run_id == run_id
        }

    def forget(self, targets: Collection[Target]) -> None:
        """Forget all facts about partitions that were wiped."""
        self.revision += 1
        gone = set(targets)
        for target in gone:
            # The version is kept: a rebuild with the same content is a change only for readers that do not contain it.
            if self.problem(target) is None:
                self.unseen[target] = self._still_news(target, self.facts.changes(target))
            self.facts.put(target, PartitionRecord(version=self.facts.version(target)))
            for known in (self.failures, self.again):
                known.pop(target, None)
            self.dirty.add(target)
        self.set_aside = {t: why for t, why in self.set_aside.items() if t not in gone}

    def clear(self) -> None:
        """Forget everything, before the event log is read from its beginning."""
        self.graph.elsewhere.clear()
        vars(self).update(vars(History(self.graph, overrides=self.overrides)))

    def adopt(self, graph: Graph) -> Set[Target]:
        """Continue with another version of the code, after which every target is computed again.

        Returns:
            Targets that are no longer set aside. The history lacks the events about them.
        """
        self.revision += 1
        for key, checks in list(self.graph.elsewhere.items()):
            if key in graph.nodes and (more := checks - graph.nodes[key].blocking):
                graph.elsewhere[key] = more
        self.checks.keep({key: graph.blocking(key) for key in graph.nodes})
        aside, self.set_aside, self.broken = self.set_aside, {}, {}
        before, self.graph = self.graph, graph
        self.drop_failures_of_other_code()
        self._drop_former(before)
        former, self.former = self.former, {t for t in self.former if self.problem(t)}
        self.set_aside = {t: why for t, why in aside.items() if t not in self.former and self._strange(t)}
        self.dirty.update(t for t in self.facts if t[0] in graph.nodes)
        mended = (aside.keys() | former) - self.set_aside.keys() - self.former
        self.are_keys_now(mended)
        return mended

    def _drop_former(self, before: Graph) -> None:
        """Forget partitions that no longer exist, of assets whose partitions definition has changed."""
        nodes = self.graph.nodes
        redefined = {key for key, node in before.nodes.items() if key in nodes and nodes[key].cut != node.cut}
        known = chain(self.facts, self.failures, self.set_aside) if redefined else ()
        gone = {target for target in known if target[0] in redefined and self.problem(target)}
        for target in gone:
            self.forget_former(target)

    def forget_former(self, target: Target) -> None:
        """Forget a partition that belongs to an earlier definition of its asset."""
        self.revision += 1
        self.former.add(target)
        self.facts.forget(target)
        for known in (self.failures, self.again, self.unseen, self.set_aside):
            known.pop(target, None)

    def are_keys_now(self, targets: Iterable[Target]) -> None:
        """Record that a deploy has just declared these keys: no earlier run could read their data."""
        # The time is a second earlier, so that a run requested in the same tick already reads their data.
        self.keys.declared |= dict.fromkeys(targets, self.graph.moment.now - _A_MOMENT)

    def as_of(self, run_id: str, target: Target) -> int | None:
        """Return the id of a run's planned event for a target, while the run is open.

        This includes targets that the run has already written: a retried step writes them again.
        """
        run = self.open_runs.get(run_id)
        if run is None:
            return None
        if target in run.planned:
            return run.planned[target]
        written = (m.as_of for m in run.written.get(target[0], ()) if m.target == target)
        built = self.facts.built(target)
        return next(written, built.as_of if built is not None and built.run_id == run_id else None)

    def inputs_of(self, read: Input, partition: Partition) -> Iterable[Target]:
        """Return the partitions with data that a partition reads from an input."""
        known = self.facts.with_content(read.key)
        wanted = known if read.upstream is None else read.upstream(partition)
        return [(read.key, p) for p in wanted if p in known]

    def news(self, read: Input, target: Target) -> Iterator[tuple[Target, Change]]:
        """Yield the changes of one input that a built target does not contain and that nobody has skipped."""
        yield from self._news(read, target, self.covered(target))

    def left_out(self, read: Input, target: Target) -> bool:
        """Return True if a built target lacks a change of one input because a person has skipped it."""
        built, covered = self._built(target), self.covered(target)
        return covered is not built and any(c.id <= covered.as_of for _, c in self._news(read, target, built))

    def covered(self, target: Target) -> Built:
        """Return the latest build of a target, as if it contained everything that a person has skipped since."""
        built, node = self._built(target), self.graph.nodes.get(target[0])
        if node is None or target[0] not in self.overrides.cuts:
            return built
        skip = self.overrides.skip_of(node, target[1])
        if skip is None or skip.as_of <= built.as_of:
            return built
        return replace(built, as_of=skip.as_of, started_at=max(built.started_at, skip.at))

    def _built(self, target: Target) -> Built:
        built = self.facts.built(target)
        if built is None:
            raise KeyError(target)
        return built

    def _news(self, read: Input, target: Target, built: Built) -> Iterator[tuple[Target, Change]]:
        for source in self.inputs_of(read, target[1]):
            changes = self.facts.changes(source)
            began = self._began_after(source, target, built)
            if began is not None:  # it did not exist before: no run could read its data
                if self.reaches(read, changes[-1].arrived_at, target):
                    yield source, self._since(source, began)
                continue
            if changes[-1].id <= built.as_of or not self.is_there(source):
                continue
            for change in changes:
                if not contains(built, change) and self.reaches(read, change.arrived_at, target):
                    yield source, change

    def is_there(self, source: Target) -> bool:
        """Return True if a partition exists now. Data may arrive before that, but no run reads it then."""
        node = self.graph.nodes.get(source[0])
        return node is None or node.exists(source[1])

    def arrivals_since(self, read: Input, partition: Partition, skip: Override) -> list[float]:
        """Return the arrivals of an input's changes that are newer than a skip of its reader.

        A change without an arrival, made by a rebuild, counts as if it arrived at the time of the skip.
        """
        found: list[float] = []
        for source in self.inputs_of(read, partition):
            node = self.graph.nodes.get(source[0])
            begins = max(node.exists_from(source[1]), self.keys.declared.get(source, 0.0)) if node else 0.0
            later = [c for c in self.facts.changes(source) if c.id > skip.as_of]
            if self.is_there(source) and (later or begins > skip.at):
                known = [c.arrived_at for c in later if c.arrived_at is not None]
                found.append(max(min(known, default=skip.at), begins))
        return found

    def _began_after(self, source: Target, reader: Target, built: Built) -> float | None:
        """Return the time when a partition began to exist, if that was after the start of its reader's build."""
        node = self.graph.nodes.get(source[0])
        if node is None:
            return None
        gone, came = self.keys.appeared.get(source, (0.0, 0.0))
        # A new key is noticed with a delay. If the reader has the same key, the key existed when the reader was built.
        if gone <= built.started_at < came and not self._dynamic_keys(source) <= self._dynamic_keys(reader):
            return came
        began = max(node.exists_from(source[1]), self.keys.declared.get(source, 0.0))
        return began if built.started_at < began <= self.graph.moment.now else None

    def _dynamic_keys(self, target: Target) -> frozenset[tuple[str, Partition]]:
        node = self.graph.nodes.get(target[0])
        return node.dynamic(target[1]) if node and node.dynamic else frozenset()

    def _since(self, source: Target, began: float) -> Change:
        """Return everything that arrived for a partition, before and after it began, as one change."""
        facts = self.facts.of(source)
        change, first = facts.changes[-1], facts.first_arrival
        return change if change.arrived_at is None or first is None else replace(change, arrived_at=max(began, first))

    def reaches(self, read: Input, arrived_at: float | None, target: Target) -> bool:
        """Return True if a change of an input, with this arrival, makes a built partition stale."""
        return reaches(read, arrived_at, self.graph.nodes[target[0]].window(target[1]) if read.ripple_days else None)

    def has_new_data(self, target: Target, since: int) -> bool:
        """Return True if any input of a partition has changed since a storage id."""
        node = self.graph.nodes.get(target[0])
        reads = node.inputs if node else ()
        changed = called(
            lambda: any(self.facts.changes(s)[-1].id > since for read in reads for s in self.inputs_of(read, target[1]))
        )
        return changed is True  # if a mapping raises, the planner names the asset when it computes the partition

    def _has_new_data(self, target: Target, version: str, change: Change, at: float) -> None:
        """Record a change that no known run made; `at` is the time of its event (Unix seconds)."""
        before = self.facts.changes(target)
        self._changed(target, version, change)
        if self.facts.changes(target) != before:
            self.loops.arrived(target, at)

    def _changed(self, target: Target, version: str, change: Change) -> None:
        facts = self.facts.to_change(target)
        before = facts.changes
        same = facts.version == version
        if same and before:
            return
        if facts.first_arrival is None:
            facts.first_arrival = change.arrived_at
        self.dirty.add(target)
        if before and change.id < before[-1].id:  # its event was committed late: the newer version stays
            ordered = list(before)
            insort(ordered, change, key=lambda known: known.id)
            self.facts.change(target, tuple(ordered))
            return
        facts.version = version
        before = before or self.unseen.pop(target, ())
        # The same content after a wipe is no change for readers that contain it.
        changes = before or (replace(change, id=0),) if same else (*self._still_news(target, before), change)
        self.facts.change(target, changes)

    def _still_news(self, target: Target, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Return the changes that a built reader does not contain, or may not contain after an open run ends."""
        open_as_of = min((run.as_of for run in self.open_runs.values()), default=None)
        readers = (
            [(read, t, built) for read, t in self.readers_of(target) if (built := self.facts.built(t)) is not None]
            if changes
            else []
        )
        return tuple(
            change
            for change in changes
            if (open_as_of is not None and change.id > open_as_of)
            or any(not contains(built, change) and self.reaches(r, change.arrived_at, t) for r, t, built in readers)
        )

    def readers_of(self, target: Target) -> Iterator[tuple[Input, Target]]:
        """Yield the partitions that read a partition. If an asset has no mapping, yield its partitions with data."""
        for node, read in self.graph.readers.get(target[0], ()):
            for partition in self.reading(node, read, target[1]):
                yield read, (node.key, partition)

    def reading(self, node: Node, read: Input, partition: Partition) -> Iterable[Partition]:
        """Return the partitions of an asset that read a partition of one of its inputs.

        If the mapping raises, return all partitions with data, and record the reason in `broken`.
        """
        if read.downstream is not None:
            broken = (node.key, (read.key, partition))
            found = called(read.downstream, partition)
            if not isinstance(found, Raised):
                if self.broken:
                    self.broken.pop(broken, None)
                return found
            self.broken[broken] = f"the partitions that read {name(broken[1])} are unknown: {found.error!r}"
        return list(self.facts.with_content(node.key)) if node.partitioned else (None,)

    def _apply(self, written: Sequence[Materialization]) -> None:
        for m in written:
            before = self.facts.built(m.target)
            consumed = called(self._consumed, m, before and self._covered_before(m))
            # If a mapping raises, the planner names the asset when it computes the partition.
            arrival = m.at if isinstance(consumed, Raised) else consumed
            if before is not None and before.run_id == m.run_id and before.id < m.id:
                self.checks.repeated(m.target, m.id, m.run_id)
            if before is None or m.id > before.id:
                built = Built(m.id, m.as_of, m.run_id, m.started_at, m.code_version)
                self.facts.to_change(m.target).built = built
            self.failures.pop(m.target, None)
            self.again.pop(m.target, None)
            self.dirty.add(m.target)
            self._stop(m.target, m.run_id)
            self._changed(m.target, m.version, Change(m.id, arrival, m.run_id))
        for asset, at in {m.target[0]: m.at for m in written}.items():
            self.loops.committed(asset, at)
            self._shorten_pauses(asset)

    def _saw(self, target: Target, run: OpenRun, as_of: int) -> None:
        """Record that a run succeeded without writing a partition: the old content also covers what the run read.

        It does not cover what the run itself wrote: Dagster may have skipped the step, because an input of the run was
        reported (`log_event`) and not returned.
        """
        before = self.facts.built(target)
        if before is None or before.as_of < as_of:
            # Nothing was written: the results of checks on the last write still hold.
            id, writer = (before.id, before.run_id) if before else (as_of, "")
            built = Built(id, as_of, writer, run.created_at, self._code_of_run(target[0], as_of))
            self.facts.to_change(target).built = built
        self.failures.pop(target, None)
        self.again.pop(target, None)

    def _consumed(self, m: Materialization, before: Built | None) -> float | None:
        """Return the earliest arrival of the data that a materialization newly contains, or None.

        For a first build, return when its last required input had data, because its contract counts from then.
        """
        node, after = self.graph.nodes.get(m.target[0]), Built(m.id, m.as_of, m.run_id)
        if node is None or not node.inputs:
            return m.at
        skip = None if before is not None else self.overrides.skip_of(node, m.target[1])
        if skip is not None and skip.as_of < m.as_of:  # data from before the skip does not make its readers late
            return min(
                (at for read in node.inputs for at in self.arrivals_since(read, m.target[1], skip)), default=m.at
            )
        found = [
            (read, self._fresh(read, m.target, after, before))
            for read in node.inputs
            if before is None or not read.use_latest
        ]
        arrivals = [arrival for _, arrival in found if arrival is not None]
        if before is not None:
            return min(arrivals, default=None)
        required = [arrival for read, arrival in found if arrival is not None and not read.optional]
        arrivals = required or sorted(arrivals)[:1]
        # No run could build a partition before it existed: an hour that begins does not make its day late.
        return max(*arrivals, node.exists_from(m.target[1])) if arrivals else m.at

    def _covered_before(self, m: Materialization) -> Built:
        """Return the build before a materialization. A skip counts only if the run was created after it."""
        covered = self.covered(m.target)
        return covered if covered.as_of < m.as_of else self._built(m.target)

    def _fresh(self, read: Input, target: Target, after: Built, before: Built | None) -> float | None:
        """Return the earliest arrival among an input's changes that `after` contains and `before` does not."""
        sources = list(self.inputs_of(read, target[1]))
        if before is None:
            first = (self.facts.first_arrival(source) for source in sources)
            return min((arrival for arrival in first if arrival is not None), default=None)
        begun = [self.facts.changes(s)[-1] for s in sources if self._began_after(s, target, before) is not None]
        changes = (c for source in sources for c in self.facts.changes(source) if not contains(before, c))
        fresh = (c.arrived_at for c in (*begun, *changes) if contains(after, c))
        earliest = min((arrival for arrival in fresh if arrival is not None), default=None)
        added_at = self.added_after(read, target, before)
        return earliest if earliest is None or added_at is None else max(earliest, added_at)

    def added_after(self, read: Input, target: Target, built: Built) -> float | None:
        """Return when a deploy added an input, if that was after the start of a build; its data counts from then on."""
        added_at = self.graph.moment.added_at(target[0], read.key)
        return added_at if added_at > built.started_at else None

    def drop_failures_of_other_code(self) -> None:
        """Drop the failures of other code versions: the code that is loaded now has not failed."""
        for target, failure in list(self.failures.items()):
            if self._is_of_other_code(target[0], failure.code_version):
                del self.failures[target]

    def _is_of_other_code(self, asset: str, code_version: str | None) -> bool:
        node = self.graph.nodes.get(asset)
        return node is None or node.code_version != code_version

    def _code_of_run(self, asset: str, as_of: int) -> str | None:
        """Return the code version of a run that wrote nothing: of the replaced code, if the run was created before."""
        if asset in self.replaced and as_of <= self.graph.moment.loaded_after:
            return self.replaced[asset]
        node = self.graph.nodes.get(asset)
        return node.code_version if node else None

    def date_failures(self, now: float) -> None:
        """Count the pauses after failures from now on, where the failures have later times.

        The clock was set back since, or the clock of the run's host is ahead. Without this, a partition would not be
        retried until the clock reaches that time.
        """
        for target, failure in self.failures.items():
            if failure.ended_at > now:
                self.failures[target] = replace(failure, ended_at=now)

    def _shorten_pauses(self, asset: str) -> None:
        for target, failure in self.failures.items():
            if target[0] == asset:
                self.failures[target] = run_retries.shortened(failure)

    def _stop(self, target: Target, run_id: str) -> None:
        runs = self.running.get(target, set())
        runs.discard(run_id)
        if not runs:
            self.running.pop(target, None)

    def _strange(self, target: Target) -> bool:
        problem = self.problem(target)
        if problem:
            self.set_aside[target] = problem
        return problem is not None

    def problem(self, target: Target) -> str | None:
        """Return why a partition does not belong to its asset, or no longer does; None if it belongs to the asset."""
        node = self.graph.nodes.get(target[0])
        found = called(node.problem, target[1]) if node else None
        return f"{target[1]!r}: {found.error}" if isinstance(found, Raised) else found
