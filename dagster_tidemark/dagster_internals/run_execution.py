"""Execution of a launched run. Apart from the launcher, because the import takes a tenth of a second."""

from dagster._cli.api import execute_run_command

LOADED_BY_RUNS = (
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "dagster._core.storage.schedules.sqlite",
    "dagster._core.workspace.autodiscovery",
)
"""Modules of Dagster that a run loads before its own code, and that `import dagster` does not load."""


def execute_run(arguments: str) -> None:
    """Execute a run in this process, like `dagster api execute_run`.

    Args:
        arguments: Those of `run_launcher.ProcessLauncher.start`.
    """
    execute_run_command.main([arguments], standalone_mode=False)
