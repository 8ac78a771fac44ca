"""The platform was down for three days while files kept landing: its next start catches up every partition."""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.demo.plan import FileToWrite, plan_hours
from pipelines.local.objects import ObjectFolder, StoredObject
from tests.live.conftest import TABLES
from tests.live.platform import Platform, statuses
from tests.live.waiting import eventually
from tests.oracle import assert_same, download, expected_tables
from tests.proof.conftest import Report

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


def lands(folder: ObjectFolder, file: FileToWrite) -> None:
    """A file lands on S3 while nobody is there: it arrived when it was due."""
    body = file.content()
    etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
    folder.write("landing", StoredObject(file.key, body, etag, file.due.replace(tzinfo=None).isoformat()))


def test_three_days_of_files_are_caught_up(platform: Platform, tmp_path: Path, report: Report) -> None:
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
    by_table = {t: sum(t.replace(".", "/") in run.assets for run in runs) for t in TABLES}
    report(
        "three-day-outage",
        {
            "files that landed meanwhile": len(missed),
            "hours": HOURS_DOWN,
            "seconds from the greeting until every table equals the oracle": round(seconds, 1),
            "runs of each table": by_table,
        },
    )
    assert statuses(runs) == {"SUCCESS"}
    assert max(by_table.values()) <= 4, "ranges, not a run for each partition"
