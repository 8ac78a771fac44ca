"""A shift among faults at every call that leaves the process: nothing is lost or doubled, and the run never fails."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy.exc import OperationalError

from dagster_tidemark.lakehouse.append import Appendable, CatalogUnavailable, open_lake
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import FakeMessageSource, Message
from dagster_tidemark.streams import shift as shift_module
from dagster_tidemark.streams import shift_retries
from dagster_tidemark.streams.alerts.worker import Alerts
from tests.conftest import make_settings
from tests.tidemark.streams import toy
from tests.tidemark.streams.test_stream_table import Log

SEEDS = range(int(os.environ.get("SHIFT_SEEDS", "2")))
_CALLS: list[tuple[type[Any], str]] = [
    (Appendable, "refresh"),
    (Appendable, "rows"),
    (Appendable, "appended_since"),
    (Appendable, "expire"),
    (Appendable, "planned_rows"),
    (FakeMessageSource, "receive"),
    (FakeMessageSource, "send"),
    (Log, "receive"),
    (toy.Heard, "observed"),
    (toy.Heard, "materialized"),
    (toy.Heard, "refused"),
]


def world(dice: random.Random) -> Exception:
    return dice.choice([OSError("disk"), OperationalError("locked", {}, Exception()), CatalogUnavailable("locked")])


@contextmanager
def faults(dice: random.Random) -> Iterator[Callable[[bool], None]]:
    """Let one call of eight fail, and commits before or after they are done. Yields a switch."""
    on = [False]

    def failing(went: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **more: Any) -> Any:
            if on[0] and dice.random() < 0.12:
                raise world(dice)
            return went(*arguments, **more)

        return called

    def commit(self: Appendable, change: Any, went: Callable[..., Any] = Appendable.commit) -> Any:
        seen, location = self._loaded.metadata, self._loaded.metadata_location
        if on[0] and dice.random() < 0.1:
            raise world(dice)
        head = went(self, change)
        if on[0] and dice.random() < 0.1:
            self._loaded.metadata, self._loaded.metadata_location = seen, location  # the writer gets no answer
            raise CatalogUnavailable("the connection broke")
        return head

    with ExitStack() as stack:
        for owner, name in _CALLS:
            stack.enter_context(patch.object(owner, name, failing(getattr(owner, name))))
        stack.enter_context(patch.object(Appendable, "commit", commit))
        for module in (shift_retries, shift_module):
            stack.enter_context(patch.object(module, "LONGEST_BACKOFF", 0.01))
        for name in ("_LINGER_SECONDS", "_WAIT_SECONDS", "_WAIT_EACH_SECONDS"):
            stack.enter_context(patch.object(shift_module, name, 0.0))
        stack.enter_context(patch.object(shift_module, "_ENTER_EVERY", 0.2))

        def switch(value: bool) -> None:
            on[0] = value

        yield switch


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_lose_or_double_nothing_and_fail_no_shift(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    stream = toy.stream_with_alerts(toy.new_name(), quiet=timedelta(0))
    queue, out, log, heard = FakeMessageSource(max_receives=3), FakeMessageSource(), Log(), toy.Heard()
    shift = toy.shift(stream, settings, [QueueInlet("memory:pings", lambda: queue), log], heard)
    assert isinstance(shift._reaction, Alerts)
    shift._reaction.outlet = out
    truth: dict[tuple[str, int], float] = {}
    junk = []
    with faults(dice) as switch:
        switch(True)
        shift._catch_up()
        for n in range(25):
            gadget, minute, strength = f"g{dice.randrange(4)}", dice.randrange(60), dice.choice([1.0, 9.0])
            if (gadget, minute) not in truth:
                truth[gadget, minute] = strength
                body = toy.ping(gadget, minute=minute, strength=strength)
                log.send(body) if dice.random() < 0.5 else queue.waiting.append(message(queue, body))
            if dice.random() < 0.3:
                junk.append(f"junk {n}")
                log.send(junk[-1]) if dice.random() < 0.5 else queue.waiting.append(message(queue, junk[-1]))
            shift.step()
            if dice.random() < 0.2:
                queue.redeliver()
        switch(False)
        for _ in range(4):
            queue.redeliver()
            shift._lines[0].again_at = shift._lines[1].again_at = shift._entering.again_at = 0.0
            shift._reporting.again_at = 0.0
            shift.reports._refused_at = float("-inf")  # the quarantine is counted every ten seconds at most
            shift.step()
    rows = toy.kept(stream, settings)
    assert sorted((r["gadget"], round((r["at"] - toy.HOUR).total_seconds() / 60)) for r in rows) == sorted(truth)
    entries = Appendable(open_lake(settings), QUARANTINE).rows().to_pylist()
    assert sorted(entry["content"] for entry in entries) == sorted(junk)
    alerts = Appendable(open_lake(settings), toy.alerts(stream.name)).rows().to_pylist()
    standing = [a for a in alerts if a["retracted_at"] is None]
    assert sorted(
        (a["gadget"], round((a["episode_started_at"] - toy.HOUR).total_seconds() / 60)) for a in standing
    ) == toy.expected(truth)
    assert {partition for _, partition, _, _ in heard.observations} == {stream.key_of(row["hour"]) for row in rows}, (
        "each partition is reported"
    )
    assert sum(heard.quarantined.values()) == len(junk)


def message(queue: FakeMessageSource, body: str) -> Message:
    queue.sent += 1
    return Message(body, receipt=str(queue.sent), message_id=f"message-{queue.sent}", sent_at=time.time())
