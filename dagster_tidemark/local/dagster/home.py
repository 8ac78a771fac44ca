"""The Dagster home of the platform.

Belongs here: creating it, and clearing up after a stop. Does not belong here: definitions, and the instance's
configuration (the project's dagster.yaml, linked into the home).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import dagster as dg

from dagster_tidemark import scaffold
from dagster_tidemark.dagster_internals.run_storage import mark_as_lost
from dagster_tidemark.event_log.run_process import process_of
from dagster_tidemark.settings import Settings

_LIVE = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
_LIVE.append(dg.DagsterRunStatus.CANCELING)


@contextmanager
def opened_home(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """Open the instance of the home. Create the home, or upgrade it to this Dagster's version, if necessary.

    Only one process may do this: two that first open a fresh SQLite home at the same time break it.
    """
    home = settings.platform_home
    home.mkdir(parents=True, exist_ok=True)
    is_fresh = not (home / "storage").exists()
    _link(home / "dagster.yaml", _configuration(settings))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        stamp = home / ".version"
        if not stamp.exists() or stamp.read_text() != dg.__version__:
            if not is_fresh:
                instance.upgrade()  # an older Dagster created it
            stamp.write_text(dg.__version__)
        yield instance


def end_unfinished_runs(instance: dg.DagsterInstance) -> int:
    """Mark runs whose process is gone as canceled. Queued runs stay: they will be started.

    No daemon may be running. Without this, a killed run would count as in progress for ever.
    """
    runs = instance.get_runs(filters=dg.RunsFilter(statuses=_LIVE))
    dead = [run for run in runs if process_of(run) is None]
    for run in dead:
        if run.status is not dg.DagsterRunStatus.CANCELING:
            # Distinguishes it from a run that a person canceled: its partitions should still be built.
            mark_as_lost(instance, run.run_id)
        instance.report_run_canceled(run, "The platform stopped while this run was in progress.")
    return len(dead)


def _configuration(settings: Settings) -> Path:
    """Return the instance's configuration: the project's dagster.yaml, else that of a new project."""
    own = settings.root / "dagster.yaml"
    return own if own.exists() else Path(str(files(scaffold) / "project" / "dagster.yaml"))


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)
