"""Runs whose process has code that a newer code server has replaced.

During a deploy, Dagster's default launcher may start a run with the old code, even if the new code server requested it.
Such a run would build partitions back to old code. Code that no server has loaded, such as edited files on a laptop, is
not replaced code.

Belongs here: the check at the start of a run. Does not belong here: the record of replaced code (`event_log.standby`).
"""

from dagster import DagsterInstance, DagsterRun

from dagster_tidemark.dagster_internals import instance_store, run_storage
from dagster_tidemark.errors import Transient
from dagster_tidemark.event_log.loaded_code import code_of
from dagster_tidemark.event_log.standby import Record, key_of
from dagster_tidemark.settings import Settings


class ReplacedCode(Transient):
    """Error of a run that was started with the code of a replaced code server. A new run has the new code."""

    def __init__(self) -> None:
        super().__init__(
            "expected the deployed code, found the code of a code server that a newer one has replaced: this run "
            "builds nothing, and its work is requested again; end the old code server if it still runs, or reload the "
            "code location if its files have changed"
        )


def has_replaced_code(instance: DagsterInstance, run: DagsterRun, settings: Settings) -> bool:
    """Return True if this process, which executes a run, has replaced code."""
    record = Record.read(instance_store.saved(instance, key_of(settings, run_storage.location_of(run) or "")))
    return bool(record.replaced) and code_of(settings) in record.replaced  # the hash reads every file
