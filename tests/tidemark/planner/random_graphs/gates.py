"""Gates that were open: runs that read a write that no passed check had seen.

A check has seen a write if its evaluation began after it: a slow check reports late, and out of order. Judged by the
writes, reads and evaluations of the simulated runs, without the planner.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dagster_tidemark.simulation.simulator import Run
from dagster_tidemark.tags import REQUESTED_BY
from tests.tidemark.planner.random_graphs.facts import Build, Facts
from tests.tidemark.planner.random_graphs.play import check_seconds
from tests.tidemark.planner.random_graphs.shapes import Target

CHECK = "complete"


@dataclass(frozen=True)
class _Result:
    """A result of the check of a table: by a run, or by a person (`run` is None).

    Args:
        began: When its evaluation began. It says nothing about later writes.
    """

    began: float
    at: float
    passed: bool
    run: Run | None


@dataclass
class _Gate:
    """The results of the check of one table."""

    facts: Facts
    key: str

    @cached_property
    def results(self) -> list[_Result]:
        day = self.facts.day
        found = [
            _Result(run.evaluating[check], *result, run)
            for run in day.simulation.runs
            for check, result in run.results.items()
            if check.asset_key.to_user_string() == self.key
        ]
        by_people = [e for e in day.world.events if e.what == "evaluate_check" and e.of[0] == self.key]
        for event in by_people:
            began = day.simulation.time(seconds=event.at)
            found.append(_Result(began, began + check_seconds(day.world, event), event.of[1], None))
        return sorted(found, key=lambda result: result.at)

    @cached_property
    def builds(self) -> list[Build]:
        found = [build for target, of in self.facts.builds.items() if target[0] == self.key for build in of]
        return sorted(found, key=lambda build: build.at)

    def said(self, build: Build, until: float) -> bool | None:
        """Return the check's result on a build, as of a time; None if it has none."""
        found: bool | None = None
        for result in self.results:
            if not build.at <= result.began <= result.at <= until:
                continue
            own = result.run is not None and self.key in result.run.assets
            if own and result.run is not build.run:
                continue
            # Evaluated alone, a pass is about all of the table. Dagster notes a failure at its latest build.
            latest = max((b for b in self.builds if b.at <= result.at), key=lambda b: b.at).run
            if own or result.passed or found is None or latest is build.run:
                found = result.passed
        return found


def open_gates(facts: Facts) -> Iterator[str]:
    """Yield the first open gate of each reader."""
    tables = facts.day.world.tables
    gates = {table.key: _Gate(facts, table.key) for table in tables if table.check and not table.outside}
    for table in tables:
        if (
            table.outside
            or table.condition not in ("derived", "nightly")
            or not any(read.key in gates for read in table.reads)
        ):
            continue
        found = next(_opened(facts, gates, table.key), None)
        if found:
            yield found


def _opened(facts: Facts, gates: dict[str, _Gate], key: str) -> Iterator[str]:
    for run in facts.day.simulation.runs:
        if key not in run.assets or key not in run.began or REQUESTED_BY not in run.tags:
            continue
        for partition in run.of[key]:
            for source in run.saw.get((key, partition), {}):
                gate = gates.get(source[0])
                if gate is not None and source not in run.targets and (wrong := _wrong(facts, gate, source, run, key)):
                    yield f"open gate: {(key, partition)} was built on {source}, {wrong}"


def _wrong(facts: Facts, gate: _Gate, source: Target, run: Run, reader: str) -> str:
    for until in (run.created_at, run.began[reader]):
        build = facts.build(source, until)
        if build is None or facts.is_wiped(source, until):
            continue
        if until > run.created_at and REQUESTED_BY not in build.run.tags:
            continue  # a person wrote it after the planner had requested the reader
        said = gate.said(build, until)
        if not said:
            when = "requested" if until == run.created_at else "read"
            hours = [f"{(at - facts.day.simulation.time()) / 3600:.4f}" for at in (build.at, until)]
            result = "gave no result" if said is None else "failed"
            return f"built at {hours[0]} h, of which the check {result} until it was {when} at {hours[1]} h"
    return ""
