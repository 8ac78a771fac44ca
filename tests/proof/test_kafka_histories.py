"""Random histories of a topic, with readers that die: what each has committed is what was committed on the broker."""

import contextlib
import random
import time
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Producer

from dagster_tidemark.errors import Transient
from dagster_tidemark.sources.kafka import KafkaTopic
from dagster_tidemark.sources.kafka_client import KafkaClient
from tests.proof.conftest import Report
from tests.tidemark.kafka import Broker, eventually

_SEEDS, _STEPS, _KILLS = 6, 60, 2


class _Reader:
    """A shift that may die before it commits, or be replaced by another one."""

    def __init__(self, kafka: Broker, topic: str, dice: random.Random) -> None:
        self._kafka, self._topic, self._dice = kafka, topic, dice
        self._inlet = self._opened()
        self._resume: str | None = None
        self.bodies: list[str] = []
        self.lost: list[str] = []
        self.deaths = self.commits = 0

    def work(self, wait_seconds: float) -> bool:
        """Receive once. Returns whether anything came."""
        batch = None
        with contextlib.suppress(Transient):  # the broker is away; a shift tries again
            batch = self._inlet.receive(self._resume, wait_seconds)
        if batch is None:
            return False
        if self._dice.random() < 0.25:  # it dies between receiving and committing
            self.deaths += 1
            if self._dice.random() < 0.5:
                self.close()
                self._inlet = self._opened()
            return True
        self.commits += 1
        self.bodies += [record.body.decode() for record in batch.records]
        self.lost += batch.lost
        self._resume = batch.reached[self._inlet.property_name()]
        return True

    def close(self) -> None:
        self._inlet.close()

    def _opened(self) -> KafkaTopic:
        return KafkaTopic(self._kafka.options, self._topic, most_records=self._dice.choice([3, 20, 10_000]))


class _Writers:
    """Programs that write to the topic, with and without transactions."""

    def __init__(self, kafka: Broker, topic: str, dice: random.Random) -> None:
        self._kafka, self._topic, self._dice = kafka, topic, dice
        self._open: list[tuple[ExitStack, Producer, list[str]]] = []
        self._count, self._partitions = 0, 1
        self.committed: list[str] = []

    def step(self) -> None:
        what = self._dice.choice(["send", "send", "send", "commit", "abort", "open", "end", "end", "grow"])
        partition = self._dice.randrange(self._partitions)
        if what == "grow" and self._partitions < 5:
            self._partitions += 1
            self._kafka.grow(self._topic, self._partitions)
            time.sleep(0.5)  # its leader has to hear of it
        elif what == "end":
            self.end(len(self._open) - 1)
        elif what == "open" and len(self._open) < 2:
            stack, bodies = ExitStack(), self._bodies()
            producer = stack.enter_context(self._kafka.transaction(self._topic, *bodies, partition=partition))
            self._open.append((stack, producer, bodies))
        elif what in ("send", "commit", "abort"):
            bodies = self._bodies()
            getattr(self._kafka, what)(self._topic, *bodies, partition=partition)
            self.committed += bodies if what != "abort" else []

    def end(self, left: int = 0) -> None:
        """End open transactions, one way or the other, until so many are left."""
        while len(self._open) > max(left, 0):
            stack, producer, bodies = self._open.pop(0)
            if self._dice.random() < 0.5:
                producer.commit_transaction(30)
                self.committed += bodies
            else:
                producer.abort_transaction(30)
            stack.close()

    def _bodies(self) -> list[str]:
        first = self._count
        self._count += self._dice.choice([1, 2, 8, 60])
        return [str(number) for number in range(first, self._count)]


def test_each_kafka_reader_commits_each_record_once(kafka: Broker, report: Report) -> None:
    figures: list[dict[str, Any]] = []
    for seed in range(_SEEDS):
        dice, topic = random.Random(seed), kafka.topic()
        writers, readers = _Writers(kafka, topic, dice), [_Reader(kafka, topic, dice) for _ in range(2)]
        kills = set(dice.sample(range(_STEPS), _KILLS))
        for step in range(_STEPS):
            if step in kills:
                writers.end()
                kafka.kill()
                readers[0].work(0.1)
                kafka.start()
            writers.step()
            for reader in readers:
                if dice.random() < 0.6:
                    reader.work(dice.choice([0, 0.05, 0.3]))
        writers.end()
        expected, deadline = sorted(map(int, writers.committed)), time.monotonic() + 60
        for reader in readers:
            while len(reader.bodies) < len(expected) and time.monotonic() < deadline:
                reader.work(1)
            while reader.work(1):
                pass
            reader.close()
        figures.append(
            {
                "seed": seed,
                "records": len(expected),
                "commits": [reader.commits for reader in readers],
                "deaths": [reader.deaths for reader in readers],
                "as expected": [sorted(map(int, reader.bodies)) == expected for reader in readers],
                "lost": sum(len(reader.lost) for reader in readers),
            }
        )
    report("kafka_histories", {"steps": _STEPS, "kills of the broker": _KILLS * _SEEDS, "histories": figures})
    assert all(all(each["as expected"]) and not each["lost"] for each in figures), figures


def test_kafka_records_deleted_by_retention_are_counted_exactly(kafka: Broker) -> None:
    topic = kafka.topic(retention_ms="2000", segment_ms="300")
    inlet, client = KafkaTopic(kafka.options, topic), KafkaClient(kafka.options, topic)
    kafka.send(topic, *map(str, range(10)))
    first = inlet.receive(None, 10)
    assert first is not None and len(first.records) == 10
    inlet.close()  # or it would have fetched the rest in the background, and nothing would be lost
    for number in range(10, 40):
        kafka.send(topic, str(number))
        time.sleep(0.05)
    eventually(lambda: client.logs([0])[0].start > 10, seconds=60)
    kafka.send(topic, "last")

    found, lost, resume = [], "", first.reached[inlet.property_name()]
    while not found or found[-1] != b"last":
        batch = inlet.receive(resume, 10)
        assert batch is not None
        found += [record.body for record in batch.records]
        lost += "".join(batch.lost)
        resume = batch.reached[inlet.property_name()]
    start = 41 - len(found)
    assert f"up to {start - 10} messages are lost, offsets 10 to {start - 1}:" in lost
    inlet.close()
    client.close()
