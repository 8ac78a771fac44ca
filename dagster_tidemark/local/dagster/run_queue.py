"""The run queue of one host: Dagster's own, asked twice a second, and in which long-lived runs take no slot.

A run waits for the queue's next look, on average half its interval; Dagster's setting knows whole seconds only, and
with 0 its daemon spins. Does not belong here: which runs may start (dagster.yaml).
"""

from dagster import QueuedRunCoordinator
from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig

from dagster_tidemark.event_log.adapter import unfinished_shifts

_SECONDS = 0.5  # what Dagster's daemon sleeps at least


class PromptRunQueue(QueuedRunCoordinator):
    """Dagster's run queue with a shorter interval. Its place is dagster.yaml, with `max_concurrent_runs` in its config.

    A run that works at a stream for an hour is one more than `max_concurrent_runs`: tables have all of those.
    """

    shifts_take_no_slot = True

    @property
    def dequeue_interval_seconds(self) -> float:  # type: ignore[override]
        """Seconds between two looks of the daemon at the queue."""
        return _SECONDS

    def get_run_queue_config(self) -> RunQueueConfig:
        """The limits as they are now: the daemon asks before each look, and counts every run that has begun."""
        config = super().get_run_queue_config()
        return config._replace(max_concurrent_runs=config.max_concurrent_runs + len(unfinished_shifts(self._instance)))
