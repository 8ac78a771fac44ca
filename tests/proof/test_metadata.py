"""What 10,000 commits of one file each leave behind of metadata: it has to be at most 200 MB.

`PROOF_COMMITS=2500` does fewer and reckons from them.
"""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from dagster_tidemark.lakehouse.table import Retention
from dagster_tidemark.local.spark.jars import fetch_jars
from tests.conftest import make_settings
from tests.proof.appends import MERGED, TURN
from tests.proof.conftest import Report

COMMITS = 10_000
MOST = 200_000_000
KEEPS = Retention()


@pytest.mark.timeout(6 * 3600)
def test_ten_thousand_commits_leave_at_most_200_mb_of_metadata(tmp_path: Path, report: Report) -> None:
    commits = int(os.environ.get("PROOF_COMMITS", COMMITS))
    assert commits >= KEEPS.newest + 2 * KEEPS.batch, "too few to see snapshots expire twice"
    assert COMMITS * KEEPS.held_for / timedelta(days=1) < KEEPS.newest, "the age decides, and `appends` leaves it out"
    settings = make_settings(tmp_path).model_copy(update={"spark_remote": None})
    Path(settings.warehouse).mkdir()
    fetch_jars(settings)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}  # set by other tests
    ran = subprocess.run(
        [sys.executable, "-m", "tests.proof.appends", str(commits)],
        env=environment | settings.exports() | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    looks = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [look["commits"] for look in looks] == list(range(TURN, commits + 1, TURN))
    worst = max(looks, key=lambda look: _bytes(look["before"]))
    expiries = [look for look in looks if look["before"] != look["after"]]
    # However many came before, there are never more snapshots than this, each with a list and a manifest of its own;
    # but every hundredth has a manifest in which all files are named.
    more = COMMITS / worst["commits"]
    reckoned = sum(round(size * (more if kind == MERGED else 1)) for kind, (_, size) in worst["before"].items())
    report(
        "metadata",
        {
            "commits": commits,
            "seconds": looks[-1]["seconds"],
            "bytes at most": _bytes(worst["before"]),
            "bytes at the end": _bytes(looks[-1]["after"]),
            "bytes at most after 10,000 commits": reckoned,
            "files and bytes when there were most": worst["before"],
            "commits at which snapshots expired": [look["commits"] for look in expiries],
            "seconds of an expiry": [look["this look"] for look in expiries],
            "seconds of any other look": sorted(look["this look"] for look in looks)[len(looks) // 2],
        },
    )
    batches = range(KEEPS.newest + KEEPS.batch, commits + 1, KEEPS.batch)
    assert [look["commits"] for look in expiries] == list(batches)
    for look in looks:
        assert look["before"]["manifest list"][0] <= KEEPS.newest + KEEPS.batch
        assert look["before"]["metadata.json"][0] <= 7
    assert reckoned <= MOST


def _bytes(metadata: dict[str, tuple[int, int]]) -> int:
    return sum(size for _, size in metadata.values())
