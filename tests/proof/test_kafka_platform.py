"""`make dev KAFKA=1`: the broker is there for everything that is started, comes back when it is killed, and is gone
with the rest. A topic on which nothing happens costs nothing."""

import json
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from dagster_tidemark.sources.kafka import KafkaTopic
from dagster_tidemark.sources.kafka_range import range_behind
from tests.live.platform import Platform, running
from tests.live.waiting import eventually, holds_for
from tests.proof.conftest import Report


def test_killed_kafka_broker_of_the_platform_is_restarted_with_its_records(
    tmp_path: Path, jars: Path, report: Report
) -> None:
    platform = Platform(tmp_path / "state", jars, tmp_path / "up.log")
    platform.asked["KAFKA"] = "1"

    def broker() -> int:
        shown = json.loads(platform.pipelines("status", "--services", "--json").stdout)
        (found,) = [service for service in shown if service["service"] == "kafka"]
        return int(found["pid"] or 0) if found["state"] == "ready" else 0

    try:
        started = platform.start()
        servers = platform.environment["TIDEMARK_KAFKA_BOOTSTRAP_SERVERS"]
        assert servers == f"127.0.0.1:{platform.environment['TIDEMARK_PORT_KAFKA']}"
        assert servers in platform.said()
        topic = platform.environment["TIDEMARK_READINGS_TOPIC"]
        inlet = KafkaTopic({"bootstrap.servers": servers}, topic)
        producer = Producer({"bootstrap.servers": servers, "log_level": 2})
        producer.produce(topic, b"before")
        assert producer.flush(20) == 0

        first = broker()
        begun = time.monotonic()
        os.kill(first, signal.SIGKILL)

        def is_back() -> None:
            assert broker() not in (0, first)

        eventually(is_back, seconds=60)
        back = time.monotonic() - begun
        producer.produce(topic, b"after")
        assert producer.flush(20) == 0
        bodies: list[bytes] = []
        resume = None
        while len(bodies) < 2:
            batch = inlet.receive(resume, 20)
            assert batch is not None
            bodies += [record.body for record in batch.records]
            resume = batch.reached[inlet.property_name()]
        assert sorted(bodies) == [b"after", b"before"]
        inlet.close()
        assert "Kafka broker was restarted" in platform.said()

        stopped = platform.stop(signal.SIGINT)
        report("kafka_platform", {"seconds": {"start": started, "broker back": back, "stop": stopped.seconds}})
        assert (stopped.exit_code, stopped.left) == (0, [])
    finally:
        platform.end()


def test_idle_transactional_topic_causes_neither_runs_nor_commits(tmp_path: Path, jars: Path, report: Report) -> None:
    with running(tmp_path, jars, KAFKA="1") as platform:
        servers = platform.environment["TIDEMARK_KAFKA_BOOTSTRAP_SERVERS"]
        topic = platform.environment["TIDEMARK_READINGS_TOPIC"]
        producer = Producer({"bootstrap.servers": servers, "log_level": 2, "transactional.id": "proof"})
        producer.init_transactions(20)
        for ends in (producer.commit_transaction, producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for n in range(10):
                said = {"device_id": f"sensor-{n}", "store_id": 1, "temperature_c": 3.0, "door_open": False}
                producer.produce(topic, json.dumps(said | {"read_at": datetime.now(UTC).isoformat()}))
            ends(20)

        def snapshots() -> list[Any]:
            assert platform.catalog.table_exists("raw.readings")
            return platform.catalog.load_table("raw.readings").snapshots()

        def read_to_its_end() -> None:
            assert snapshots()
            summary = snapshots()[-1].summary
            assert summary is not None
            resume = summary.additional_properties[f"tidemark.kafka.{topic}"]
            assert range_behind({"bootstrap.servers": servers}, topic, resume).size == 0, "marks of transactions"

        eventually(read_to_its_end, seconds=150)
        platform.quiet(seconds=300, calm=20)
        commits, runs, shifts = len(snapshots()), platform.ui.runs(), platform.ui.shifts()

        def nothing_happens() -> None:
            assert len(snapshots()) == commits
            assert len(platform.ui.runs()) == len(runs)
            assert len(platform.ui.shifts()) == len(shifts)

        begun = time.monotonic()
        holds_for(nothing_happens, seconds=60)
        table = platform.table("raw.readings")
        report(
            "kafka-idle",
            {
                "what": "a topic that ends with an aborted transaction, its readings in the table, nothing sent",
                "seconds": round(time.monotonic() - begun),
                "commits": len(snapshots()) - commits,
                "runs": len(platform.ui.runs()) - len(runs),
                "rows": table.num_rows,
            },
        )
        assert table.num_rows == 20
