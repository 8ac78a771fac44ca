"""The whole arrangement from the files of deploy/ with its load and a fault every two minutes, in random order.

`SOAK_MINUTES` is the length (120), `SOAK_SEED` the order of the faults and the load. `FAULTS=broker killed,S3 slow`
limits the faults. `SOAK_PAUSE` is the seconds between two files (4). `SOAK_SCALE` scales the contracts (0.4: two
minutes for core/orders instead of five; two cores are then always busy, and Spark's restart costs a contract).
`SOAK_CATALOG=rest` puts a REST catalog in front of PostgreSQL (`jdbc`: none).

While a fault holds, `status` has to name its cause and to judge no contract that nobody can judge. After it, a new
file and a new message are rows, and all contracts are met again. At the end all tables and the quarantine equal an
oracle. Memory, handles, threads and disk are reported with their trend.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from tests.live.waiting import eventually
from tests.oracle import TABLES, assert_same, download, expected_tables
from tests.proof.bare_platform import Status
from tests.proof.conftest import Report
from tests.proof.soak_feed import SoakFeed, differences, rows_of
from tests.proof.soak_platform import SoakPlatform, Usage, soak_platform
from tests.proof.test_faults_named import _told

MINUTES = float(os.environ.get("SOAK_MINUTES", "120"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
SCALE = float(os.environ.get("SOAK_SCALE", "1.0"))
CATALOG = os.environ.get("SOAK_CATALOG", "jdbc")
EVERY, HELD, NAMED_WITHIN, EQUAL_WITHIN = 120.0, 60.0, 45.0, 480.0
LOOKED_EVERY = 6.0
"""Seconds between two looks. Each starts a process, whose work the arrangement lacks."""
MET_WITHIN = 60.0 + max(60.0, 300.0 * SCALE)
"""The shortest contract and a minute: what arrived during the fault is due by then."""
DUE_AT_ONCE = "0.0001"
"""The contract scale of the last minutes: every mart is due, not only those whose contract is short."""
_CLOUD = ("S3", "bucket", "queue")
_OF_READINGS = frozenset({"core/readings", "marts/hot_spots"})
Effect = Callable[[SoakPlatform], Any]


@dataclass(frozen=True)
class SoakFault:
    """A fault and its end.

    Args:
        words: `status` has to print one of these. Empty for a fault that the arrangement bears without harm.
        blinds: Whose contracts nobody can judge while the fault lasts; None if that is so of all.
        loses_messages: The queues are empty afterwards.
    """

    name: str
    begin: Effect
    end: Effect
    words: tuple[str, ...] = ()
    blinds: frozenset[str] | None = frozenset()
    loses_messages: bool = False


def _stopped(part: str, name: str, *words: str, blinds: frozenset[str] | None = None) -> SoakFault:
    return SoakFault(
        f"{name} stopped",
        lambda p: p.kill(part, signal.SIGSTOP),
        lambda p: p.kill(part, signal.SIGCONT),
        words,
        blinds,
    )


def _killed(part: str, name: str, *words: str, blinds: frozenset[str] | None = None) -> SoakFault:
    return SoakFault(
        f"{name} killed", lambda p: p.kill(part), lambda p: p.again(part), words, blinds, loses_messages=part == "cloud"
    )


def _mode(name: str, mode: Any, *words: str, blinds: frozenset[str] | None = frozenset()) -> SoakFault:
    return SoakFault(name, lambda p: p.cloud_mode(mode), lambda p: p.cloud_mode(""), words, blinds)


_STORAGE = "storage is unreachable"
_NOBODY = frozenset[str]()
FAULTS = [
    _mode("S3 slow", "slow"),
    _mode("S3 errors", "errors"),
    _mode("credentials expired", "expired", *_CLOUD, blinds=None),
    *(make("cloud", "S3 and SQS", *_CLOUD) for make in (_stopped, _killed)),
    *(make("spark", "Connect", "Spark") for make in (_stopped, _killed)),
    *(make("worker-1", "Spark worker", blinds=_NOBODY) for make in (_stopped, _killed)),
    *(make("postgres", "PostgreSQL", _STORAGE) for make in (_stopped, _killed)),
    SoakFault("catalog locked", SoakPlatform.lock_catalog, SoakPlatform.unlock_catalog, ("catalog",), None),
    *(make("catalog", "REST catalog", "catalog") for make in (_stopped, _killed) if CATALOG == "rest"),
    *(make("kafka", "broker", "Kafka", "topic", "broker", blinds=_OF_READINGS) for make in (_stopped, _killed)),
    *(make("daemon", "daemon", "sensor", "daemon") for make in (_stopped, _killed)),
    *(make("code", "code server", "code server", "sensor") for make in (_stopped, _killed)),
]


def test_arrangement_survives_hours_of_faults_with_correct_tables(tmp_path: Path, report: Report) -> None:
    figures: dict[str, Any] = {
        "what": "a fault every two minutes; seconds of each",
        "minutes": MINUTES,
        "seed": SEED,
        "catalog": CATALOG,
    }
    with soak_platform(tmp_path, SCALE, CATALOG) as platform:
        feed, usage = SoakFeed(platform, SEED), Usage(platform, tmp_path / "usage.jsonl")
        feed.put_master_data()
        begun = time.monotonic()
        feed.start()
        figures["first met"] = _seconds_until_met(platform, seconds=600)
        with usage.sampled():
            figures["faults"] = told = list[dict[str, Any]]()
            for fault in _chosen(MINUTES - (time.monotonic() - begun) / 60):
                if time.monotonic() - begun > MINUTES * 60:
                    break
                told.append({"at minute": round((time.monotonic() - begun) / 60, 1), **_one(platform, feed, fault)})
                report("soak", figures | _of_usage(usage) | {"sent": dict(feed.counts)})
            feed.stop()
        figures |= {"sent": dict(feed.counts), **_of_usage(usage)}
        report("soak", figures)
        platform.redeploy(TIDEMARK_CONTRACT_SCALE=DUE_AT_ONCE)
        figures["seconds until equal"] = _seconds_until_equal(platform, feed, tmp_path, figures)
        report("soak", figures)
    figures["processes left"] = _left(tmp_path)
    report("soak", figures)
    wrong = [each for each in told if not each["as promised"]]
    assert not figures["processes left"]
    assert figures["seconds until equal"] is not None, figures.get("differences", "the tables could not be read")
    assert told and not wrong, wrong


def _chosen(minutes: float) -> list[SoakFault]:
    """Return faults for some minutes: all in random order, then all in another, and so on."""
    names = {name.strip() for name in os.environ.get("FAULTS", "").split(",") if name.strip()}
    dice, found = random.Random(SEED), list[SoakFault]()
    among = [fault for fault in FAULTS if not names or fault.name in names]
    while len(found) * EVERY < minutes * 60:
        found += dice.sample(among, len(among))
    return found


def _one(platform: SoakPlatform, feed: SoakFeed, fault: SoakFault) -> dict[str, Any]:
    """Play a fault and wait for the end of its two minutes."""
    print(f"{datetime.now(UTC):%H:%M:%S} {fault.name}", flush=True)
    begun, named, said = time.monotonic(), None, dict[str, None]()
    met_while_blind: set[str] = set()
    slowest = 0.0
    fault.begin(platform)
    while time.monotonic() - begun < HELD:
        status = platform.status()
        slowest = max(slowest, status.seconds)
        looked = time.monotonic() - begun - status.seconds  # the answer reports an earlier moment than its own
        if named is None and any(word in _causes(status) for word in fault.words):
            named = round(looked, 1)
        if looked > NAMED_WITHIN:
            met = {key for key, state in status.states().items() if state == "met"}
            met_while_blind |= met if fault.blinds is None else met & fault.blinds
        said[_told(status)[:600]] = None
        time.sleep(LOOKED_EVERY)
    fault.end(platform)
    if fault.loses_messages:
        feed.send_lost_messages(platform.lake)
    ended = time.monotonic()
    rows = _seconds_until_rows(platform, feed)
    met_again = _seconds_until_met(platform, since=ended)
    load = round(os.getloadavg()[0])
    found: dict[str, Any] = {"fault": fault.name, "named": named, "rows": rows, "met again": met_again}
    found |= {"slowest status": round(slowest, 1), "load": load}
    good = rows is not None and met_again is not None and met_again <= MET_WITHIN and not met_while_blind
    good = good and (not fault.words or (named is not None and named <= NAMED_WITHIN))
    if not good:
        found |= {"met while blind": sorted(met_while_blind), "status said": [*said][-2:]}
        found |= {"status says": _told(platform.status())[:1500]}
    print(f"{datetime.now(UTC):%H:%M:%S} {found}", flush=True)
    time.sleep(max(0.0, EVERY - (time.monotonic() - begun)))
    return found | {"as promised": good}


def _causes(status: Status) -> str:
    """Return what status says about causes. Reasons of contracts hold the same words in other senses."""
    rows = status.rows.values()
    said = [cause["said"] for row in rows for cause in row["causes"]]
    said += [str(row["stream"]["hindrance"] or "") for row in rows if row.get("stream")]
    return " | ".join(dict.fromkeys(said if rows else [status.error]))


def _seconds_until_rows(platform: SoakPlatform, feed: SoakFeed) -> float | None:
    """Return the seconds until a new file and a new reading are rows."""
    begun = time.monotonic()
    order, device = feed.probe()

    def there() -> None:
        lake = platform.lake
        orders = lake.load_table("core.orders").scan(f"order_id = {order}").to_arrow()
        readings = lake.load_table("raw.readings").scan(f"device_id = '{device}'").to_arrow()
        assert orders.num_rows and readings.num_rows, f"{orders.num_rows} orders, {readings.num_rows} readings"

    try:
        eventually(lambda: _unless_it_fails(there), seconds=MET_WITHIN, every=3)
    except AssertionError:
        return None
    return round(time.monotonic() - begun, 1)


def _seconds_until_met(
    platform: SoakPlatform, *, seconds: float = MET_WITHIN, since: float | None = None
) -> float | None:
    """Return the seconds until no contract is breached or unknown."""
    begun = time.monotonic() if since is None else since

    def met() -> Status:
        status = platform.status()
        lacking = {key: state for key, state in status.states().items() if state not in ("met", "at risk")}
        assert status.rows and "core/orders" in status.states() and not lacking, (lacking, status.error)
        return status

    try:
        status = eventually(met, seconds=seconds, every=LOOKED_EVERY)
    except AssertionError as error:
        print(str(error)[:1000], flush=True)
        return None
    return round(time.monotonic() - begun - status.seconds, 1)


def _seconds_until_equal(platform: SoakPlatform, feed: SoakFeed, folder: Path, figures: dict[str, Any]) -> float | None:
    """Return the seconds until all tables and the quarantine are as expected; what differs is in the figures."""
    begun = time.monotonic()
    expected = expected_tables(download(platform.aws("s3"), "landing", folder / "landed"))
    refused = set(expected.rejected_files)
    figures["rows"] = {name: expected.tables[name].num_rows for name in TABLES} | {"readings": len(feed.readings)}

    def equal() -> None:
        lake, found = platform.lake, list[str]()
        for name in TABLES:
            try:
                assert_same(name, expected.tables[name], rows_of(lake, name), shown=2)
            except AssertionError as error:
                found.append(str(error)[:700])
        found += differences(feed, lake)
        if refused != feed.refused_files:
            found.append(f"oracle and ledger refuse different files: {sorted(refused ^ feed.refused_files)[:5]}")
        figures["differences"] = found
        assert not found

    try:
        eventually(lambda: _unless_it_fails(equal), seconds=EQUAL_WITHIN, every=5)
    except AssertionError:
        return None
    return round(time.monotonic() - begun, 1)


def _unless_it_fails(check: Callable[[], None]) -> None:
    """Make every error one that waiting may cure: a table that is not there yet, a service that recovers."""
    try:
        check()
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error


def _of_usage(usage: Usage) -> dict[str, Any]:
    what = "median of the first third, of the last third, and the most"
    return {"usage": {"what": what, **usage.figures()}, "growth of the longest life": usage.growth()}


def _left(folder: Path) -> list[str]:
    """Return the commands of processes that still have the arrangement's home."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("DAGSTER_HOME", "").startswith(str(folder)):
                found.append(" ".join(process.cmdline())[:200])
    return found
