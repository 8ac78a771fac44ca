"""Fifty times, while the sample feed runs, some process of the platform is killed at a random moment.

Afterwards every table is what the oracle computes from what lies in the bucket, no run is stuck, and a stop leaves no
process. A kill takes one process, of all there are: `tidemark up` and the supervisor, the local cloud, Spark, the
fork server, `dagster dev` with its daemon, webserver and code server, runs, and the feed itself. Where `up` ended by
it, a person starts it again.
"""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.live.conftest import TABLES
from tests.live.platform import Platform
from tests.live.ui import UNFINISHED
from tests.live.waiting import eventually
from tests.oracle import assert_same, download, expected_tables
from tests.proof.conftest import Report

_KINDS = {
    "dagster_tidemark.cli.app feed": "feed",
    "dagster_tidemark.cli.app up": "up",
    "bin/tidemark up": "up",
    "supervisor.supervisord": "supervisor",
    "dagster_tidemark.local.cloud.server": "cloud",
    "SparkConnectServer": "spark",
    "dagster_tidemark.local.dagster.fork_server": "fork server or run",
    "api execute_run": "cold run",
    "dagster._daemon": "daemon",
    "dagster_webserver": "webserver",
    "dagster api grpc": "code server",
    "dagster dev": "dagster dev",
}


def test_fifty_random_process_kills_lose_no_data(tmp_path: Path, jars: Path, report: Report) -> None:
    seed = int(os.environ.get("SEED", "0"))
    kills = int(os.environ.get("KILLS", "50"))
    chance = random.Random(seed)
    platform = Platform(tmp_path / "state", jars, tmp_path / "up.log")
    killed: Counter[str] = Counter()
    starts: list[float] = []
    try:
        starts.append(platform.start("sample"))
        for _ in range(kills):
            time.sleep(chance.uniform(1, 8))
            if not platform.is_up:
                starts.append(platform.start("sample"))
            # The kind first: else most kills would hit the code server, of whose processes there are many.
            kind, processes = chance.choice(sorted(_by_kind(platform).items()))
            victim = chance.choice(sorted(processes, key=lambda process: process.pid))
            victim.kill()
            killed[kind] += 1
        time.sleep(2)
        if platform.is_up:
            platform.stop(signal.SIGTERM)
        starts.append(platform.start("none"))  # the feed is over: what lies in the bucket now is what counts
        expected = expected_tables(download(platform.s3, "landing", tmp_path / "landed"))

        def equal() -> None:
            for name in TABLES:
                assert_same(name, expected.tables[name], platform.table(name))

        begun = time.monotonic()
        eventually(equal, seconds=900, every=3)
        healed = time.monotonic() - begun
        platform.quiet(seconds=300)
        stuck = [run for run in platform.ui.runs() if run.status in UNFINISHED]
        runs = Counter(run.status for run in platform.ui.runs())
        stopped = platform.stop(signal.SIGTERM)
        orphans = [process.pid for process in platform.marked()]
        report(
            "fifty-kills",
            {
                "seed": seed,
                "killed": dict(killed),
                "kills": sum(killed.values()),
                "starts of the platform, s": [round(s, 1) for s in starts],
                "tables equal after the last start, s": round(healed, 1),
                "runs": dict(runs),
                "stuck runs": len(stuck),
                "processes left": len(orphans) + len(stopped.left),
            },
        )
        assert not stuck
        assert not orphans and not stopped.left
    finally:
        platform.end()


def _by_kind(platform: Platform) -> dict[str, list[psutil.Process]]:
    found: dict[str, list[psutil.Process]] = {}
    for process in platform.marked():
        command = " ".join(process.cmdline())
        kind = next((kind for part, kind in _KINDS.items() if part in command), "other")
        found.setdefault(kind, []).append(process)
    return found
