"""One platform for the whole folder, filled once; tests leave it with every table as the oracle says."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import MANY_STATEMENTS, QUICKLY_COMPILED
from tests.live.platform import Platform
from tests.live.ui import Run
from tests.live.waiting import eventually
from tests.oracle import TABLES, Expected, Landed, assert_same, download, expected_tables

Judge = Callable[..., dict[str, float]]
"""Names of tables (all, if none) to the seconds after which each was right."""


@dataclass(frozen=True)
class Loaded:
    """A platform after its first load of hours of three days, the last of them five days ago; and the runs of it."""

    platform: Platform
    days: tuple[date, date, date]
    hours: list[str]
    """The partition keys of the hours loaded."""
    runs: list[Run]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are live ones, and may take as long as a first load does."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("live")
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def platform(
    tmp_path_factory: pytest.TempPathFactory, jars: Path, note: Callable[[str], None], pytestconfig: pytest.Config
) -> Iterator[Platform]:
    """A running platform without a sample feed."""
    folder = tmp_path_factory.mktemp("live")
    made = Platform(folder / "state", jars, folder / "up.log")
    if "proof" not in pytestconfig.option.markexpr:
        made.asked["SPARK_SUBMIT_OPTS"] = f"{QUICKLY_COMPILED} {MANY_STATEMENTS}"
    try:
        note(f"start on an empty folder: {made.start():.0f} s")
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def judge(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Wait until tables are, to the last decimal, what the oracle computes from what lies in the bucket now."""
    folder, known = tmp_path_factory.mktemp("landed"), dict[tuple[Landed, ...], Expected]()

    def become_as_expected(*tables: str, seconds: float = 60) -> dict[str, float]:
        begun = time.monotonic()
        landed = tuple(download(platform.s3, "landing", folder))
        if landed not in known:
            known.clear()
            known[landed] = expected_tables(landed)
        expected = known[landed]
        assert not expected.rejected_files
        right_after: dict[str, float] = {}

        def check(name: str) -> None:
            assert expected.tables[name].num_rows, f"nothing is expected of {name}"
            assert_same(name, expected.tables[name], platform.table(name))

        for name in sorted(tables or TABLES):  # core before marts
            eventually(partial(check, name), seconds=max(0.0, begun + seconds - time.monotonic()), every=1)
            right_after[name] = time.monotonic() - begun
        return right_after

    return become_as_expected


@pytest.fixture(scope="session")
def loaded(platform: Platform, judge: Judge, pytestconfig: pytest.Config) -> Loaded:
    """The platform with three days of the sample feed in every table: whole ones in proofs, else 2, 24 and 4 hours."""
    # Not the days of today: a new customers file reaches only some of these.
    first = datetime.now(UTC).date() - timedelta(days=7)
    begin, count = (0, 72) if "proof" in pytestconfig.option.markexpr else (22, 30)
    # At once for who asks for runs, too: how long 225 files take is this machine's affair.
    planners = [name for name in platform.ui.sensors("tidemark") if name in ("catch_up", "automation")]
    assert len(planners) == 2
    for name in planners:
        platform.ui.stop_sensor("tidemark", name)
    platform.pipelines("feed", "--once", "--start", f"{first}T{begin:02}", "--hours", str(count))
    platform.observed()
    for name in planners:
        platform.ui.start_sensor("tidemark", name)
    judge(seconds=300)
    platform.quiet()
    days = (first, first + timedelta(days=1), first + timedelta(days=2))
    hours = [f"{first + timedelta(days=n // 24)}-{n % 24:02}:00" for n in range(begin, begin + count)]
    return Loaded(platform, days, hours, list(reversed(platform.ui.runs())))
