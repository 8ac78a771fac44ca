"""Faults under Dagster's own launcher and queue: `status` names each, and afterwards rows arrive again by themselves.

`FAULTS=spark stopped,code killed` runs only these faults. A fault holds for `HELD` seconds.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tests.live.waiting import eventually
from tests.proof.bare_platform import BarePlatform, Status, bare_platform
from tests.proof.conftest import Report

NAMED_WITHIN, ROWS_WITHIN, HELD = 30.0, 60.0, 90.0
_HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"


@dataclass(frozen=True)
class Fault:
    """A fault, its end, and words for its cause. `status` has to print one of the words.

    Args:
        blinds: Whose contracts nobody can judge while the fault lasts; None if that is so of all.
        heals: The platform repairs it by itself. No cause has to be named if a message sent at the start is a row
            within the same time.
    """

    name: str
    begin: Callable[[BarePlatform], Any]
    end: Callable[[BarePlatform], Any]
    words: tuple[str, ...]
    blinds: frozenset[str] | None = None
    heals: bool = False


def _stopped(part: str, *words: str) -> Fault:
    return Fault(
        f"{part} stopped",
        lambda p: p.signal(part, signal.SIGSTOP, family=True),
        lambda p: p.signal(part, signal.SIGCONT, family=True),
        words,
    )


def _killed(part: str, *words: str) -> Fault:
    return Fault(f"{part} killed", lambda p: p.kill(part), lambda p: p.start(part), words)


def _to_shifts(number: signal.Signals) -> Callable[[BarePlatform], None]:
    def send(platform: BarePlatform) -> None:
        for process in platform.shifts():
            process.send_signal(number)

    return send


def _nothing(_: BarePlatform) -> None:
    """Do nothing, because the platform repairs the fault by itself."""


def _delete_queue(name: str) -> Callable[[BarePlatform], None]:
    def delete(platform: BarePlatform) -> None:
        sqs = platform.aws("sqs")
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])

    return delete


def _create_queue(name: str) -> Callable[[BarePlatform], None]:
    return lambda platform: platform.aws("sqs").create_queue(QueueName=name)


def _switch(sensor: str, to: Literal["start", "stop"]) -> Callable[[BarePlatform], None]:
    def switch(platform: BarePlatform) -> None:
        platform.switch(sensor, to)
        if (sensor, to) == ("streams", "stop"):  # a shift that runs needs no sensor until it ends
            time.sleep(15)  # the sensor's tick under way would start shifts in the place of killed ones
            _to_shifts(signal.SIGKILL)(platform)

    return switch


def _deploy_broken_code(platform: BarePlatform) -> None:
    platform.kill("code")
    platform.start("code", TIDEMARK_CONTRACT_SCALE="a typing error")


def _deploy_code(platform: BarePlatform) -> None:
    platform.kill("code")
    platform.start("code")


_CLOUD = ("S3", "bucket", "queue")
_OF_READINGS = frozenset({"core/readings", "marts/hot_spots"})
_OF_FILES = frozenset({"core/orders", "marts/sales_hourly", "marts/sales_daily", "marts/margin_hourly"})
FAULTS = [
    _stopped("spark", "Spark"),
    _killed("spark", "Spark"),
    _stopped("cloud", *_CLOUD),
    _killed("cloud", *_CLOUD),
    _stopped("code", "code server", "sensor"),
    _killed("code", "code server", "sensor"),
    _stopped("daemon", "sensor", "last"),
    _killed("daemon", "sensor", "last"),
    _stopped("postgres", "storage is unreachable"),
    # Other runs take the place of the killed or stopped shifts: the contracts are met again while the fault "holds".
    Fault("shifts killed", _to_shifts(signal.SIGKILL), _nothing, ("shift",), frozenset(), heals=True),
    Fault("shifts stopped", _to_shifts(signal.SIGSTOP), _to_shifts(signal.SIGCONT), ("shift",), frozenset()),
    Fault(
        "readings queue gone",
        _delete_queue("cold-chain-readings"),
        _create_queue("cold-chain-readings"),
        ("cold-chain-readings",),
        _OF_READINGS,
    ),
    *(
        Fault(f"{name} queue gone", _delete_queue(name), _create_queue(name), (name,), frozenset())
        for name in ("scoring-requests", "deliveries")
    ),
    Fault("credentials refused", lambda p: p.refuse_credentials(True), lambda p: p.refuse_credentials(False), _CLOUD),
    Fault("catalog locked", BarePlatform.lock_catalog, BarePlatform.unlock_catalog, ("catalog",)),
    _killed("postgres", "storage is unreachable"),
    Fault("code cannot be loaded", _deploy_broken_code, _deploy_code, ("code server",)),
    *(
        Fault(f"sensor {name} off", _switch(name, "stop"), _switch(name, "start"), (f"{name} is switched off",), blinds)
        for name, blinds in (("landing", _OF_FILES), ("automation", _OF_FILES), ("streams", _OF_READINGS))
    ),
    Fault("events queue gone", _delete_queue("landing-events"), _create_queue("landing-events"), ("queue",), _OF_FILES),
]


def test_status_reports_each_fault_and_rows_are_loaded_afterwards(tmp_path: Path, jars: Path, report: Report) -> None:
    chosen = {name.strip() for name in os.environ.get("FAULTS", "").split(",") if name.strip()}
    found: dict[str, dict[str, Any]] = {}
    what = "seconds until status named the cause, and until rows came again"
    with bare_platform(tmp_path, jars) as platform:
        eventually(lambda: _require(platform.status().code == 0, "not met at first"), seconds=240, every=2)
        for fault in FAULTS:
            if not chosen or fault.name in chosen:
                found[fault.name] = _one(platform, fault)
                report("faults_named", {"what": what, "faults": found})  # kept if a later fault ends the test
    wrong = {name: each for name, each in found.items() if not each["as promised"]}
    assert found and not wrong, wrong


def _one(platform: BarePlatform, fault: Fault) -> dict[str, Any]:
    held, named = float(os.environ.get("HELD", HELD)), None
    met_while_blind: set[str] = set()
    said: list[str] = []
    fault.begin(platform)
    begun = time.monotonic()
    reading = platform.send_reading() if fault.heals else None
    healed: float | None = None
    while time.monotonic() - begun < held:
        status = platform.status()
        after = time.monotonic() - begun
        if named is None and _names(status, fault):
            named = after - status.seconds  # the time of the look that the answer reports
        if after - status.seconds > NAMED_WITHIN:
            met = {key for key, state in status.states().items() if state == "met"}
            met_while_blind |= met if fault.blinds is None else met & fault.blinds
        told = f"exit {status.code}: {_told(status)}"
        said += [told] if told not in said else []
        if reading is not None and healed is None and platform.has_reading(reading):
            healed = time.monotonic() - begun
    fault.end(platform)
    rows = _seconds_until_rows(platform)
    found = {"healed after": healed} if fault.heals else {}
    found |= {"named after": named, "met while blind": sorted(met_while_blind), "rows after": rows}
    good = any(after is not None and after <= NAMED_WITHIN for after in (named, healed))
    good = good and rows is not None and rows <= ROWS_WITHIN and not met_while_blind
    return found | {"as promised": good} | ({} if good else {"status said": said[:20]})


def _names(status: Status, fault: Fault) -> bool:
    return status.code != 0 and any(word in _told(status) for word in fault.words)


def _told(status: Status) -> str:
    rows = status.rows.values()
    causes = dict.fromkeys(cause["said"] for row in rows for cause in row["causes"])  # each once, as a person reads it
    reasons = [*(row["reason"] for row in rows), *(row["stream"]["hindrance"] for row in rows if row.get("stream"))]
    told = dict.fromkeys([status.error.strip(), *causes, *(str(reason or "") for reason in reasons)])
    return " | ".join(filter(None, told))


def _seconds_until_rows(platform: BarePlatform) -> float | None:
    begun = time.monotonic()
    number = int(time.time())
    hour = datetime.now(UTC)
    line = f"{number},1,1,101,1,3,2.50,0.1,{hour:%Y-%m-%dT%H}:00:00Z\n"
    key = f"orders/dt={hour:%Y-%m-%d}/hour={hour:%H}/fault-{number}.csv"
    eventually(lambda: platform.put(key, _HEADER + line), seconds=60, every=1)
    try:
        eventually(lambda: _require(platform.has_order(number), "no row yet"), seconds=180, every=1)
    except AssertionError:
        return None
    return time.monotonic() - begun


def _require(holds: bool, otherwise: str) -> None:
    assert holds, otherwise
