"""The platform's broker: on any folder, and with everything it had after it was killed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from dagster_tidemark.local import kafka_server as server
from dagster_tidemark.local.kafka_server import JARS
from dagster_tidemark.local.spark.jars import fetch_jars
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.kafka import KafkaTopic
from dagster_tidemark.sources.kafka_client import create_topic
from dagster_tidemark.sources.kafka_errors import KafkaUnavailable
from tests.conftest import end_service, make_settings, start_service

TOPIC = "cold-chain-readings"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path / "50 % off, ü; #1").for_platform(with_kafka=True)
    made.state_dir.mkdir()
    fetch_jars(made, JARS)
    return made


def _start(settings: Settings, log: Path) -> "subprocess.Popen[bytes]":
    return start_service("dagster_tidemark.local.kafka_server", settings, settings.port_kafka, log)


@pytest.fixture
def topic(settings: Settings) -> Iterator[KafkaTopic]:
    made = KafkaTopic(settings.kafka_options(), TOPIC)
    yield made
    made.close()


def test_restarted_kafka_broker_keeps_its_records(settings: Settings, topic: KafkaTopic, tmp_path: Path) -> None:
    process = _start(settings, tmp_path / "kafka.log")
    connections = psutil.Process(process.pid).net_connections("tcp")
    listening = {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"} and listening
    create_topic(settings.kafka_options(), TOPIC)
    create_topic(settings.kafka_options(), TOPIC)  # of an earlier start
    producer = Producer({**settings.kafka_options(), "log_level": 2})
    producer.produce(TOPIC, b"kept", partition=0)
    assert producer.flush(20) == 0
    process.kill()
    process.wait(10)

    process = _start(settings, tmp_path / "kafka.log")
    try:
        batch = topic.receive(None, 20)
        assert batch is not None and [record.body for record in batch.records] == [b"kept"]
        with pytest.raises(KafkaUnavailable, match="not a name could not be created"):
            create_topic(settings.kafka_options(), "not a name")
    finally:
        end_service(process)


def test_kafka_cluster_id_never_starts_with_a_hyphen() -> None:
    # Kafka's tools take such an id for an option, and one start of 64 failed.
    assert not [found for found in (server._new_id() for _ in range(2_000)) if found.startswith("-")]
