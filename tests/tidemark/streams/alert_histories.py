"""Histories of readings that come shuffled, twice, late, corrected or never, to writers that die, overlap and sleep.

After every batch that was followed, the alerts that stand are the episodes that are worth one, and go on as
`episodes_oracle` says. Nothing is carried from batch to batch but what the two tables keep. Does not belong here: the
rule, which is the user's; a history is played with any that says what the oracle says.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from dagster_tidemark.execution.alert_episodes import Reevaluated, Reevaluation
from dagster_tidemark.lakehouse.append import TableCommit, rows_of
from dagster_tidemark.lakehouse.table import MESSAGE, Table
from dagster_tidemark.streams import timeline
from dagster_tidemark.streams.alerts import worker as alert_worker
from dagster_tidemark.streams.alerts.declaration import Alerting, Rule
from dagster_tidemark.streams.alerts.identity import Episode
from dagster_tidemark.streams.alerts.worker import Alerts
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from tests.tidemark.streams.episodes_oracle import Standing, episodes, faults_of_ids, overlapping
from tests.tidemark.streams.memory_table import MemoryLake, MemoryTable
from tests.tidemark.streams.readings_sent import Message, messages_of

FIELDS = {"device_id": "string", "store_id": "bigint", "read_at": "timestamp", "temperature_c": "double"}
MESSAGES = Table("raw.told", {"hour": "timestamp"} | FIELDS | MESSAGE, ("message_id",), partitioned_by="hour")
ALERTS = Table(
    "alerts.told",
    {"alert_id": "string", "rule": "string", "device_id": "string", "store_id": "bigint"}
    | dict.fromkeys(("episode_started_at", "raised_at", "retracted_at"), "timestamp")
    | {"raised_in": "bigint", "retracted_in": "bigint"},
    ("alert_id",),
)


class ByOracle:
    """The rule, as the oracle has it."""

    name = "too_warm"
    silence = timedelta(minutes=15)

    def closes(self, fields: Mapping[str, Any]) -> bool:
        return bool(fields["temperature_c"] < 6.0)

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> list[Episode]:
        found = episodes({each["read_at"]: each["temperature_c"] for each in said})
        return [Episode(first, last) for first, last in found]


@dataclass
class _Writer:
    alerts: Alerts
    saw: int | None = None
    """The head of the table of alerts that it has seen last."""
    followed: int | None = None


@dataclass
class Play:
    """A history, as it is played."""

    rule: Rule
    dice: random.Random = field(default_factory=random.Random)
    lake: MemoryLake = field(default_factory=MemoryLake)
    sent: list[dict[str, Any]] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    _degrees: dict[int | None, dict[str, dict[datetime, float]]] = field(default_factory=lambda: {None: {}})
    _retracted: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reaction = Alerting(self.rule, ALERTS, "device_id", "alerts", ("store_id",))
        self.stream = Stream("told", MESSAGES, queue="told", required=tuple(FIELDS), time="read_at")
        self.kept = MemoryTable(self.lake, MESSAGES)
        self.writers = [self._writer(), self._writer()]

    def _writer(self) -> _Writer:
        self.told["shifts"] += 1
        return _Writer(Alerts(self.reaction, self._place(), self))

    def _place(self) -> StreamContext:
        return StreamContext(None, self.lake, self.stream)  # type: ignore[arg-type]

    def send(self, bodies: Sequence[str]) -> None:
        """As the queue of alerts: take these."""
        self.sent += [json.loads(body) for body in bodies]

    def alerts(self) -> list[Mapping[str, Any]]:
        """The rows of the table of alerts, as they are."""
        return MemoryTable(self.lake, ALERTS).rows().to_pylist()

    def deliver(self, batch: Sequence[Message]) -> None:
        """The run that receives them commits those that are new."""
        known = {row["message_id"] for row in self.kept.rows()}
        new = [dict(each) for each in {each["message_id"]: each for each in batch}.values()]
        new = [each for each in new if each["message_id"] not in known]
        self.kept.commit(TableCommit(rows_of(self.kept.schema, new)))
        latest: dict[tuple[str, datetime], Message] = {}
        for row in sorted(self.kept.rows(), key=lambda row: (row["sent_at"], row["message_id"])):
            latest[row["device_id"], row["read_at"]] = row
        degrees: dict[str, dict[datetime, float]] = defaultdict(dict)
        for (device, at), row in latest.items():
            degrees[device][at] = row["temperature_c"]
        self._degrees[self.kept.head] = degrees
        self.told["batches"] += 1

    def follow(self, number: int) -> None:
        """One of the runs raises and retracts what follows, and is judged."""
        writer, table = self.writers[number], MemoryTable(self.lake, ALERTS)
        before = table.rows().to_pylist()
        # Another one's changes are followed from where that has come to.
        is_own = writer.saw == table.head and writer.followed is not None
        incorporated = table.mark(alert_worker.INCORPORATES)
        through = writer.followed if is_own else None if incorporated is None else int(incorporated)
        is_expired = through is not None and self.kept.appended_since(through) is None
        writer.alerts.react(self.kept.rows())  # type: ignore[arg-type]
        table.refresh()
        writer.saw, writer.followed = table.head, self.kept.head
        # Of what has expired nobody can say any more what was known, and so for how long an episode had lasted.
        self._judge(before, table.rows().to_pylist(), None if is_expired else self._degrees[through])

    def reevaluate(self, rule: Rule | None = None, meanwhile: Callable[[], None] = lambda: None) -> Reevaluated:
        """All alerts are worked out anew, by another rule or the same, and judged where it is the same.

        Args:
            meanwhile: Happens while the episodes are found.
        """
        table = MemoryTable(self.lake, ALERTS)
        before, incorporated = table.rows().to_pylist(), table.mark(alert_worker.INCORPORATES)
        is_known = incorporated is not None and self.kept.has(int(incorporated))
        through = int(incorporated) if incorporated is not None and is_known else self.kept.head
        reaction = replace(self.reaction, rule=rule or self.rule)
        work = Reevaluation(reaction, self._place(), self)

        def found(snapshot: int | None) -> dict[str, Sequence[Episode]]:
            meanwhile()
            told = {d: [_said(*each) for each in sorted(c.items())] for d, c in self._degrees[snapshot].items()}
            by_device = {device: reaction.rule.episodes(said) for device, said in told.items()}
            return {device: of_device for device, of_device in by_device.items() if of_device}

        done = work.work(found)
        table.refresh()
        if rule is None:
            self._judge(before, table.rows().to_pylist(), self._degrees[through])
        self.told["evaluations of all history"] += 1
        return done

    def _judge(
        self,
        before: Sequence[Mapping[str, Any]],
        rows: Sequence[Mapping[str, Any]],
        known: Mapping[str, Mapping[datetime, float]] | None,
    ) -> None:
        assert len({row["alert_id"] for row in rows}) == len(rows), "an alert is there twice"
        assert {row["alert_id"] for row in before} <= {row["alert_id"] for row in rows}, "an alert is gone"
        for row in rows:
            gone = self._retracted.get(row["alert_id"])
            assert gone is None or gone == row, "what was retracted has changed"
            if row["retracted_in"] is not None:
                self._retracted[row["alert_id"]] = row
            assert (row["retracted_in"] is None) == (row["retracted_at"] is None)
        for device, degrees in self._degrees[self.kept.head].items():
            after = episodes(degrees)
            now = {r["episode_started_at"]: r["alert_id"] for r in _standing(rows, device)}
            assert sorted(now) == [start for start, _ in after], f"{device}: other alerts stand than there are episodes"
            assert len(now) == len(_standing(rows, device)), "two alerts stand for one episode"
            were = [Standing(r["alert_id"], r["episode_started_at"], r["raised_in"]) for r in _standing(before, device)]
            if known is not None:
                overlaps = overlapping(were, episodes(known.get(device, {})), after)
                faults = faults_of_ids(were, overlaps, now)
                assert not faults, "\n".join(faults)
                self._count(were, now, overlaps)

    def _count(
        self,
        were: Sequence[Standing],
        now: Mapping[datetime, str],
        overlaps: Mapping[datetime, Sequence[Standing]],
    ) -> None:
        starts = {alert_id: start for start, alert_id in now.items()}
        ids = {alert.alert_id for alert in were}
        self.told["kept"] += sum(starts.get(alert.alert_id) == alert.started_at for alert in were)
        self.told["moved"] += sum(starts.get(alert.alert_id, alert.started_at) != alert.started_at for alert in were)
        self.told["raised"] += len(starts.keys() - ids)
        self.told["retracted"] += len(ids - starts.keys())
        self.told["merged"] += sum(len(could) > 1 for could in overlaps.values())
        self.told["split"] += sum(
            times > 1 for times in Counter(a for could in overlaps.values() for a in could).values()
        )

    def judge_what_was_sent(self) -> None:
        """Each alert was raised on the wire, and retracted after that if it was; whatever came twice is equal."""
        self.writers[0] = self._writer()
        self.writers[0].alerts.publish()
        heard: dict[str, list[str]] = defaultdict(list)
        for message in self.sent:
            heard[message["alert_id"]].append(message["kind"])
        rows = {row["alert_id"]: row for row in self.alerts()}
        assert heard.keys() == rows.keys()
        for alert_id, kinds in heard.items():
            assert kinds[0] == "raise", "the first that is heard of an alert is no raise"
            assert ("retract" in kinds) == (rows[alert_id]["retracted_in"] is not None)
        numbers = {(m["alert_id"], m["kind"]): m["sequence"] for m in self.sent}
        for (alert_id, kind), number in numbers.items():
            assert number == rows[alert_id]["raised_in" if kind == "raise" else "retracted_in"]


def _said(at: datetime, degrees: float) -> dict[str, Any]:
    return {"read_at": at, "temperature_c": degrees, "store_id": 0}


def _standing(rows: Sequence[Mapping[str, Any]], device: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["device_id"] == device and row["retracted_in"] is None]


def play(seed: int, rule: Rule) -> Counter[str]:
    """Play the history of a seed. Returns what was in it.

    Raises:
        AssertionError: an alert stands, goes on or was sent that should not, or the other way round.
    """
    dice = random.Random(seed)
    waiting = messages_of(dice)
    with ExitStack() as stack:
        stack.enter_context(patch.object(alert_worker, "Appendable", MemoryTable))
        stack.enter_context(patch.object(alert_worker, "_MARK_EVERY_SECONDS", dice.choice((0.0, 1e9))))
        stack.enter_context(patch.object(timeline, "_MOST", dice.choice((8, 400_000))))
        played = Play(rule, dice)
        played.told["readings"] = len(waiting)
        batch: Sequence[Message] = ()
        while waiting:
            size = dice.choice((1, 2, 5, 15))
            again = dice.sample(batch, len(batch) // 3)  # redelivered
            batch, waiting = [*waiting[:size], *again], waiting[size:]
            played.deliver(batch)
            happens(played, dice)
        played.follow(0)
        before = played.alerts()
        played.deliver(batch)  # once more, as if the last run had died before it acknowledged
        played.writers[1] = played._writer()
        played.follow(1)
        assert played.alerts() == before, "the last batch, delivered again, changed something"
        played.judge_what_was_sent()
    return played.told


def happens(played: Play, dice: random.Random) -> None:
    """What becomes of a batch that is committed: it is followed, and sent, or its run has died before."""
    if dice.random() < 0.15:
        played.told["deaths before the alerts"] += 1
        if dice.random() < 0.3:
            played.reevaluate()
        return
    number = dice.choice((0, 0, 0, 1))
    if dice.random() < 0.2:
        played.writers[number] = played._writer()
    played.follow(number)
    if dice.random() < 0.1:
        played.lake.expire(MESSAGES)
    if dice.random() < 0.1:
        played.reevaluate()
    if dice.random() < 0.7:
        played.writers[number].alerts.publish()
    else:
        played.told["deaths before the sending"] += 1
