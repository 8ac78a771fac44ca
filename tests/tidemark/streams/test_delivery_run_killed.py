"""Runs at deliveries that are killed, or stop and go on after they were taken for dead: real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from dagster_tidemark.settings import Settings
from tests.live.waiting import eventually
from tests.sampling import sample
from tests.tidemark.streams import partner as toys
from tests.tidemark.streams.partner import Partner, csv, line


@pytest.fixture
def partner(cloud: Settings, spark_server: Settings) -> Partner:
    return Partner(toys.declared(toys.new_name()), cloud)


@contextmanager
def process(partner: Partner, log: Path, **told: str) -> Iterator["subprocess.Popen[bytes]"]:
    environment = os.environ | partner.settings.exports() | told
    command = [sys.executable, "-m", "tests.tidemark.streams.deliverer", partner.of.name]
    with log.open("ab") as output:
        found = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield found
    finally:
        if found.poll() is None:
            found.kill()
            found.wait(10)


@pytest.mark.parametrize(
    "boundary", sample(["before_commit", "stream_committed", "stream_published"], "stream_committed")
)
def test_message_of_a_killed_delivery_run_is_answered_without_a_second_load(
    partner: Partner, tmp_path: Path, boundary: str
) -> None:
    partner.post("d-1", partner.put("d-1", "a.csv", csv(line(1), line(2))))
    with process(partner, tmp_path / "log", TIDEMARK_KILL_AT=f"{boundary}:1") as victim:
        victim.wait(90)
    assert victim.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()[-2000:]
    before = partner.sent()
    answer = partner.answer()
    assert (answer["status"], answer["rows"]) == ("loaded", 2)
    assert before in ([], [answer])
    assert (partner.commits(), len(partner.heard.materializations)) == (1, 1)


def test_resumed_delivery_run_does_not_overwrite_a_correction(partner: Partner, tmp_path: Path) -> None:
    old = [partner.put("d-1", "a.csv", csv(line(1))), partner.put("d-1", "b.csv", csv(line(2)))]
    partner.post("d-1", *old)
    with process(partner, tmp_path / "log", TIDEMARK_STOP_AT="before_commit:1") as sleeper:

        def has_stopped() -> None:
            assert psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED

        eventually(has_stopped, seconds=90)
        partner.post("d-1", partner.put("d-1", "c.csv", csv(line(1, quantity=7))))
        run, statuses = partner.run(), dict[str, str]()
        while statuses.get("c.csv") is None:
            run.step()
            statuses |= {answer["files"][0]["key"]: answer["status"] for answer in partner.sent() if answer["files"]}
        run.inlet.close()
        assert statuses["c.csv"] == "loaded"
        sleeper.send_signal(signal.SIGCONT)
        sleeper.wait(90)
    assert partner.rows() == [("d-1", 1, 1, 7)]
    assert [answer["status"] for answer in partner.sent()] == ["superseded"]
