"""The run queue of one host: Dagster's own, asked twice a second.

A run waits for the queue's next look, on average half its interval; Dagster's setting knows whole seconds only, and
with 0 its daemon spins. Does not belong here: which runs may start (dagster.yaml).
"""

from dagster import QueuedRunCoordinator

_SECONDS = 0.5  # what Dagster's daemon sleeps at least


class PromptRunQueue(QueuedRunCoordinator):
    """Dagster's run queue with a shorter interval. Its place is dagster.yaml."""

    @property
    def dequeue_interval_seconds(self) -> float:  # type: ignore[override]
        """Seconds between two looks of the daemon at the queue."""
        return _SECONDS
