"""Contract of the execution of a launched run."""

import json
from importlib import import_module

import pytest

from dagster_tidemark.dagster_internals import run_execution
from dagster_tidemark.dagster_internals.run_execution import LOADED_BY_RUNS


@pytest.mark.parametrize("module", LOADED_BY_RUNS)
def test_module_preloaded_for_runs_can_be_imported(module: str) -> None:
    assert import_module(module)


def test_run_arguments_of_an_unknown_type_raise_an_error() -> None:
    with pytest.raises(Exception, match="Nothing"):
        run_execution.execute_run(json.dumps({"__class__": "Nothing"}))
