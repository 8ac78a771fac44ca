"""Every shape of graph, and every way people and machines interfere, once on a real daemon: on SQLite, on PostgreSQL.

`dagster dev` with the webserver, the daemon, two code locations, the project's run queue, launcher and monitoring;
Spark and S3 have no part in this. Stories are told side by side, because they mostly wait.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.proof import fault_stories, shape_stories
from tests.proof.conftest import Report
from tests.proof.shapes_platform import LOCATIONS, ToyPlatform, toy_platform
from tests.tidemark.postgres import has_postgres, postgres_server

Story = Callable[[ToyPlatform], None]


@contextlib.contextmanager
def _storage(kind: str) -> Iterator[dict[str, Any] | None]:
    if kind == "sqlite":
        yield None
        return
    with postgres_server() as login:
        yield login


def _played(toy: ToyPlatform, plays: Sequence[Story], told: dict[str, dict[str, Any]]) -> None:
    """Tell stories side by side; how each ended."""

    def _play(play: Story) -> None:
        begun = time.monotonic()
        fault = ""
        try:
            play(toy)
        except Exception as error:  # the others go on
            fault = f"{type(error).__name__}: {error}"[:1500]
        seconds = round(time.monotonic() - begun, 1)
        told[play.__name__] = {"seconds": seconds, "fault": fault}
        print(f"{seconds:6.1f} s {play.__name__} {fault}", flush=True)

    with ThreadPoolExecutor(len(plays)) as pool:
        list(pool.map(_play, plays))


def _errors(toy: ToyPlatform) -> list[str]:
    """What the daemon says of ticks that failed. Dagster does not show those before a restart afterwards."""
    return [line for line in toy.log.splitlines() if "caught an error for sensor" in line]


def _ticks(toy: ToyPlatform) -> dict[str, dict[str, Any]]:
    """How the ticks of every sensor ended, and the first error."""
    found: dict[str, dict[str, Any]] = {}
    for location in LOCATIONS:
        for name, sensor in toy.sensors(location).items():
            ticks = sensor["sensorState"]["ticks"]
            errors = [tick["error"]["message"] for tick in ticks if tick["error"]]
            found[f"{location}/{name}"] = {"ended": Counter(tick["status"] for tick in ticks), "error": errors[:1]}
    return found


@pytest.mark.parametrize("storage", ["sqlite", "postgres"])
def test_every_graph_shape_works_on_a_real_daemon(storage: str, tmp_path: Path, report: Report) -> None:
    if storage == "postgres" and not has_postgres():
        pytest.skip("PostgreSQL is not installed")
    told: dict[str, dict[str, Any]] = {}
    with _storage(storage) as login, toy_platform(tmp_path, login) as toy:
        started = toy.start()
        begun = time.monotonic()
        _played(toy, shape_stories.STORIES, told)
        _played(toy, fault_stories.STORIES, told)
        ticks = _ticks(toy)
        for play in fault_stories.ALONE:
            _played(toy, [play], told)
        errors = _errors(toy)
        figures = {
            "storage": storage,
            "seconds to start": round(started, 1),
            "seconds": round(time.monotonic() - begun),
            "stories": told,
            "ticks before the restart": ticks,
            "failed ticks": errors,
        }
    report("shapes" if storage == "sqlite" else f"shapes-on-{storage}", figures)
    assert {name: story["fault"] for name, story in told.items() if story["fault"]} == {}
    assert errors == []
    assert [name for name, tick in ticks.items() if tick["ended"]["FAILURE"]] == []
