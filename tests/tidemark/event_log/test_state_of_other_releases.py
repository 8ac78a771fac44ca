"""Saved values that another release wrote, older or newer: no tick fails, and nothing is built twice or left out."""

import json
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine import overview, saved_overview
from dagster_tidemark.event_log import checkpoint, deployed
from dagster_tidemark.event_log.redefined import PartitionsDefinitions
from dagster_tidemark.event_log.run_process import note_code_server
from dagster_tidemark.maintenance import maintained_tables, maintenance_overview
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import (
    ASKED_IN_VAIN,
    CODE_SERVERS,
    DEPLOYED,
    DEPLOYED_CODE,
    HISTORY,
    HISTORY_PARTS,
    MAINTAINED,
    MAINTENANCE_DUE,
    OVERVIEW,
    PARTITIONS,
    SINCE,
)
from tests.sampling import sample
from tests.tidemark.toy_graph import DAYS, START, asset, lag, small, source, within

FORMS = (checkpoint.FORM_IN_PARTS, checkpoint._FORM)
BY_NINE = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=lag(hours=1).fail_window)  # type: ignore[attr-defined]
REPORT = [*small(), asset("marts/report", within("core/orders"), by=DAYS, freshness_policy=BY_NINE)]
TEXTS = {
    "no JSON": "v7;7;7",
    "another kind of JSON": "[7]",
    "other members": '{"version": 1, "form": 7, "core/orders": {"is": 7}, "marts/report": [7]}',
    "a newer checkpoint": checkpoint.packed({"form": 7, "assets": ["core/orders"]}),
    "an older checkpoint": checkpoint.packed({"form": 1, "assets": ["core/orders"]}),
}


def played() -> Simulation:
    """A morning of arrivals, and a saved checkpoint."""
    made = Simulation(REPORT, start=START, seed=3)
    for hour in range(12):
        made.arrive("raw/orders", f"2026-10-05-{hour:02}:00", at=made.time(hours=hour, minutes=50))
    made.run(hours=6)
    made._engine().follower.save(made.instance)
    return made


def replace_all(simulation: Simulation, text_of: Callable[[str, str], str | None]) -> int:
    """Replace saved values, restart the code server, and play the rest of two days. Return how many were replaced."""
    count = 0
    for key, text in instance_store.saved_under(simulation.instance, "tidemark/").items():
        if (new := text_of(key, text)) is not None:
            instance_store.save(simulation.instance, key, new)
            count += 1
    simulation.restart(at=simulation.clock.now)
    simulation.run(hours=36)
    return count


def runs(simulation: Simulation) -> list[tuple[Any, ...]]:
    return sorted((run.assets, run.partitions, run.succeeded) for run in simulation.runs)


@pytest.fixture(scope="module")
def undisturbed() -> list[tuple[Any, ...]]:
    simulation = played()
    replace_all(simulation, lambda key, text: None)
    assert len(simulation.runs_of("core/orders")) == 12 and simulation.runs_of("marts/report", "2026-10-05")
    return runs(simulation)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_values_of_another_release_are_ignored_and_the_same_runs_are_requested(
    text: str, undisturbed: list[tuple[Any, ...]]
) -> None:
    simulation = played()
    assert replace_all(simulation, lambda key, before: text) >= 3
    assert simulation.failed_ticks == []
    assert runs(simulation) == undisturbed
    assert simulation.standings()["marts/report"].verdict == "met"


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda head: head.pop(name)


def more_columns(head: dict[str, Any]) -> None:
    for row in head.get("rows", ()):
        row.insert(3, "new")


def fewer_columns(head: dict[str, Any]) -> None:
    for row in head.get("rows", ()):
        row.pop()


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no assets": without("assets"),
    "no reader": without("reader"),
    "no open runs": without("open_runs"),
    "no checks": without("checks"),
    "reader without a position": lambda head: head["reader"].pop("after"),
    "reader without shifts": lambda head: head["reader"].pop("shifts"),
    "reader of another kind": lambda head: head.update(reader=[1, 2]),
    "longer tail": lambda head: head["reader"].update(tail=[[1, "mark", "more"]]),
    "rest of another kind": lambda head: head["rest"].update(unread=[[1]], touched=[[1]]),
    "parts of another kind": lambda head: head.update(parts={"core/orders": 3}),
    "more in a row": more_columns,
    "less in a row": fewer_columns,
    "no rows": lambda head: head.pop("rows", None),
}


