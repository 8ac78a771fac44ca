"""Contract of the run for which a launcher started a process."""

import base64
import zlib
from pathlib import Path

import click
import dagster as dg
import pytest
from dagster._cli.api import execute_run_command, execute_step_command, resume_run_command
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.test_utils import create_run_for_test
from dagster._grpc.types import ExecuteRunArgs, ResumeRunArgs

from dagster_tidemark.dagster_internals.run_worker import LaunchedRun, launched_run
from tests.live.waiting import eventually
from tests.tidemark.launched_runs import code_server, found, launched

LOCATION = """
import os, pathlib
import dagster as dg
from dagster_tidemark.dagster_internals.run_worker import launched_run

with launched_run() as launched, (pathlib.Path(__file__).parent / "loads").open("a") as loads:
    loads.write(f"{os.getpid()} {launched.run.run_id if launched else 'no run'}\\n")

@dg.op
def nothing(): ...

@dg.job(executor_def=dg.multiprocess_executor)
def some_job():
    nothing()

defs = dg.Definitions(jobs=[some_job])
"""


@pytest.fixture
def location(tmp_path: Path) -> Path:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (tmp_path / "location.py").write_text(LOCATION)
    return tmp_path / "location.py"


def test_only_the_process_that_a_code_server_starts_for_a_run_finds_the_run(location: Path) -> None:
    with (
        dg.DagsterInstance.from_config(str(location.parent)) as instance,
        code_server(instance, location) as server,
    ):
        run = launched(instance, server)

        def has_succeeded() -> None:
            assert found(instance, run.run_id).is_success

        eventually(has_succeeded, seconds=120)
        messages = "\n".join(entry.message for entry in instance.all_logs(run.run_id))
    found_by: dict[str, set[str]] = {}
    for line in (location.parent / "loads").read_text().splitlines():
        pid, _, name = line.partition(" ")
        found_by.setdefault(name, set()).add(pid)
    (worker,) = found_by.pop(run.run_id)
    assert f"Started process for run (pid: {worker})." in messages
    (others,) = found_by.values()
    assert len(others) == 2 and worker not in others  # the code server, and the process of the step


def test_process_of_a_launcher_command_finds_its_run(location: Path) -> None:
    origin = ReconstructableRepository.for_file(str(location), "defs").get_reconstructable_job("some_job")
    with dg.DagsterInstance.from_config(str(location.parent)) as instance:
        run = create_run_for_test(instance, job_name="some_job", status=dg.DagsterRunStatus.STARTING)
        given = (origin.get_python_origin(), run.run_id, instance.get_ref())
        executed, resumed = dg.serialize_value(ExecuteRunArgs(*given)), dg.serialize_value(ResumeRunArgs(*given))
        compressed = base64.b64encode(zlib.compress(executed.encode())).decode()
        for command, arguments, is_resumed in (
            (execute_run_command, [executed], False),
            (execute_run_command, ["--compressed-input-json", compressed], False),
            (resume_run_command, [resumed], True),
        ):
            assert of_command(command, arguments) == (run.run_id, is_resumed)
        assert of_command(execute_run_command, [executed.replace(run.run_id, "f" * 32)]) is None
        assert of_command(execute_step_command, [executed]) is None


def of_command(command: click.Command, arguments: list[str]) -> tuple[str, bool] | None:
    """Return what a process of a command finds while it loads the definitions."""
    with command.make_context("api", arguments), launched_run() as launched:
        assert launched is None or isinstance(launched, LaunchedRun)
        return None if launched is None else (launched.run.run_id, launched.is_resumed)


def test_other_processes_find_no_run() -> None:
    with launched_run() as launched:
        assert launched is None
