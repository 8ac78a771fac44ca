"""A day of six faults on real processes, compressed to half an hour, and the messages that a person gets.

Daemon, code server, Spark, cloud and PostgreSQL are processes; messages go to a local server as signed webhooks. Each
fault must cause one opening and one closing message, in time, and nothing else may be sent. The times are computed from
when files were put and when rows were there. `LIVE_DAY_SECONDS` scales the day (1,800), and `FAULTS=the check raises`
plays only this fault. The machine must be idle: a sensor that cannot tick for half a minute is an incident, too.
`LIVE_DAY_START_SECONDS` (300) lets the platform start on a slower one. Does
not belong here: the code location (`tests.proof.live_day_location`), and exact predictions
(`tests.proof.test_incident_days`).
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dagster_tidemark.incidents.incident import CauseKind, MessageKind
from dagster_tidemark.lakehouse.append import open_lake
from tests.live.waiting import eventually
from tests.proof import live_day_location as location
from tests.proof.bare_platform import BarePlatform, bare_platform
from tests.proof.conftest import Report
from tests.tidemark.incidents.servers import HttpServer, http_server

SECONDS = float(os.environ.get("LIVE_DAY_SECONDS", "1800"))
CONTRACT = location.CONTRACT.total_seconds()
OPENED_WITHIN = 30.0
"""From the breach to the message. The message may come earlier, if the breach cannot be avoided."""
CLOSED_WITHIN = 60.0 + 40.0
"""From the last row to the message: a minute in which nothing is late, two sensors, and a busy machine."""
_SECONDS_TO_START = float(os.environ.get("LIVE_DAY_START_SECONDS", "300"))
_HELD = CONTRACT + OPENED_WITHIN + 15


@dataclass
class Day:
    """A running day: its platform, the files that it breaks things with, and the messages so far.

    Args:
        begin: Due time of the file that does not come (Unix seconds).
        messages: Time of receipt and body of each message.
    """

    platform: BarePlatform
    room: Path
    server: HttpServer
    begin: float
    messages: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def hour(self, number: int) -> datetime:
        """Return the hour that a fault is about: hour 0 is the one whose file is due, the others are before it."""
        return datetime.fromtimestamp(location.window_end(self.begin) - 3600 * (number + 1), UTC)

    def deliver(self, number: int) -> None:
        """Put the file of an hour into the bucket."""
        hour = self.hour(number)
        key = f"tills/dt={hour:%Y-%m-%d}/hour={hour:%H}/{time.time_ns()}.csv"
        body = f"sale_id,amount_usd\n{time.time_ns()},2.50\n"
        eventually(lambda: self.platform.put(key, body), seconds=60, every=1)

    def has_row(self, number: int) -> None:
        """Assert that the takings have a row of an hour."""
        lake, at = open_lake(self.platform.settings), f"{self.hour(number):%Y-%m-%dT%H:%M:%S}+00:00"
        assert lake.table_exists("marts.takings"), "no table yet"
        found = lake.load_table("marts.takings").scan(f"hour = '{at}'").to_arrow().num_rows
        assert found == 1, f"no takings of {at}"

    def break_(self, name: str) -> None:
        """Let the transform fail, or the check raise."""
        (self.room / "broken" / name).touch()

    def mend(self, name: str) -> None:
        """Correct it."""
        (self.room / "broken" / name).unlink()

    def collect(self, over: threading.Event) -> None:
        """Note each message with the time at which it came."""
        while not over.wait(0.1):
            for post in self.server.posts[len(self.messages) :]:
                self.messages.append((time.time(), post.json()))


@dataclass(frozen=True)
class Fault:
    """A fault of the day.

    Args:
        kind: Kind of its cause.
        named: Text that the cause contains.
        begin: Begins it, and delivers the file of its hour if the cloud can take files.
        end: Ends it, as a person would.
    """

    name: str
    kind: CauseKind
    named: str
    begin: Callable[[Day, int], None]
    end: Callable[[Day, int], None]


def _delivering(effect: Callable[[Day], Any]) -> Callable[[Day, int], None]:
    def _begin(day: Day, number: int) -> None:
        effect(day)
        day.deliver(number)

    return _begin


def _only(effect: Callable[[Day], Any]) -> Callable[[Day, int], None]:
    return lambda day, _: effect(day)


def _not_delivered(day: Day, _: int) -> None:
    time.sleep(max(0.0, day.begin - time.time()))


def _queue(day: Day, *, exists: bool) -> None:
    sqs, name = day.platform.aws("sqs"), day.platform.settings.events_queue
    if exists:
        sqs.create_queue(QueueName=name)
    else:
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])


FAULTS = [
    Fault("the source does not deliver", CauseKind.MISSING, "raw/tills", _not_delivered, Day.deliver),
    Fault(
        "the transform fails",
        CauseKind.FAILING,
        "marts/takings",
        _delivering(lambda day: day.break_("takings")),
        _only(lambda day: day.mend("takings")),
    ),
    Fault(
        "the check raises",
        CauseKind.CHECK,
        "sane",
        _delivering(lambda day: day.break_("sane")),
        _only(lambda day: day.mend("sane")),
    ),
    Fault(
        "the engine is stopped",
        CauseKind.PLATFORM,
        "Spark",
        _delivering(lambda day: day.platform.signal("spark", signal.SIGSTOP, family=True)),
        _only(lambda day: day.platform.signal("spark", signal.SIGCONT, family=True)),
    ),
    Fault(
        "the queue of notifications is gone",
        CauseKind.PLATFORM,
        "queue",
        _only(lambda day: _queue(day, exists=False)),
        _delivering(lambda day: _queue(day, exists=True)),
    ),
    Fault(
        "the sensor automation is off",
        CauseKind.PLATFORM,
        "automation",
        _delivering(lambda day: day.platform.switch("automation", "stop")),
        _only(lambda day: day.platform.switch("automation", "start")),
    ),
]


def test_six_faults_of_a_live_day_cause_one_opening_and_one_closing_message_each(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    begin = round(time.time() + _SECONDS_TO_START)
    (tmp_path / "broken").mkdir()
    chosen = {name.strip() for name in os.environ.get("FAULTS", "").split(",") if name.strip()}
    over, told = threading.Event(), dict[str, dict[str, Any]]()
    with http_server((200, {}, "")) as server:
        variables = {"FOLDER": str(tmp_path), "BEGIN": str(begin), "URL": server.url, "SECRET": "day"}
        for name, value in variables.items():
            monkeypatch.setenv(f"LIVE_DAY_{name}", value)
        module = location.__name__
        with bare_platform(tmp_path / "platform", jars, module=module, contract_scale=1.0) as platform:
            day = Day(platform, tmp_path, server, begin)
            collector = threading.Thread(target=day.collect, args=(over,))
            collector.start()
            try:
                _warm_up(day)
                if chosen and FAULTS[0].name not in chosen:
                    day.deliver(0)
                for number, fault in enumerate(FAULTS):
                    if chosen and fault.name not in chosen:
                        continue
                    told[fault.name] = _one(day, number, fault)
                    _write(report, day, told)  # kept if a later fault ends the day
            finally:
                over.set()
                collector.join()
    wrong = {name: found["faults"] for name, found in told.items() if found["faults"]}
    assert not wrong, wrong
    known = {found["incident"] for found in told.values()}
    assert {message["incident"]["id"] for _, message in day.messages} == known, "an incident that no fault caused"


def _warm_up(day: Day) -> None:
    """Build two hours, so that tables exist and durations of runs are known."""
    for number in (len(FAULTS), len(FAULTS) + 2):
        day.deliver(number)
        eventually(lambda number=number: day.has_row(number), seconds=_SECONDS_TO_START, every=1)
    assert time.time() < day.begin, "the platform took too long to start: the missing file is already due"


def _one(day: Day, number: int, fault: Fault) -> dict[str, Any]:
    """Play a fault, and return its messages and what is wrong with them."""
    first, slot = len(day.messages), time.time()
    fault.begin(day, number)
    begun = time.time()
    promised = begun if fault.kind is CauseKind.MISSING else begun + CONTRACT
    time.sleep(max(0.0, (begun if number else day.begin) + _HELD * max(1.0, SECONDS / 1800) - time.time()))
    fault.end(day, number)
    ended = time.time()
    lacks = _lack(day, number)
    recovered = time.time()
    _wait(lambda: any(m["kind"] == MessageKind.CLOSED for _, m in day.messages[first:]), recovered + 2 * CLOSED_WITHIN)
    _wait(lambda: False, max(slot + SECONDS / len(FAULTS), time.time() + 15))
    sent = day.messages[first:]
    of_kind = {kind: [(at, m) for at, m in sent if m["kind"] == kind] for kind in MessageKind}
    opened, closed = of_kind[MessageKind.OPENED], of_kind[MessageKind.CLOSED]
    faults = [lacks] if lacks else []
    if len(opened) != 1 or len(closed) != 1:
        faults.append(f"{len(opened)} opening and {len(closed)} closing messages")
    if opened:
        at, message = opened[0]
        cause = message["incident"]["cause"]
        if cause["kind"] != fault.kind or fault.named not in f"{cause['subject']} {cause['said']}":
            faults.append(f"expected {fault.kind}: {fault.named}, found {cause}")
        if not begun - 1 <= at <= promised + OPENED_WITHIN:
            faults.append(f"opened {at - promised:.1f} s after the breach")
    if closed and not ended <= closed[0][0] <= recovered + CLOSED_WITHIN:
        faults.append(f"closed {closed[0][0] - recovered:.1f} s after the last row")
    return {
        "opened, s after the fault began": [round(at - begun, 1) for at, _ in opened],
        "opened, s after the breach": [round(at - promised, 1) for at, _ in opened],
        "rows again, s after its end": round(recovered - ended, 1),
        "closed, s after the rows": [round(at - recovered, 1) for at, _ in closed],
        "incident": opened[0][1]["incident"]["id"] if opened else "",
        "faults": faults,
        "messages": [message["text"].split("\n") for _, message in sent],
    }


def _lack(day: Day, number: int) -> str:
    """Wait for the takings of an hour. Return what is wrong with them, so that a fault does not end the day."""
    try:
        eventually(lambda: day.has_row(number), seconds=300, every=0.5)
    except AssertionError as error:
        return str(error)
    return ""


def _wait(is_over: Callable[[], bool], until: float) -> None:
    while not is_over() and time.time() < until:
        time.sleep(0.5)


def _write(report: Report, day: Day, told: dict[str, dict[str, Any]]) -> None:
    figures = {
        "seconds of the day": SECONDS,
        "contract, s": CONTRACT,
        "messages": len(day.messages),
        "opened within, s after the breach": OPENED_WITHIN,
        "closed within, s after the rows": CLOSED_WITHIN,
        "faults": told,
    }
    report("live-day", figures)
