"""Seconds of `lock check`, `plan`, a preview of three days of core/orders with all marts below, and its publish.

A whole platform runs beside. Each command runs three times, the last two by turns with another change of the code.
Does not belong here: whether rows, quarantine and readers are right (`tests.proof.test_preview_orders_live`).
"""

import json
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from tests.live.platform import Platform
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.proof.edited_project import edit

DAYS, ROUNDS = 3, 3
RULES = ("0 AND 1", "0 AND 0.1", "0 AND 0.2", "0 AND 0.3")
"""The rule for discounts, before the first round and in each round."""
BELOW = ("marts.sales_hourly", "marts.sales_daily", "marts.order_stats", "marts.margin_hourly")
MOST = {"lock check": 3.0, "plan": 4.0, "preview": 25.0}
"""Most seconds on an idle machine."""
PUBLISH, A_PARTITION = 10.0, 0.1


@dataclass(frozen=True)
class Spent:
    """Time of one command.

    Args:
        cpu: CPU seconds of the command.
        platform_cpu: CPU seconds of the platform's processes meanwhile, with Spark's server.
    """

    seconds: float
    cpu: float
    platform_cpu: float


def test_plan_lock_preview_and_publish_take_seconds(platform: Platform, project: Path, report: Report) -> None:
    first = datetime.now(UTC).date() - timedelta(days=DAYS + 1)
    platform.pipelines("feed", "--once", "--start", f"{first}T00", "--hours", str(24 * DAYS))
    platform.observed(seconds=300)
    eventually(lambda: _has_all_days(platform), seconds=600, every=2)
    platform.quiet(seconds=300)
    spent: dict[str, list[Spent]] = {}
    partitions: list[int] = []
    lasts = f"{first}-00:00...{first + timedelta(days=DAYS - 1)}-23:00"
    chosen = ("--select", 'key:"core/orders" or key:"marts/*"', "--partitions", lasts)

    def timed(name: str, *arguments: str, code: int) -> str:
        before, begun = _cpu(platform), time.monotonic()
        own = _of_commands()
        said = platform.pipelines(*arguments, code=code, seconds=600).stdout
        took = Spent(time.monotonic() - begun, _of_commands() - own, _cpu(platform) - before)
        spent.setdefault(name, []).append(took)
        return said

    for number in range(ROUNDS):
        timed("lock check", "lock", "check", code=2 if number else 0)  # the lock of the edited code is not updated
        edit(project, _edits(number))
        timed("plan", "plan", code=2)
        previewed = json.loads(timed("preview", "plan", "--preview", "--json", *chosen, code=2))
        partitions.append(sum(len(each["partitions"]) for each in previewed["assets"]))
        platform.quiet()
        timed("publish", "plan", "--publish", code=0)
        platform.quiet(seconds=300)
    report(
        "plan-times",
        {
            "what": "seconds of each command, by rounds: a change of core/orders over three days, previewed, published",
            "partitions": partitions,
            "seconds": {name: [round(each.seconds, 1) for each in of] for name, of in spent.items()},
            "CPU seconds of the command": {name: [round(each.cpu, 1) for each in of] for name, of in spent.items()},
            "CPU seconds of the platform meanwhile": {
                name: [round(each.platform_cpu, 1) for each in of] for name, of in spent.items()
            },
            "most seconds on an idle machine": MOST | {"publish": PUBLISH + A_PARTITION * max(partitions)},
        },
    )
    assert all(count >= 3 * 72 for count in partitions)


def _edits(number: int) -> dict[str, list[tuple[str, str]]]:
    """Return the edits of a round: another rule, and the next code version."""
    rule = [(f'"discount BETWEEN {RULES[number]}"', f'"discount BETWEEN {RULES[number + 1]}"')]
    share = [("quarantine_share=0.01", "quarantine_share=0.95")] if not number else []
    version = [(f'code_version="{number + 1}"', f'code_version="{number + 2}"')]
    return {"pipelines/feeds/orders.py": rule + share, "pipelines/assets/core/orders.py": version}


def _has_all_days(platform: Platform) -> None:
    for name in BELOW:
        assert platform.table(name).num_rows
    assert platform.table("marts.executive_rollup").num_rows == DAYS


def _of_commands() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _cpu(platform: Platform) -> float:
    """Return the CPU seconds of the platform's processes, with those of their children that have ended."""
    found = 0.0
    for process in platform.processes():
        with suppress(psutil.Error):
            found += sum(process.cpu_times()[:4])
    return found
