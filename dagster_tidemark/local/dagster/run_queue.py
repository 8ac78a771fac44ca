"""The name of the run queue in a `dagster.yaml` of release 0.2. The next release removes it."""

import logging
from typing import Any

from dagster import QueuedRunCoordinator

_logger = logging.getLogger(__name__)


class PromptRunQueue(QueuedRunCoordinator):
    """Dagster's own run queue, under its former name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _logger.warning(
            "dagster.yaml names PromptRunQueue, which the next release removes: name `module: dagster`, `class: "
            "QueuedRunCoordinator` with `dequeue_interval_seconds: 1`, and give each shift a slot of "
            "concurrency.runs.max_concurrent_runs"
        )
