"""A cached look: how often it looks, how long it waits, and what it says of a fault."""

import threading
import time
from collections.abc import Callable

import pytest

from dagster_tidemark.cli.monitoring import cached_look
from dagster_tidemark.cli.monitoring.cached_look import CachedLook
from dagster_tidemark.errors import Transient

LIMIT = 0.2


class Service:
    """A service that counts its requests, and can hang or fail."""

    def __init__(self) -> None:
        self.asked, self.now, self.fault = 0, 1000.0, ""
        self.error: type[Exception] = Transient
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        assert self.answers.wait(30)
        if self.fault:
            raise self.error(self.fault)
        return number

    def clock(self) -> float:
        return self.now


@pytest.fixture
def service() -> Service:
    return Service()


def look_of(service: Service) -> CachedLook[int]:
    return CachedLook(service, every=10.0, limit=LIMIT, clock=service.clock)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_look_is_repeated_only_when_it_is_due(service: Service) -> None:
    look = look_of(service)
    first = look.result()
    assert (first.value, first.at, first.failing_since, first.said) == (1, 1000.0, None, "")
    service.now += 9
    assert look.result().value == 1 and first.fresh(service.now, 9) == 1 and first.fresh(service.now, 8) is None
    service.now += 2
    assert (look.result().value, look.result().at) == (2, 1011.0)


def test_a_failed_look_keeps_the_last_value_with_its_time_and_is_repeated_sooner(service: Service) -> None:
    look = look_of(service)
    look.result()
    service.now, service.fault = 1020.0, "no route\nto the host"
    failed = look.result()
    assert (failed.value, failed.at, failed.failing_since, failed.said) == (1, 1000.0, 1020.0, "no route")
    service.now = 1026.0
    assert look.result().failing_since == 1020.0 and service.asked == 3
    service.now, service.fault, service.error = 1032.0, "https://me:hunter2@host", OSError
    assert look.result().said == "OSError", "the text may hold a login"
    service.now, service.fault = 1038.0, ""
    assert (look.result().value, look.result().failing_since) == (5, None)


def test_a_hanging_look_never_delays_the_caller_and_is_reported(service: Service) -> None:
    look = look_of(service)
    service.answers.clear()
    began = time.monotonic()
    first = look.result()
    assert time.monotonic() - began < LIMIT + 1 and (first.value, first.at, first.failing_since) == (None, None, None)
    service.now += 21
    assert look.result().failing_since == 1000.0 and "no answer for 21 s" in look.result().said
    assert service.asked == 1, "one look at a time"
    service.answers.set()
    until(lambda: look.result().value == 1 and look.result().failing_since is None)


def test_hanging_looks_are_abandoned_at_most_three_times_and_the_service_is_found_well_again(service: Service) -> None:
    look = look_of(service)
    service.answers.clear()
    for _ in range(9):
        look.result()
        service.now += 61
    assert service.asked == 4
    assert look.result().failing_since == 1000.0
    service.answers.set()
    until(lambda: look.result().failing_since is None)
    assert look.result().value is not None


def test_a_new_look_that_answers_ends_the_fault_although_an_old_one_still_hangs(service: Service) -> None:
    held = service.answers
    held.clear()
    look = look_of(service)
    look.result()
    service.now += 61
    service.answers = threading.Event()
    service.answers.set()
    found = look.result()
    assert (found.value, found.failing_since) == (2, None)
    held.set()
    until(lambda: service.asked == 2)
    assert look.result().value == 2, "the older look does not replace the newer one"


def test_the_limits_leave_room_for_a_minute() -> None:
    assert cached_look._HANGS_AFTER + LIMIT < 60


def test_a_look_with_its_own_limit_counts_as_hanging_only_after_it(service: Service) -> None:
    slow = CachedLook(service, every=60.0, limit=LIMIT, hangs_after=120.0, clock=service.clock)
    service.answers.clear()
    slow.result()
    service.now += 119
    assert slow.result().failing_since is None and service.asked == 1, "it is not abandoned before"
    service.now += 1
    assert slow.result().failing_since == 1000.0
    service.answers.set()
