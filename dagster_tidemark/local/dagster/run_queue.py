"""The run queue of one host: Dagster's own, polled twice a second. Long-lived runs take no slot in it.

A run waits until the daemon next reads the queue, half the interval on average. Dagster's setting takes whole seconds
only, and with 0 the daemon never pauses. Does not belong here: the limits of concurrent runs (dagster.yaml).
"""

from dagster import QueuedRunCoordinator

from dagster_tidemark.dagster_internals.run_launcher import RunQueueConfig
from dagster_tidemark.dagster_internals.run_storage import unfinished_shifts

_SECONDS = 0.5  # shortest sleep of Dagster's daemon


class PromptRunQueue(QueuedRunCoordinator):
    """Dagster's run queue with a shorter interval. Configured in dagster.yaml, with `max_concurrent_runs`.

    A stream's run, which lasts an hour, does not count towards `max_concurrent_runs`: tables can use all slots.
    """

    shifts_take_no_slot = True

    @property
    def dequeue_interval_seconds(self) -> float:  # type: ignore[override]
        """Seconds between two reads of the queue by the daemon."""
        return _SECONDS

    def get_run_queue_config(self) -> RunQueueConfig:
        """Return the present limits. The daemon reads them each time, and counts every run that has begun."""
        config = super().get_run_queue_config()
        return config._replace(max_concurrent_runs=config.max_concurrent_runs + len(unfinished_shifts(self._instance)))
