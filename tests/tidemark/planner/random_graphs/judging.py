"""From a seed to what is wrong with its day; in as many processes as there is room for."""

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from tests.tidemark.planner.random_graphs.days import day_of_bulk, day_of_checks, random_day
from tests.tidemark.planner.random_graphs.graphs import random_world
from tests.tidemark.planner.random_graphs.oracle import judge
from tests.tidemark.planner.random_graphs.play import Day
from tests.tidemark.planner.random_graphs.shapes import World


@dataclass(frozen=True)
class Judged:
    """A random day, judged.

    Args:
        wrong: What is wrong with it.
        seconds: How long it took to play and judge.
    """

    seed: int
    wrong: list[str]
    runs: int
    ticks: int
    hours: float
    seconds: float


def world_of(seed: int) -> World:
    """The graph and the day of a seed."""
    return random_day(random_world(seed))


def world_of_checks(seed: int) -> World:
    """The graph of a seed, and a day on which its blocking checks fail, raise, are skipped and time out."""
    return day_of_checks(random_world(seed))


def world_of_bulk(seed: int) -> World:
    """Return the graph of a seed beside bulk work, with few slots."""
    return day_of_bulk(random_world(seed))


def wrong_with(world: World) -> list[str]:
    """What is wrong with a world."""
    return judge(Day(world).play())


def judged(seed: int, of: Callable[[int], World] = world_of) -> Judged:
    """The day of a seed, judged. A defect of the simulation itself is one more thing that is wrong."""
    begin, world = time.perf_counter(), of(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster's, about a user's own mappings and about what is in beta
        logging.disable(logging.ERROR)
        try:
            day = Day(world).play()
            wrong, runs, ticks = judge(day), len(day.simulation.runs), day.simulation.ticks
        except Exception as error:
            wrong, runs, ticks = [f"crash: {type(error).__name__}: {error}"[:400]], 0, 0
        finally:
            logging.disable(logging.NOTSET)
    return Judged(seed, wrong, runs, ticks, world.hours, time.perf_counter() - begin)


def judge_many(seeds: Iterable[int], processes: int, of: Callable[[int], World] = world_of) -> Iterator[Judged]:
    """The days of these seeds, in their order."""
    # Not concurrent.futures: its workers that are to be replaced after so many tasks can hang (CPython gh-115634).
    with get_context("spawn").Pool(processes, maxtasksperchild=50) as pool:
        yield from pool.imap(partial(judged, of=of), seeds)
