"""Execution of a launched run. Not in the launcher's module, because the import takes a tenth of a second."""

from dagster._cli.api import execute_run_command

LOADED_BY_RUNS = (
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "dagster._core.storage.schedules.sqlite",
    "dagster._core.workspace.autodiscovery",
)
"""Modules of Dagster that a run imports before the user's code, and that `import dagster` does not import."""


def execute_run(arguments: str) -> None:
    """Execute a run in this process, like `dagster api execute_run`.

    Args:
        arguments: The arguments that were passed to `run_launcher.ProcessLauncher.start`.
    """
    execute_run_command.main([arguments], standalone_mode=False)
