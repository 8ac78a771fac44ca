"""`make dev KAFKA=1`: the broker is there for everything that is started, comes back when it is killed, and is gone
with the rest."""

import json
import os
import signal
import time
from pathlib import Path

from confluent_kafka import Producer

from pipelines.tidemark.sources.kafka import KafkaTopic
from tests.live.platform import Platform
from tests.live.waiting import eventually
from tests.proof.conftest import Report


def test_the_platform_has_a_broker_that_comes_back(tmp_path: Path, jars: Path, report: Report) -> None:
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
        assert "Kafka broker was started again" in platform.said()

        stopped = platform.stop(signal.SIGINT)
        report("kafka_platform", {"seconds": {"start": started, "broker back": back, "stop": stopped.seconds}})
        assert (stopped.exit_code, stopped.left) == (0, [])
    finally:
        platform.end()
