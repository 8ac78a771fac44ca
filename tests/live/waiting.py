"""Waiting for what a live platform does by itself: polled, bounded, and with the last reason in the failure."""

import time
from collections.abc import Callable
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
