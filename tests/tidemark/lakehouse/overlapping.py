"""Real loads at once, each on a thread and session of its own, that take turns in an order which is given.

A load hands over after its first look and at each of its boundaries; when the order is used up, one goes on to its end
and then the next. It may die at a boundary. Belongs here: the turns. Does not belong here: what the loads find.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from unittest import mock

from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading import load as load_module
from dagster_tidemark.lakehouse.loading.load import Load, Loaded, run_load
from dagster_tidemark.sources.s3 import S3Bucket

DEATHS = ("between_quarantine_and_table", "before_commit", "after_commit")


class Died(Exception):
    """What a load meets at the boundary where it is to die."""


@dataclass(frozen=True)
class Run:
    """A load that overlaps with another.

    Args:
        before_looking: Done right before its first look.
        at_boundary: Told each boundary it comes to, before it hands over or dies.
    """

    spark: SparkSession
    load: Load
    partitions: Sequence[str]
    dies_at: str | None = None
    before_looking: Callable[[], None] = lambda: None
    at_boundary: Callable[[str], None] = lambda _: None


class _Turns:
    def __init__(self, runs: int, order: Sequence[int]) -> None:
        self._order = list(order)
        self._alive = set(range(runs))
        self._changed = threading.Condition()

    def wait_for(self, me: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._next() == me, timeout=120), f"run {me} never had its turn"

    def hand_over(self, me: int) -> None:
        with self._changed:
            if self._order:
                self._order.pop(0)
            self._changed.notify_all()
        self.wait_for(me)

    def leave(self, me: int) -> None:
        with self._changed:
            self._alive.discard(me)
            self._order = [other for other in self._order if other != me]
            self._changed.notify_all()

    def _next(self) -> int:
        return self._order[0] if self._order else min(self._alive)


def overlap(landing: S3Bucket, runs: Sequence[Run], order: Sequence[int]) -> list[Loaded | None]:
    """Run them; what each did, None for one that died.

    Args:
        order: Whose turn it is, as a place in `runs`: a turn goes from one boundary to the next, the first one up to
            the end of the look.
    """
    turns = _Turns(len(runs), order)
    names: dict[int, int] = {}
    looked: set[int] = set()
    real = load_module.look

    def look(*arguments: object) -> object:
        me = names[threading.get_ident()]
        if me in looked:
            return real(*arguments)  # type: ignore[arg-type]
        looked.add(me)
        runs[me].before_looking()
        found = real(*arguments)  # type: ignore[arg-type]
        turns.hand_over(me)
        return found

    def reached(boundary: str) -> None:
        me = names[threading.get_ident()]
        runs[me].at_boundary(boundary)
        if boundary == runs[me].dies_at:
            raise Died
        turns.hand_over(me)

    def play(me: int) -> Loaded | None:
        names[threading.get_ident()] = me
        run = runs[me]
        try:
            turns.wait_for(me)
            return run_load(run.spark, landing, run.load, run.partitions, run_id=uuid.uuid4().hex)
        except Died:
            return None
        finally:
            turns.leave(me)

    with (
        mock.patch.object(load_module, "look", look),
        mock.patch.object(load_module, "reached", reached),
        ThreadPoolExecutor(len(runs)) as pool,
    ):
        return [done.result() for done in [pool.submit(play, me) for me in range(len(runs))]]
