"""`tidemark prune` and the schedule `prune`, on an instance of SQLite files."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.definitions.reconstruct import ReconstructableRepository
from typer.testing import CliRunner

from dagster_tidemark import build_definitions, extend, location
from dagster_tidemark.cli.app import app
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.retention import choice
from dagster_tidemark.retention.prune import TooShort
from dagster_tidemark.sensors.retention_schedule import ON_A_LAPTOP
from dagster_tidemark.settings import load_settings
from tests.tidemark.retention.test_prune import day, orders, run_ids

HOME = "telemetry: {enabled: false}\n"


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setattr(choice, "_TAIL", 3)
    (tmp_path / "dagster.yaml").write_text(HOME)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path / "state"))
    with dg.DagsterInstance.get() as made:
        yield made


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    graph = dg.Definitions(orders()).resolve_asset_graph()
    monkeypatch.setattr(location, "asset_graph", lambda settings: graph)
    monkeypatch.setattr(location, "sensor_names", lambda settings: frozenset())

    def _said(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["prune", *words])
        assert result.exit_code == code, result.output
        return result.output

    return _said


def test_command_lists_first_and_deletes_with_apply(instance: dg.DagsterInstance, said: Callable[..., str]) -> None:
    day(instance)
    before = run_ids(instance)
    assert "nothing was deleted: --apply deletes" in said("--older-than", "2h")
    assert run_ids(instance) == before
    announced = json.loads(said("--older-than", "2h", "--json"))
    assert announced["applied"] is False and announced["amounts"]["runs"]["count"] > 3
    said("--older-than", "2h", "--apply")
    assert len(before - run_ids(instance)) == announced["amounts"]["runs"]["count"]
    assert all(of["count"] == 0 for of in json.loads(said("--older-than", "2h", "--json"))["amounts"].values())


@pytest.mark.parametrize("age", ["30", "h", "-1d", "0d", "30m", "30 minutes"])
def test_age_that_is_no_number_of_days_or_hours_is_refused(said: Callable[..., str], age: str) -> None:
    assert "expected a number of days or hours" in said(f"--older-than={age}", code=2)


def made(settings: Any, **more: Any) -> dg.Definitions:
    return build_definitions(settings, [], [], [], **more)


def test_laptop_prunes_hourly_and_production_only_if_asked() -> None:
    laptop = load_settings()
    production = laptop.model_copy(update={"environment": "production"})

    def schedules(defs: dg.Definitions) -> dict[str, str]:
        return {each.name: each.cron_schedule for each in defs.schedules or () if "prune" in each.name}  # type: ignore[union-attr, misc]

    assert timedelta(hours=30) == ON_A_LAPTOP
    assert schedules(made(laptop)) == {"prune": "17 * * * *"}
    assert schedules(made(production)) == {}
    assert schedules(made(production, retention=timedelta(days=30))) == {"prune": "47 3 * * *"}
    assert schedules(extend(dg.Definitions(), laptop)) == {}
    assert list(schedules(extend(dg.Definitions(), laptop, retention=timedelta(days=3)))) == ["tidemark_prune"]
    with pytest.raises(TooShort, match="retention=0:10:00"):
        made(laptop, retention=timedelta(minutes=10))


def test_schedules_run_deletes_old_runs_and_later_also_its_own(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefinitionsLoadContext, "_instance", None)  # `execute_job` sets it for the whole process
    simulation = day(instance)
    before = run_ids(instance)
    location = ReconstructableRepository.for_module("tests.tidemark.retention.pruning_location", "defs")
    job = location.get_reconstructable_job("prune")
    runs = []
    for hours in (0, 3, 6):
        simulation.clock.now = event_time.now() + hours * 3600
        with simulation.clock.frozen():
            result = dg.execute_job(job, instance)
        assert result.success
        runs.append(result.run_id)
    assert len(before & run_ids(instance)) <= 2
    assert runs[-1] in run_ids(instance)
