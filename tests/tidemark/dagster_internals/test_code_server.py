"""Contract of the code server: why it loads code, its thread that notices ended run processes, and its answers."""

import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.test_utils import create_run_for_test
from dagster._grpc import server

from dagster_tidemark.dagster_internals import code_server


def test_code_server_that_does_not_answer_leaves_open_if_it_has_a_run() -> None:
    nobody = json.dumps({"host": "127.0.0.1", "port": 9})
    assert code_server.is_held_by_its_server(dg.DagsterRun("job", tags={GRPC_INFO_TAG: nobody}), seconds=2) is None


def test_ended_runs_are_reported_after_an_outage_of_the_storage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = server.DagsterApiServer._check_for_orphaned_runs
    monkeypatch.setattr(server.DagsterApiServer, "_check_for_orphaned_runs", before)  # restored after the test
    code_server.keep_watching_runs()
    watching = server.DagsterApiServer._check_for_orphaned_runs
    code_server.keep_watching_runs()
    assert server.DagsterApiServer._check_for_orphaned_runs is watching is not before
    with dg.instance_for_test() as instance:
        run = create_run_for_test(instance, job_name="job", status=dg.DagsterRunStatus.STARTING)
        ended: Any = SimpleNamespace(is_alive=lambda: False, exitcode=1)
        held: Any = object.__new__(server.DagsterApiServer)
        held._execution_lock, held._server_termination_event = threading.RLock(), threading.Event()
        held._executions, held._termination_events = {run.run_id: (ended, instance.get_ref())}, {run.run_id: None}
        held._termination_times = {}
        held._shutdown_once_executions_finish_event = threading.Event()
        outage = iter([OSError("unreachable"), OSError("unreachable")])
        opened = dg.DagsterInstance.from_ref

        def opened_later(ref: Any) -> dg.DagsterInstance:
            if error := next(outage, None):
                raise error
            return opened(ref)

        monkeypatch.setattr(dg.DagsterInstance, "from_ref", opened_later)
        monkeypatch.setattr(server, "CLEANUP_TICK", 0.05)
        thread = threading.Thread(target=held._cleanup_thread, daemon=True)
        thread.start()
        deadline = time.monotonic() + 20
        while held._executions and time.monotonic() < deadline:
            time.sleep(0.05)
        held._server_termination_event.set()
        thread.join(10)
        assert not held._executions
        found = instance.get_run_by_id(run.run_id)
        assert found is not None and found.status is dg.DagsterRunStatus.FAILURE
    assert [record.getMessage() for record in caplog.records if record.name == code_server.__name__] == [
        "ended run processes cannot be reported now, the server tries again: unreachable"
    ]


def test_code_loading_distinguishes_a_run_from_a_code_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import dagster as dg\nfrom dagster_tidemark.dagster_internals import code_server\n"
    text += "AS_A_RUN, BY_A_SERVER = code_server.is_loaded_for_a_run(), code_server.is_loaded_by_a_code_server()\n"
    text += "defs = dg.Definitions()\n"
    loads = {"loaded_by_a_run": reconstruct_repository_def_from_pointer}
    loads |= {"loaded_by_a_server": initialize_repository_def_from_pointer}
    try:
        for name, load in loads.items():
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.setattr(DefinitionsLoadContext, "_instance", None)
            load(CodePointer.from_module(name, "defs", str(tmp_path)))
        found = {name: (sys.modules[name].AS_A_RUN, sys.modules[name].BY_A_SERVER) for name in loads}
    finally:
        for name in loads:
            sys.modules.pop(name, None)
    assert found == {"loaded_by_a_run": (True, False), "loaded_by_a_server": (False, True)}
