"""The queue part against ElasticMQ: SQS as somebody else understood it."""

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.local.spark.jars import Bundle, fetch_jars
from dagster_tidemark.local.spark.server import spark_home
from dagster_tidemark.sensors.landing import Taken, take
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources import sqs
from dagster_tidemark.sources.listing import FakeBucket
from dagster_tidemark.sources.notification_queue import HOLD_SECONDS, Message, holding
from dagster_tidemark.sources.s3_events import LandingZone
from dagster_tidemark.sources.sqs import SqsQueue
from tests.conftest import end_service, free_port
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.toys.feeds import FEEDS, ORDERS

ELASTICMQ = Bundle("elasticmq", ((("org.elasticmq:elasticmq-server_2.13:1.7.1",), ()),), count=38)
ZONE = LandingZone("landing", FEEDS)
HOURS = [f"2026-10-01-{hour:02}:00" for hour in range(24)]


@pytest.fixture(scope="module")
def client(platform_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("elasticmq")
    jars = fetch_jars(platform_settings, ELASTICMQ)
    jars += (spark_home() / "jars").glob("scala-library-*.jar")  # Ivy takes it for Spark's own
    port = free_port()
    (folder / "elasticmq.conf").write_text(
        'include classpath("application.conf")\n'
        f'node-address {{ host = "127.0.0.1", port = {port} }}\n'
        f'rest-sqs {{ bind-hostname = "127.0.0.1", bind-port = {port} }}\n'
        "rest-stats { enabled = false }\n"
    )
    command = ["java", f"-Dconfig.file={folder / 'elasticmq.conf'}", "-Xmx256m", "-cp", ":".join(map(str, jars))]
    with (folder / "elasticmq.log").open("wb") as log:
        server = subprocess.Popen([*command, "org.elasticmq.server.Main"], stdout=log, stderr=log)
    made = boto3.client("sqs", **platform_settings.aws_options() | {"endpoint_url": f"http://127.0.0.1:{port}"})

    def answers() -> None:
        try:
            made.list_queues()
        except (BotoCoreError, ClientError) as error:
            raise AssertionError((folder / "elasticmq.log").read_text()) from error

    try:
        eventually(answers, seconds=60)
        yield made
    finally:
        end_service(server)


@pytest.fixture
def queue(client: Any, monkeypatch: pytest.MonkeyPatch) -> SqsQueue:
    """A queue that gives up on a message after two receives, held for two seconds."""
    monkeypatch.setattr(sqs, "HOLD_SECONDS", 2)
    name = f"q-{uuid.uuid4().hex}"
    dead = client.create_queue(QueueName=f"{name}-dlq")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})
    return SqsQueue(client, name)


def send(queue: SqsQueue, *bodies: str) -> None:
    for start in range(0, len(bodies), 10):
        entries = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(bodies[start : start + 10])]
        queue._client.send_message_batch(QueueUrl=queue._url, Entries=entries)  # type: ignore[arg-type]


def event(key: str) -> str:
    s3 = {"bucket": {"name": "landing"}, "object": {"key": key}}
    return json.dumps({"Records": [{"eventTime": "2026-10-01T12:00:01Z", "s3": s3}]})


def ticker(instance: dg.DagsterInstance, bucket: FakeBucket, queue: SqsQueue) -> Callable[[], Taken]:
    def tick() -> Taken:
        with holding(queue, every_seconds=sqs.HOLD_SECONDS / 3) as hold:
            return take(hold, ZONE, bucket, ObservationLedger(instance, ZONE.start))

    return tick


def test_2000_notifications_sent_three_times_give_24_observations(
    queue: SqsQueue, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs, "HOLD_SECONDS", HOLD_SECONDS)
    bucket = FakeBucket()
    keys = [f"{ORDERS.prefix_of(HOURS[n % 24])}{n}.csv" for n in range(2000)]
    for key in keys:
        bucket.put(key, b"x")
    send(queue, *[event(key) for key in keys * 3])
    with dg.DagsterInstance.ephemeral() as instance:
        tick = ticker(instance, bucket, queue)
        ticks = []
        begun = time.monotonic()
        while (done := tick()).received.count:
            ticks.append(str(done))
        seconds = time.monotonic() - begun
        observations = instance.fetch_observations(dg.AssetKey(["raw", "orders"]), limit=100).records
    report("elasticmq", {"messages": 6000, "ticks": ticks, "seconds": round(seconds, 1)})
    assert len(observations) == 24
    assert sum(int(said.split()[1].rstrip(",")) for said in ticks) == 6000, (
        "held while it was worked on: none came twice"
    )


def test_foreign_messages_become_dead_letters_and_others_are_processed(queue: SqsQueue, client: Any) -> None:
    bucket = FakeBucket()
    key = f"{ORDERS.prefix_of(HOURS[0])}a b+ü.csv"
    bucket.put(key, b"x")
    send(queue, "junk", event("orders%2Fdt=2026-10-01%2Fhour=00%2Fa+b%2B%C3%BC.csv"), event("elsewhere/a.csv"))
    dead = SqsQueue(client, queue._url.rpartition("/")[2] + "-dlq")
    with dg.DagsterInstance.ephemeral() as instance:
        tick = ticker(instance, bucket, queue)
        assert str(tick()) == "received 3, partitions 1, observed 1, unchanged 0, refused 2"
        found: list[Message] = []

        def given_up() -> None:
            tick()
            found.extend(dead.receive(wait_seconds=0))
            assert len(found) == 2

        eventually(given_up, seconds=30)
    assert {message.body for message in found} == {"junk", event("elsewhere/a.csv")}


def test_messages_of_a_killed_tick_are_received_again_and_held_ones_hidden(queue: SqsQueue) -> None:
    send(queue, "a")
    assert [m.body for m in queue.receive(wait_seconds=2)] == ["a"]
    (again,) = queue.receive(wait_seconds=5)  # nobody extended it
    with holding(queue, every_seconds=0.5) as hold:
        hold.add([again])
        assert queue.receive(wait_seconds=4) == []
        queue.delete([again])
    assert hold.fault is None
    assert queue.receive(wait_seconds=3) == []
