"""`/healthz` of `tidemark metrics` is red within a minute for each dead or hung part, and green again afterwards.

`FAULTS=daemon stopped,spark killed` runs only these faults, and keeps the figures of the others in the report.
"""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.checkout import CHECKOUT
from tests.conftest import free_port
from tests.live.waiting import eventually
from tests.proof.bare_platform import _BIN, BarePlatform, bare_platform
from tests.proof.conftest import Report

RED_WITHIN, GREEN_WITHIN, ANSWERED_WITHIN = 60.0, 120.0, 10.0
Effect = Callable[[BarePlatform], Any]


def _stop(part: str) -> tuple[Effect, Effect]:
    return (
        lambda p: p.signal(part, signal.SIGSTOP, family=True),
        lambda p: p.signal(part, signal.SIGCONT, family=True),
    )


def _kill(part: str) -> tuple[Effect, Effect]:
    return lambda p: p.kill(part), lambda p: p.start(part)


FAULTS: dict[str, tuple[tuple[Effect, Effect], tuple[str, ...]]] = {
    "daemon stopped": (_stop("daemon"), ("daemon", "sensor automation", "sensor contracts")),
    "daemon killed": (_kill("daemon"), ("daemon", "sensor automation", "sensor contracts")),
    "code stopped": (_stop("code"), ("sensor automation", "sensor contracts")),
    "code killed": (_kill("code"), ("sensor automation", "sensor contracts")),
    "spark stopped": (_stop("spark"), ("Spark",)),
    "spark killed": (_kill("spark"), ("Spark",)),
    "catalog locked": ((BarePlatform.lock_catalog, BarePlatform.unlock_catalog), ("catalog",)),
    "postgres stopped": (_stop("postgres"), ("storage",)),
    "postgres killed": (_kill("postgres"), ("storage",)),
    "cloud stopped": (_stop("cloud"), ("landing",)),
    "sensor landing off": (
        (lambda p: p.switch("landing", "stop"), lambda p: p.switch("landing", "start")),
        ("sensor landing",),
    ),
}
"""Each fault with its end, and the parts that must be red; one of them is enough at first."""


def test_health_is_red_within_a_minute_and_green_again(tmp_path: Path, jars: Path, report: Report) -> None:
    chosen = [name.strip() for name in os.environ.get("FAULTS", "").split(",") if name.strip()] or list(FAULTS)
    found: dict[str, dict[str, Any]] = {}
    before = _reported()
    with bare_platform(tmp_path, jars) as platform, _monitored(platform) as url:
        eventually(lambda: _require_green(url), seconds=420, every=2)
        metrics = _get(f"{url}/metrics")[1]
        series = sum(not line.startswith("#") for line in metrics.splitlines())
        for name in chosen:
            found[name] = _one(platform, url, *FAULTS[name])
            figures = {"what": "seconds until /healthz was red, and green again", "series": series}
            report("health_red", figures | before | found)
    assert all(each["as promised"] for each in found.values()), found


def _reported() -> dict[str, dict[str, Any]]:
    """Return the figures of each fault in the last report."""
    last = CHECKOUT / "proof" / "health_red.json"
    said: dict[str, Any] = json.loads(last.read_text()) if last.exists() else {}
    return {name: of for name, of in said.items() if name in FAULTS}


def _one(platform: BarePlatform, url: str, effects: tuple[Effect, Effect], parts: tuple[str, ...]) -> dict[str, Any]:
    begin, end = effects
    begin(platform)
    begun, red, slowest = time.monotonic(), None, 0.0
    while red is None and time.monotonic() - begun < 2 * RED_WITHIN:
        asked = time.monotonic()
        status, text = _get(f"{url}/healthz")
        slowest = max(slowest, time.monotonic() - asked)
        named = {part["part"] for part in json.loads(text)["parts"] if part["state"] != "ok"}
        if status == 503 and named & set(parts):
            red = time.monotonic() - begun
        time.sleep(0.5)
    end(platform)
    ended, green = time.monotonic(), None
    while green is None and time.monotonic() - ended < 2 * GREEN_WITHIN:
        status, text = _get(f"{url}/healthz")
        if status == 200:
            green = time.monotonic() - ended
        time.sleep(1)
    good = red is not None and red <= RED_WITHIN and green is not None and slowest <= ANSWERED_WITHIN
    left = [] if green is not None else [part for part in json.loads(text)["parts"] if part["state"] != "ok"]
    return {
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
        "red after": red,
        "slowest answer": round(slowest, 1),
        "green after": green,
        "as promised": good,
        **({"left": left} if left else {}),
    }


@contextmanager
def _monitored(platform: BarePlatform) -> Iterator[str]:
    port = free_port()
    with (platform.folder / "metrics.log").open("ab") as log:
        process = subprocess.Popen(
            [_BIN / "tidemark", "metrics", "--port", str(port)], env=platform.environment, stdout=log, stderr=log
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _require_green(url: str) -> None:
    try:
        status, text = _get(f"{url}/healthz")
    except OSError as error:
        raise AssertionError(error) from error
    assert status == 200, text
