"""The platform was down for three days while files kept landing: its next start catches up every partition."""

import hashlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dagster_tidemark.local.cloud.server import ObjectFolder, StoredObject
from pipelines.demo.plan import FileToWrite, plan_hours
from tests.live.conftest import TABLES
from tests.live.platform import Platform, statuses
from tests.live.ui import Run
from tests.live.waiting import eventually
from tests.oracle import assert_same, download, expected_tables
from tests.proof.conftest import Report

PARTITION = "dagster/partition"
HOURS_BEFORE, HOURS_DOWN = 6, 72
SEED = 7


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """A platform without the sample feed."""
    jars = Path(os.environ.get("TIDEMARK_JARS_DIR") or ".tidemark/jars").absolute()
    made = Platform(tmp_path / "state", jars, tmp_path / "up.log")
    try:
        made.start()
        yield made
    finally:
        made.end()


def becomes_right(platform: Platform, folder: Path) -> float:
    """Wait until every table is what the oracle makes of what lies in the bucket; the seconds it took."""
    begun = time.monotonic()
    expected = expected_tables(download(platform.s3, "landing", folder))

    def check() -> None:
        for name in TABLES:
            assert_same(name, expected.tables[name], platform.table(name))

    eventually(check, seconds=400, every=2)
    return time.monotonic() - begun


def was_there(run: Run, outage: datetime) -> bool:
    """Whether a run built one partition again that had been built before the outage.

    Those became stale by what landed (a day's prices). Up to eight are asked for one by one, as without an outage.
    """
    partition = run.tags.get(PARTITION)
    return partition is not None and datetime.fromisoformat(partition).replace(tzinfo=UTC) < outage


def lands(folder: ObjectFolder, file: FileToWrite) -> None:
    """A file lands on S3 while nobody is there: it arrived when it was due."""
    body = file.content()
    etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
    folder.write("landing", StoredObject(file.key, body, etag, file.due.replace(tzinfo=None).isoformat()))


def test_files_of_a_three_day_outage_are_caught_up(platform: Platform, tmp_path: Path, report: Report) -> None:
    first = (datetime.now(UTC) - timedelta(days=6)).replace(hour=0, minute=0, second=0, microsecond=0)
    platform.pipelines("feed", "--once", "--start", f"{first:%Y-%m-%dT%H}", "--hours", str(HOURS_BEFORE))
    becomes_right(platform, tmp_path / "before")
    platform.quiet()
    before = len(platform.ui.runs())
    assert platform.stop(signal.SIGINT).exit_code == 0

    missed = plan_hours(first + timedelta(hours=HOURS_BEFORE), HOURS_DOWN, SEED)
    landing = ObjectFolder(platform.state / "objects")
    for file in missed:
        lands(landing, file)

    platform.start()
    seconds = becomes_right(platform, tmp_path / "after")
    platform.quiet()
    runs = platform.ui.runs()[: len(platform.ui.runs()) - before]
    again = [run for run in runs if was_there(run, first + timedelta(hours=HOURS_BEFORE))]
    rebuilt = Counter((asset, run.tags[PARTITION]) for run in again for asset in run.assets)
    caught_up = Counter(asset for run in runs if run not in again for asset in run.assets)
    report(
        "three-day-outage",
        {
            "files that landed meanwhile": len(missed),
            "hours": HOURS_DOWN,
            "seconds from the greeting until every table equals the oracle": round(seconds, 1),
            "runs of each table for what nobody had built": dict(caught_up),
            "runs of each table for hours and days built before": dict(Counter(asset for asset, _ in rebuilt)),
        },
    )
    assert statuses(runs) == {"SUCCESS"}
    assert set(caught_up) >= {table.replace(".", "/") for table in TABLES}
    assert max(caught_up.values()) <= 4, "ranges, not a run for each partition"
    assert max(rebuilt.values(), default=1) == 1, "what was there and became stale is built once"
