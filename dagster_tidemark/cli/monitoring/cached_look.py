"""Looks at services that may fail or hang: cached, time-limited, one at a time.

Belongs here: threads and times. Does not belong here: what a look reads (`platform_state`, `table_figures`).
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dagster_tidemark.errors import TidemarkError

logger = logging.getLogger(__name__)
T = TypeVar("T")
_HANGS_AFTER = 20.0  # a large deployment may need some seconds
_ABANDONED_SECONDS = 60.0
_RETRIED_AFTER = 5.0
_MOST_ABANDONED = 3


@dataclass(frozen=True)
class LookResult(Generic[T]):
    """The last completed look, and the fault that has prevented looks since then.

    Args:
        value: The result of the last completed look; None if none was completed.
        at: Time when that look began (Unix seconds).
        seconds: Its duration.
        failing_since: Time since which looks fail or hang; None if the last look was completed.
        said: The fault in words; empty if there is none.
    """

    value: T | None
    at: float | None
    seconds: float | None
    failing_since: float | None
    said: str

    def fresh(self, now: float, seconds: float) -> T | None:
        """Return the value if its look began at most some seconds ago, else None."""
        return self.value if self.at is not None and now - self.at <= seconds else None


class CachedLook(Generic[T]):
    """A function that is called in its own thread, at most once at a time.

    A call that hangs is abandoned after a minute or more, so that a new one can find the service well again. At most
    three calls are abandoned at a time.

    Args:
        look: Reads the figures. The first line of its error becomes the fault; of other libraries the class alone.
        every: Seconds during which a look is not repeated. A failed look is repeated after five seconds.
        limit: Longest time that `result` waits.
        hangs_after: Seconds after which a call counts as a fault. A call is not abandoned before.
    """

    def __init__(
        self,
        look: Callable[[], T],
        *,
        every: float,
        limit: float,
        hangs_after: float = _HANGS_AFTER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._look, self._every, self._limit, self._clock = look, every, limit, clock
        self._hangs_after, self._abandoned_after = hangs_after, max(_ABANDONED_SECONDS, hangs_after)
        self._changed = threading.Condition()
        self._running: list[float] = []
        self._ended_at: float | None = None
        self._result = LookResult[T](None, None, None, None, "")

    def result(self) -> LookResult[T]:
        """Return the last look, after a new one if it is due and ends within the limit."""
        with self._changed:
            if self._is_due():
                self._start()
            self._changed.wait_for(lambda: not self._pending(), timeout=self._limit)
            return self._with_hanging()

    def _pending(self) -> list[float]:
        """Return the start of each running call, without calls that a later one has overtaken."""
        return [began for began in self._running if self._ended_at is None or began >= self._ended_at]

    def _is_due(self) -> bool:
        now = self._clock()
        if len(self._running) > _MOST_ABANDONED:
            return False
        if pending := self._pending():
            return now - pending[-1] > self._abandoned_after
        is_failing = self._result.failing_since is not None
        pause = min(self._every, _RETRIED_AFTER) if is_failing else self._every
        return self._ended_at is None or now - self._ended_at >= pause

    def _start(self) -> None:
        began = self._clock()
        self._running.append(began)
        threading.Thread(target=self._attempt, args=(began,), daemon=True).start()

    def _attempt(self, began: float) -> None:
        value, said = None, ""
        try:
            value = self._look()
        except Exception as error:  # drivers and clients raise errors of any type
            # An error of another library may contain a login, and /healthz shows the text.
            said = str(error).partition("\n")[0] if isinstance(error, TidemarkError) else type(error).__name__
            if said != self._result.said:
                logger.warning("a look failed: %s", said, exc_info=not isinstance(error, TidemarkError))
        with self._changed:
            now = self._clock()
            self._running.remove(began)
            is_late = self._ended_at is not None and began < self._ended_at  # a newer attempt has ended
            if not is_late:
                self._ended_at = now
                before = self._result
                if said:
                    since = before.failing_since if before.failing_since is not None else began
                    self._result = LookResult(before.value, before.at, before.seconds, since, said)
                else:
                    self._result = LookResult(value, began, now - began, None, "")
            self._changed.notify_all()

    def _with_hanging(self) -> LookResult[T]:
        """Return the result. A call that has been running for too long counts as a fault."""
        now, last = self._clock(), self._result
        since = min(self._pending(), default=now)
        if now - since < self._hangs_after or last.failing_since is not None:
            return last
        return LookResult(last.value, last.at, last.seconds, since, f"no answer for {now - since:.0f} s")
