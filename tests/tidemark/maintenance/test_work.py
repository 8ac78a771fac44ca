"""A run of maintenance without Spark: what it records of an action that ends it."""

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from dagster import DagsterInstance

from dagster_tidemark.lakehouse.maintenance import procedures
from dagster_tidemark.lakehouse.maintenance.due import Action, LastAction, MaintenancePolicy
from dagster_tidemark.lakehouse.maintenance.maintenance_table import NOTHING, ActionResult
from dagster_tidemark.lakehouse.session import SparkLost, SparkUnreachable
from dagster_tidemark.maintenance import job
from dagster_tidemark.maintenance.job import MaintenanceWork
from dagster_tidemark.maintenance.maintained_tables import TableUpkeep, save_upkeep, saved_upkeep
from dagster_tidemark.settings import Settings
from tests.tidemark.maintenance.conftest import commits, table

BAD, GOOD = table("core.bad"), table("core.good")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Action]]]:
    """The actions so far. Those on core.bad kill Spark."""
    found: list[tuple[str, Action]] = []

    def perform(_: Any, of: Any, __: Any, action: Action, *___: Any, **____: Any) -> ActionResult:
        found.append((of.name, action))
        if of is BAD:
            raise SparkLost("Spark died")
        return ActionResult(NOTHING)

    monkeypatch.setattr(procedures, "perform", perform)
    monkeypatch.setattr(job, "naming_the_server", lambda _: nullcontext())
    monkeypatch.setattr(MaintenanceWork, "spark", None)
    yield found


def work(instance: DagsterInstance, settings: Settings) -> MaintenanceWork:
    tables = {BAD.name: BAD, GOOD.name: GOOD}
    return MaintenanceWork(
        instance, settings, tables, MaintenancePolicy().at_once(), "a run", logging.getLogger(__name__)
    )


def test_action_that_kills_spark_rests_so_that_other_tables_are_maintained(
    settings: Settings, instance: DagsterInstance, called: list[tuple[str, Action]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for of in (BAD, GOOD):
        commits(settings, of, 6)
    deaths = 0
    for _ in range(8):
        try:
            work(instance, settings).work([BAD.name, GOOD.name])
        except SparkLost:
            deaths += 1
    assert [action for name, action in called if name == BAD.name] == list(
        dict.fromkeys(action for name, action in called if name == BAD.name)
    ), "each kills Spark once"
    assert deaths <= 3 and any(name == GOOD.name for name, _ in called)
    last = saved_upkeep(instance, settings.code_location, [BAD.name])[BAD.name].last[Action.COMPACT]
    assert (
        last.failures == 1 and last.why == "its run ended before it did" and last.rests_until(time.time()) > time.time()
    )


def test_server_that_cannot_be_reached_is_no_fault_of_a_table(
    settings: Settings, instance: DagsterInstance, called: list[tuple[str, Action]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> ActionResult:
        raise SparkUnreachable("sc://nowhere", "no server")

    monkeypatch.setattr(procedures, "perform", refuse)
    commits(settings, GOOD, 6)
    before = TableUpkeep({Action.MANIFESTS: LastAction(1.0)})
    save_upkeep(instance, settings.code_location, GOOD.name, before)
    with pytest.raises(SparkUnreachable):
        work(instance, settings).work([GOOD.name])
    assert saved_upkeep(instance, settings.code_location, [GOOD.name]) == {GOOD.name: before}
