"""A real broker for tests: one node, which is asked for a password on its second port, and cleans its logs at once.

Run as a module it becomes that broker. Belongs here: the broker, and what other programs do to it. Does not belong
here: reading it.
"""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from dagster_tidemark.local.kafka_server import become
from dagster_tidemark.settings import Settings, load_settings
from tests.conftest import end_service, free_ports, start_service
from tests.tidemark.certificates import certificate

_OVERRIDES = "BROKER_OVERRIDES"
READER, STRANGER = "reader", "stranger"
PASSWORD = "correct-horse"


class Broker:
    """A broker; it can be killed and started again on its state. Each test takes topics of its own.

    On the first port everybody may do everything. On the second one comes in with TLS and a password, and `READER` may
    read what `let_read` says.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._locked, controller = free_ports(2)
        place = settings.state_dir / "tls"
        self.authority = certificate(place)
        users = " ".join(f'user_{name}="{PASSWORD}"' for name in (READER, STRANGER))
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        listeners = f"PLAINTEXT://127.0.0.1:{settings.port_kafka},LOCKED://127.0.0.1:{self._locked}"
        self._overrides = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOCKED:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.locked.plain.sasl.jaas.config": f"{login} required {users};",
            "listener.name.locked.ssl.keystore.type": "PEM",
            "listener.name.locked.ssl.keystore.location": str(place / "server.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            # Retention and compaction are seen to within a second.
            "log.initial.task.delay.ms": "0",
            "log.retention.check.interval.ms": "200",
            "log.cleaner.backoff.ms": "100",
            "log.segment.delete.delay.ms": "100",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None

    def start(self) -> None:
        log = self.settings.state_dir / "kafka.log"
        self._process = start_service(
            "tests.tidemark.kafka",
            self.settings,
            self.settings.port_kafka,
            log,
            **{_OVERRIDES: json.dumps(self._overrides)},
        )

    def kill(self) -> None:
        """As a machine that loses its power."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            end_service(self._process)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.settings.port_kafka}"

    @property
    def options(self) -> dict[str, str]:
        return {"bootstrap.servers": self.servers}

    def locked_options(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        """Of a client that comes in by the second port."""
        settings = self.settings.model_copy(
            update={
                "kafka_bootstrap_servers": f"127.0.0.1:{self._locked}",
                "kafka_security_protocol": "SASL_SSL",
                "kafka_username": user,
                "kafka_password": password,
                "kafka_ca_location": self.authority,
            }
        )
        return settings.kafka_options()

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**self.options, "log_level": 2})
        return self._admin

    def topic(self, partitions: int = 1, **config: str) -> str:
        """A new topic of a name of its own; `segment_ms="100"` is Kafka's `segment.ms`."""
        name = f"t{uuid.uuid4().hex[:8]}"
        self.create(name, partitions, **config)
        return name

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        _wait(self.admin.create_topics([NewTopic(name, partitions, 1, config=named)]))

    def delete(self, name: str) -> None:
        _wait(self.admin.delete_topics([name]))

    def recreate(self, name: str, partitions: int = 1) -> None:
        self.delete(name)
        for _ in range(50):
            try:
                return self.create(name, partitions)
            except Exception:
                time.sleep(0.1)  # the old one is not gone yet
        raise AssertionError(f"{name} could not be created anew")

    def grow(self, name: str, partitions: int) -> None:
        _wait(self.admin.create_partitions([NewPartitions(name, partitions)]))

    def forget(self, name: str, before: int, partition: int = 0) -> None:
        """What retention does: the log begins at an offset."""
        _wait(self.admin.delete_records([TopicPartition(name, partition, before)]))

    def let_read(self, user: str, topic: str) -> None:
        place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*")
        operations = (AclOperation.READ, AclOperation.DESCRIBE)
        _wait(self.admin.create_acls([AclBinding(*place, each, AclPermissionType.ALLOW) for each in operations]))

    def send(self, topic: str, *bodies: bytes | str, partition: int = 0, **options: Any) -> None:
        """Have messages written, and wait until they are."""
        producer = self.producer()
        for body in bodies:
            value = body.encode() if isinstance(body, str) else body
            producer.produce(topic, value, partition=partition, **options)
        assert producer.flush(30) == 0

    def producer(self, **conf: Any) -> Producer:
        return Producer({**self.options, "linger.ms": 0, "log_level": 2, **conf})

    @contextmanager
    def transaction(self, topic: str, *bodies: str, partition: int = 0) -> Iterator[Producer]:
        """An open transaction that has written these; it is for the block to end it."""
        producer = self.producer(**{"transactional.id": f"x{uuid.uuid4().hex}", "transaction.timeout.ms": 60_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        for body in bodies:
            producer.produce(topic, body.encode(), partition=partition)
        assert producer.flush(30) == 0
        yield producer

    def commit(self, topic: str, *bodies: str, partition: int = 0) -> None:
        with self.transaction(topic, *bodies, partition=partition) as producer:
            producer.commit_transaction(30)

    def abort(self, topic: str, *bodies: str, partition: int = 0) -> None:
        with self.transaction(topic, *bodies, partition=partition) as producer:
            producer.abort_transaction(30)


def eventually(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.1)


def _wait(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(30)


if __name__ == "__main__":
    become(load_settings(), json.loads(os.environ[_OVERRIDES]))
