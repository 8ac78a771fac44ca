"""The executor of every run of a code location: Dagster's in-process executor, which first records the run's process.

Runs of assets fail at once if their process has replaced code (`event_log.standby`).

A step runs as a Spark job on a remote server, so a separate process for the step would only add its startup time. Does
not belong here: the content of the record (`event_log.run_process`).
"""

import atexit
import gc
from collections.abc import Iterator
from functools import cache
from typing import Any

import dagster as dg

from dagster_tidemark.event_log import run_process
from dagster_tidemark.event_log.standby import ReplacedCode, has_replaced_code
from dagster_tidemark.json_logs import about_this_process
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import STREAM


class _Recorded(dg.Executor):
    """An executor that records the process of each run before its first step.

    Args:
        settings: The settings of the code location, to refuse runs with replaced code; None: all runs are executed.
    """

    def __init__(self, inner: dg.Executor, settings: Settings | None) -> None:
        self._inner, self._settings = inner, settings

    @property
    def retries(self) -> Any:
        return self._inner.retries

    @property
    def step_dependency_config(self) -> Any:
        return self._inner.step_dependency_config

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[Any]:
        run = plan_context.dagster_run
        run_process.record(plan_context.instance, run)
        if self._settings is not None and has_replaced_code(plan_context.instance, run, self._settings):
            raise ReplacedCode
        assets = [key.to_user_string() for key in run.asset_selection or ()]
        about_this_process(
            run_id=run.run_id,
            asset=assets[0] if len(assets) == 1 else None,
            partition=run.tags.get("dagster/partition"),
            stream=run.tags.get(STREAM),
        )
        end_without_collection()
        yield from self._inner.execute(plan_context, execution_plan)


@cache
def end_without_collection() -> None:
    """Leave out Python's garbage collection when this process exits.

    With Dagster and a code location loaded, this collection takes more than a second of a processor. The memory goes
    back to the system in any case.
    """
    atexit.register(gc.freeze)


@cache
def executor_of(settings: Settings | None = None) -> dg.ExecutorDefinition:
    """Return Dagster's in-process executor, with the same configuration, that records the process of each run.

    Args:
        settings: The settings of the code location, to refuse runs with replaced code; None: all runs are executed.
    """
    schema: Any = dg.in_process_executor.config_schema

    def create(context: dg.InitExecutorContext) -> dg.Executor:
        inner = dg.in_process_executor.executor_creation_fn
        assert inner is not None
        return _Recorded(inner(context), settings)

    return dg.ExecutorDefinition(
        name=dg.in_process_executor.name,
        config_schema=schema,
        executor_creation_fn=create,
        description=dg.in_process_executor.description,
    )


recorded_in_process = executor_of()
"""The executor of jobs that build no asset."""
