"""Contract of the reason why definitions are loaded."""

import sys
from pathlib import Path

import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)


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
