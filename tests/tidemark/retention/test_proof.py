"""The proof of a prune while others write to the log."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.event_log import journal
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.history import History
from dagster_tidemark.retention import proof
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.events import events_after
from tests.tidemark.retention.histories import pruned
from tests.tidemark.retention.test_prune import CORE, HOUR, RAW, TWO_HOURS


def observe(instance: dg.DagsterInstance, version: str) -> None:
    tags = {"dagster/data_version": version}
    instance.report_runless_asset_event(dg.AssetObservation(RAW.split("/"), partition=HOUR, tags=tags))


def test_events_that_others_write_during_the_proof_make_no_difference(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, written = proof._read, list[str]()

    def read_and_write(instance: dg.DagsterInstance, *args: Any, **options: Any) -> LogConsumer:
        found = read(instance, *args, **options)
        written.append("")
        observe(instance, f"v{len(written)}")
        return found

    monkeypatch.setattr(proof, "_read", read_and_write)
    found = pruned(simulation, TWO_HOURS)
    assert found.applied and found.unproven == () and found.amounts["runs"].count > 3
    assert len(written) >= 4


def test_runs_that_end_during_the_proof_have_not_ended_for_any_reader(simulation: Simulation) -> None:
    instance = simulation.instance
    graph = planner_graph.graph_of(simulation.asset_graph)
    run, after = simulation.runs_of(CORE)[-1].id, simulation.runs_of(CORE)[-2].id
    last = max(event.id for event in events_after(instance, 0) if event.run_id == run)
    with simulation.clock.frozen():
        moment = proof._Moment.of(instance, graph)
        assert moment.facts_of(instance, [run])[run].ended_at is not None
        earlier = proof._Moment(moment.now, last - 1, frozenset(), last - 1)
        found = earlier.facts_of(instance, [run, after])
    assert found[run].ended_at is None and found[after].ended_at is not None


def test_note_of_another_process_does_not_replace_a_newer_result(simulation: Simulation) -> None:
    instance, target = simulation.instance, (RAW, HOUR)

    def reader() -> LogConsumer:
        made = LogConsumer(History(planner_graph.graph_of(simulation.asset_graph)), "tidemark/history/x")
        made.caught_up, made.keeps = True, False
        return made

    with simulation.clock.frozen():
        other, own = reader(), reader()
        other.read(instance, lambda: False)
        observe(instance, "newer")
        own.read(instance, lambda: False)
        own.intake.touched.add(target)
        other.write_note(instance, [target])
        own.read(instance, lambda: False)
        assert target in own.intake.touched, "no note has the newer result"
        other.read(instance, lambda: False)
        other.write_note(instance, [target])
        own.read(instance, lambda: False)
    assert target not in own.intake.touched
    assert journal.up_to_date(own.history, {"rows": []}) == set()
