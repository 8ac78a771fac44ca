"""Waiting for what a live platform does by itself: polled, bounded, and with the last reason in the failure."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], *, seconds: float, every: float = 0.5) -> T:
    """Repeat a check until it no longer raises AssertionError; its result."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(every)


def holds_for(check: Callable[[], T], *, seconds: float, every: float = 0.5) -> T:
    """Repeat a check that has to succeed all the time; its last result."""
    deadline = time.monotonic() + seconds
    while True:
        result = check()
        if time.monotonic() > deadline:
            return result
        time.sleep(every)


@contextmanager
def all_the_time(look: Callable[[], None]) -> Iterator[None]:
    """Look again and again beside what happens here, and once more in the end; what a look raises fails the test."""
    over, faults = threading.Event(), list[Exception]()

    def looks() -> None:
        try:
            while not over.is_set():
                look()
        except Exception as error:
            faults.append(error)

    looker = threading.Thread(target=looks)
    looker.start()
    try:
        yield
    finally:
        over.set()
        looker.join()
    look()
    assert not faults, faults
