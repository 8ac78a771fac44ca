"""The feed at work against a bucket: everything once, nothing twice."""

import os
import signal
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from dagster_tidemark.settings import Settings
from pipelines.demo.feed import LandingUnreachable, run_feed
from pipelines.demo.plan import mishaps
from pipelines.feeds.orders import ORDERS

START = datetime(2026, 11, 20, 0, tzinfo=UTC)


def objects(settings: Settings) -> dict[str, Any]:
    """Key to ETag and version id of what lies in the landing bucket."""
    client = boto3.client("s3", region_name=settings.aws_region)
    versions = client.list_object_versions(Bucket=settings.landing_bucket).get("Versions", [])
    return {entry["Key"]: (entry["ETag"], entry["VersionId"]) for entry in versions if entry["IsLatest"]}


def count_versions(settings: Settings) -> int:
    client = boto3.client("s3", region_name=settings.aws_region)
    return len(client.list_object_versions(Bucket=settings.landing_bucket).get("Versions", []))


def keep_versions(settings: Settings) -> None:
    boto3.client("s3", region_name=settings.aws_region).put_bucket_versioning(
        Bucket=settings.landing_bucket, VersioningConfiguration={"Status": "Enabled"}
    )


class Clock:
    """Tells the given times in turn, and ends the feed after the last one."""

    def __init__(self, *times: datetime) -> None:
        self.times = [times[0], *times]  # the feed looks once to choose its hours, then once per round
        self.stop = threading.Event()

    def __call__(self) -> datetime:
        now = self.times.pop(0)
        if not self.times:
            self.stop.set()
        return now


def test_demo_feed_with_once_writes_its_hours_and_stops(settings: Settings) -> None:
    lines: list[str] = []
    run_feed(settings, start=START, hours=2, once=True, seed=7, report=lines.append)
    written = objects(settings)
    assert {ORDERS.partition_of(key) for key in written if key.startswith("orders/")} == {
        "2026-11-20-00:00",
        "2026-11-20-01:00",
    }
    assert {"customers/latest.csv", "prices/dt=2026-11-20/prices.csv"} <= written.keys()
    assert lines == [f"feed: {len(written)} files written, 0 already present"]


def test_restarted_demo_feed_writes_no_file_again(settings: Settings) -> None:
    keep_versions(settings)
    run_feed(settings, start=START, hours=3, once=True, seed=7, report=lambda _: None)
    before = objects(settings)
    lines: list[str] = []
    run_feed(settings, start=START, hours=3, once=True, seed=7, report=lines.append)
    assert objects(settings) == before
    assert count_versions(settings) == len(before)
    assert lines == [f"feed: 0 files written, {len(before)} already present"]


def test_demo_feed_overwrites_a_changed_object(settings: Settings) -> None:
    run_feed(settings, start=START, hours=1, once=True, seed=7, report=lambda _: None)
    before = objects(settings)
    boto3.client("s3", region_name="us-east-1").put_object(Bucket="landing", Key="customers/latest.csv", Body=b"x")
    run_feed(settings, start=START, hours=1, once=True, seed=7, report=lambda _: None)
    assert objects(settings) == before


def test_demo_feed_continues_with_the_current_hour_and_due_files(settings: Settings) -> None:
    now = START + timedelta(hours=5, minutes=10)
    clock = Clock(now, now + timedelta(seconds=1), now + timedelta(minutes=11))
    run_feed(settings, hours=3, rate=600, seed=7, report=lambda _: None, clock=clock, stop=clock.stop)
    current = sorted(key.rsplit("/", 1)[1][:5] for key in objects(settings) if "/hour=05/" in key)
    assert current == ["00000", "07010", "13600"]  # the first third of the hour, and two moments
    earlier = {ORDERS.partition_of(key) for key in objects(settings) if "/hour=05/" not in key and key[0] == "o"}
    assert earlier == {"2026-11-20-03:00", "2026-11-20-04:00"}


def test_demo_feed_restarted_while_running_adds_only_new_files(settings: Settings) -> None:
    keep_versions(settings)
    now = START + timedelta(hours=5, minutes=10)
    for later in (0, 30):
        moment = now + timedelta(seconds=later)
        clock = Clock(moment, moment + timedelta(seconds=1))
        run_feed(settings, hours=3, rate=600, seed=7, report=lambda _: None, clock=clock, stop=clock.stop)
    assert count_versions(settings) == len(objects(settings))


@pytest.mark.parametrize("hour", [0, 11, 23])
def test_demo_feed_default_hours_include_three_complete_days(settings: Settings, hour: int) -> None:
    now = START + timedelta(days=5, hours=hour, minutes=30)
    clock = Clock(now)
    run_feed(settings, seed=7, report=lambda _: None, clock=clock, stop=clock.stop)
    days = {str(ORDERS.partition_of(key))[:10] for key in objects(settings) if key.startswith("orders/")}
    assert sorted(days) == [f"{now.date() - timedelta(days=n)}" for n in (3, 2, 1, 0)]


def test_demo_feed_default_hours_do_not_start_before_the_start_date(settings: Settings) -> None:
    opened = datetime(2026, 9, 28, tzinfo=UTC)
    clock = Clock(opened + timedelta(hours=2, minutes=30))
    run_feed(settings, hours=72, seed=7, report=lambda _: None, clock=clock, stop=clock.stop)
    partitions = {ORDERS.partition_of(key) for key in objects(settings) if key.startswith("orders/")}
    assert min(str(partition) for partition in partitions) == "2026-09-28-00:00"


def test_demo_feed_fails_once_or_retries_on_a_missing_bucket(settings: Settings) -> None:
    missing = settings.model_copy(update={"landing_bucket": "elsewhere"})
    with pytest.raises(LandingUnreachable, match="TIDEMARK_LANDING_BUCKET"):
        run_feed(missing, start=START, hours=1, once=True, seed=7)
    lines: list[str] = []
    clock = Clock(START, START + timedelta(seconds=1))
    run_feed(missing, hours=1, seed=7, report=lines.append, clock=clock, stop=clock.stop)
    assert [line.rsplit(";", 1)[1] for line in lines[:-1]] == [" next try in 1 s", " next try in 2 s"]
    assert lines[-1] == "feed: stopped"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_demo_feed_and_restores_the_previous_handler(
    settings: Settings, number: signal.Signals
) -> None:
    handler = signal.getsignal(number)
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        if "a minute" in line:
            os.kill(os.getpid(), number)

    run_feed(settings, hours=1, rate=1, seed=7, report=report, clock=lambda: START + timedelta(minutes=59))
    assert lines[-1] == "feed: stopped"
    assert signal.getsignal(number) is handler


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"rate": 1000}, {"hours": 0}])
def test_invalid_demo_feed_rate_or_hours_are_refused(settings: Settings, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        run_feed(settings, once=True, seed=7, **wrong)


def test_demo_feed_writes_bad_files_only_while_running(settings: Settings) -> None:
    now = START + timedelta(days=1)
    bad = {file.key for file in mishaps(now - timedelta(hours=71), 72, seed=7)}
    assert len(bad) == 2
    run_feed(settings, start=now - timedelta(hours=71), hours=72, once=True, seed=7, report=lambda _: None)
    assert not bad & objects(settings).keys()
    clock = Clock(now)
    run_feed(settings, hours=72, seed=7, report=lambda _: None, clock=clock, stop=clock.stop)
    assert bad <= objects(settings).keys()
