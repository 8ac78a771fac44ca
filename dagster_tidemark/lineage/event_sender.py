"""Sending of events with OpenLineage's own client, in a bounded time.

Belongs here: time limits and pauses. Does not belong here: retries of one request, TLS, tokens and other transports:
the client has them, configured by OpenLineage's own variables.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from dagster_tidemark.errors import Terminal
from dagster_tidemark.pauses import growing_pause

_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_DYNAMIC = "OPENLINEAGE__TRANSPORT"
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
logger = logging.getLogger(__name__)


class LineageMissing(Terminal):
    """OpenLineage's variables are set, but the extra `lineage` is not installed."""


def is_configured() -> bool:
    """Return True if OpenLineage's own variables name a receiver."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return any(os.environ.get(name) for name in _VARIABLES) or any(name.startswith(_DYNAMIC) for name in os.environ)


def emit_with_client() -> Callable[[Any], Any]:
    """Return the function that sends an event to where the variables say.

    Raises:
        LineageMissing: the extra is not installed.
    """
    try:
        from openlineage.client import OpenLineageClient
    except ModuleNotFoundError as error:
        raise LineageMissing(
            "OpenLineage's variables are set, and its client is missing: pip install 'dagster-tidemark[lineage]', "
            "or set OPENLINEAGE_DISABLED=true"
        ) from error
    return OpenLineageClient().emit


class EventSender:
    """Sender that never takes longer than it may. Events that it did not send are given to it again.

    Args:
        emit: Sends one event. It may raise, or hang.
    """

    def __init__(self, emit: Callable[[Any], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit, self._clock = emit, clock
        self._thread: threading.Thread | None = None
        self._failures, self._paused_until = 0, 0.0
        self.fault = ""
        """Why the last events were not sent; empty if they were."""

    def is_ready(self) -> bool:
        """Return True if events may be sent now: none is under way, and the pause after a failure is over."""
        hangs = self._thread is not None and self._thread.is_alive()
        return not hangs and self._clock() >= self._paused_until

    def send(self, events: Sequence[Any], seconds: float) -> bool:
        """Send events in order. Return True if all were sent within the time."""
        outcome: list[str] = []

        def _all() -> None:
            try:
                for event in events:
                    self._emit(event)
                outcome.append("")
            except Exception as error:  # transports raise errors of any type
                outcome.append(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")

        self._thread = threading.Thread(target=_all, daemon=True)
        self._thread.start()
        self._thread.join(seconds)
        self._note(outcome[0] if outcome else f"no answer within {seconds:g} s")
        return not self.fault

    def _note(self, fault: str) -> None:
        if fault and not self.fault:
            logger.warning("OpenLineage's receiver takes no events, which wait until it does: %s", fault)
        if self.fault and not fault:
            logger.warning("OpenLineage's receiver takes events again")
        self.fault = fault
        self._failures = self._failures + 1 if fault else 0
        if fault:
            self._paused_until = self._clock() + growing_pause(self._failures, _FIRST_PAUSE, _LONGEST_PAUSE)
