"""An existing location with the executor that `THEIR_EXECUTOR` names, extended by one asset without a table.

An asset writes its process id to `HERE/<name> works` and works until the file `HERE/<name> may end` exists. While the
file `HERE/slowly` exists, a run's process does not get beyond its imports. Belongs here: what the location declares.
Does not belong here: which process is killed (`tests.proof.test_dead_runs`).
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor

from dagster_tidemark import extend, load_settings
from dagster_tidemark.dagster_internals.code_server import is_loaded_for_a_run

HERE = Path(os.environ["DAGSTER_HOME"])

if is_loaded_for_a_run() and (HERE / "slowly").exists():
    (HERE / "importing").write_text(str(os.getpid()))
    time.sleep(600)


def working(name: str, **options: Any) -> dg.AssetsDefinition:
    """Return an asset that reads the root and works until it may end."""

    @dg.asset(name=name, deps=["root"], **options)
    def asset() -> None:
        (HERE / f"{name} works").write_text(str(os.getpid()))
        until = time.monotonic() + 900
        while not (HERE / f"{name} may end").exists() and time.monotonic() < until:
            time.sleep(0.1)

    return asset


class Custom(dg.Executor):
    """An executor of the location's own."""

    retries = RetryMode.DISABLED

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[Any]:
        """Execute the steps in this process."""
        yield from InProcessExecutor(self.retries).execute(plan_context, execution_plan)


@dg.executor(name="custom")
def custom(_: dg.InitExecutorContext) -> dg.Executor:
    """Return the location's own executor."""
    return Custom()


EXECUTORS = {"none": None, "in_process": dg.in_process_executor, "custom": custom}
ON_ITS_OWN = dg.AutomationConditionSensorDefinition(
    "theirs", target=["theirs"], default_status=dg.DefaultSensorStatus.RUNNING
)


def _theirs() -> dg.Definitions:
    # In a function: Dagster refuses a module with two Definitions.
    return dg.Definitions(
        assets=[dg.AssetSpec("root"), working("theirs", automation_condition=dg.AutomationCondition.eager())],
        sensors=[ON_ITS_OWN],
        executor=EXECUTORS[os.environ["THEIR_EXECUTOR"]],
    )


defs = extend(_theirs(), load_settings(), assets=[working("ours", tags={"tidemark/pace": "asap"}, code_version="1")])
