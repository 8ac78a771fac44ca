"""Runs that evaluate only blocking checks: which required runs are requested now, and which are delayed.

Belongs here: the attempts of this process. Does not belong here: which checks are needed (`planner.waiting`), and how a
run is requested (`engine.run_requests`).
"""

from dataclasses import dataclass, field

from dagster_tidemark.planner import run_retries
from dagster_tidemark.planner.decisions import CheckRequest, Plan
from dagster_tidemark.sources.feed import Partition


@dataclass
class CheckAttempts:
    """Requested runs of blocking checks: the number of attempts, the end of the pause, and the write's storage id."""

    asked: dict[tuple[str, str, Partition], tuple[int, float, int]] = field(default_factory=dict)

    def due(self, plan: Plan) -> list[CheckRequest]:
        """Return the requests of a plan whose pause is over."""
        return [request for request in plan.checks if self._next_try(request, plan.now) <= plan.now]

    def take(self, plan: Plan) -> list[CheckRequest]:
        """Return the requests of a plan whose pause is over, and count an attempt for each."""
        found = self.due(plan)
        if not plan.catching_up:
            needed = {_key(request) for request in plan.checks}
            self.asked = {key: of for key, of in self.asked.items() if key in needed}
        for request in found:
            times, _, written = self.asked.get(_key(request), (0, 0.0, request.written))
            times = 1 if request.written > written else times + 1
            self.asked[_key(request)] = times, plan.now + run_retries.backoff(times), request.written
        return found

    def next_tries(self, plan: Plan) -> list[float]:
        """Return the times of the next tries of a plan's requests (Unix seconds)."""
        return [self._next_try(request, plan.now) for request in plan.checks]

    def _next_try(self, request: CheckRequest, now: float) -> float:
        times, until, written = self.asked.get(_key(request), (0, 0.0, request.written))
        if until > now + run_retries.backoff(times):  # the clock was set back since the last attempt
            return now
        if request.written > written:  # new data ends a long pause
            return until - run_retries.backoff(times) + run_retries.FIRST_PAUSE
        return until


def _key(request: CheckRequest) -> tuple[str, str, Partition]:
    return request.asset, request.check, request.partition