# Every member is read in the same way; a part is another text.
@pytest.mark.parametrize(
    "name",
    sample(CHANGES, "no assets", "reader without a position", "rest of another kind", "more in a row", "no rows"),
)
def test_checkpoint_with_this_format_and_other_members_is_read_again_from_the_log(
    name: str, undisturbed: list[tuple[Any, ...]]
) -> None:
    of_parts = name in ("more in a row", "less in a row", "no rows")

    def changed(key: str, text: str) -> str | None:
        form = next((form for form in FORMS if checkpoint.unpacked(text, form)), None)
        state = None if form is None else checkpoint.unpacked(text, form)
        if state is None or key.startswith(HISTORY_PARTS) != of_parts:
            return None
        CHANGES[name](state)
        return checkpoint.packed(state)

    simulation = played()
    assert replace_all(simulation, changed) >= 1
    assert simulation.failed_ticks == []
    assert runs(simulation) == undisturbed


def test_head_with_other_members_counts_as_none_in_searches_of_all_code_locations() -> None:
    [text] = instance_store.saved_under(played().instance, HISTORY).values()
    whole = checkpoint.any_head(text)
    assert whole is not None
    for name in ("no reader", "no open runs", "reader without a position", "longer tail", "rest of another kind"):
        head = json.loads(json.dumps(whole))
        CHANGES[name](head)
        assert checkpoint.any_head(checkpoint.packed(head)) is None, name


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_each_saved_value_of_another_release_counts_as_none(text: str) -> None:
    graph = graph_of(dg.Definitions(REPORT).resolve_asset_graph())
    with dg.DagsterInstance.ephemeral() as instance:
        keys = (
            *(f"{HISTORY}{asset}" for asset in graph.nodes),
            *(f"{DEPLOYED}here/__repository__", f"{DEPLOYED_CODE}here/__repository__"),
            *(f"{ASKED_IN_VAIN}there/__repository__", f"{OVERVIEW}here", f"{MAINTENANCE_DUE}here"),
            *(f"{MAINTAINED}here/core.orders", f"{PARTITIONS}here", SINCE, CODE_SERVERS),
        )
        for key in keys:
            instance_store.save(instance, key, text)
        assert deployed.kept_code(instance, ["core/orders"]) == {}
        assert deployed.kept(instance, graph).keys() <= {"core/orders"}
        assert deployed.failed_requests(instance, graph) == ({}, {})
        deployed.keep_failed_requests(instance, ("here", "__repository__"), {}, {}, ["core/orders"])
        assert saved_overview.kept(instance, "here") is None
        assert maintenance_overview.kept_overview(instance, "here") is None
        [upkeep] = maintained_tables.saved_upkeep(instance, "here", ["core.orders"]).values()
        assert not upkeep.last and upkeep.searched is None
        assert PartitionsDefinitions.of(instance, "here", graph).since.keys() >= {"core/orders"}
        assert overview.since_of(instance, graph, 7.0, read_only=True).began == 7.0
        note_code_server(instance)


def test_known_part_of_a_longer_record_of_partitions_is_kept() -> None:
    graph = graph_of(dg.Definitions([source("orders"), asset("core/orders", "raw/orders")]).resolve_asset_graph())
    with dg.DagsterInstance.ephemeral() as instance:
        PartitionsDefinitions.of(instance, "here", graph).keep(instance)
        said = json.loads(instance_store.saved(instance, f"{PARTITIONS}here") or "")
        before = PartitionsDefinitions.of(instance, "here", graph)
        instance_store.save(instance, f"{PARTITIONS}here", json.dumps({k: [*v, "more"] for k, v in said.items()}))
        assert PartitionsDefinitions.of(instance, "here", graph) == before
