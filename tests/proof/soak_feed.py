"""The load of the soak: files and messages, some late, corrected, repeated or damaged, and what they must become.

Belongs here: the files and messages, each sent at least once as real senders do, and their ledger. Does not belong
here: the tables that the files become, which the oracle computes from the bucket (`tests.oracle`), and faults
(`test_soak`).
"""

import gzip
import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import boto3
import pyarrow as pa
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaError, Message, Producer
from pyiceberg.catalog import Catalog

from dagster_tidemark.settings import LOCAL_KEY
from pipelines.streams.readings import READINGS
from tests.proof.soak_platform import SoakPlatform

PAUSE = float(os.environ.get("SOAK_PAUSE", "4"))
LINES = 20
_HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"
_CUSTOMERS = "customer_id,name,email,segment,nation,signed_up_at\n"
_BAD = re.compile(r"bad-\d+")
_OF_FILES, _OF_MESSAGES = "core/orders", "raw/readings"
_KINDS = {
    "new": 40,
    "late": 10,
    "corrected in its place": 10,
    "corrected by another file": 10,
    "repeated": 10,
    "repeated as another file": 10,
    "without a column": 4,
    "cut off": 2,
    "with a bad row": 4,
}
Reading = tuple[str, datetime, int, float, bool]


@dataclass
class Written:
    """A good file that was put."""

    key: str
    body: bytes
    hour: datetime
    number: int


@dataclass
class SoakFeed:
    """The senders, in a thread of their own.

    Args:
        platform: Where the files and messages go.
        seed: The same seed sends the same kinds in the same order.
    """

    platform: SoakPlatform
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    refused_files: set[str] = field(default_factory=set)
    bad_rows: Counter[str] = field(default_factory=Counter)
    readings: dict[Reading, str] = field(default_factory=dict)
    """Good readings, each with its body. All were sent at least once."""
    bad_messages: dict[str, str] = field(default_factory=dict)
    """Bodies that cannot be read, by the mark in them."""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _good: list[Written] = field(default_factory=list)
    _number: int = 0
    _priced: date | None = None
    _to_put: list[tuple[str, bytes]] = field(default_factory=list)
    _to_topic: list[str] = field(default_factory=list)
    _to_queue: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        quick = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1})
        keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY, "region_name": "us-east-1"}
        url = self.platform.environment["AWS_ENDPOINT_URL"]
        self._s3 = boto3.client("s3", endpoint_url=url, config=quick, **keys)
        self._sqs = boto3.client("sqs", endpoint_url=url, config=quick, **keys)
        self._queue = self._sqs.get_queue_url(QueueName=READINGS.queue)["QueueUrl"]
        self._producer = Producer(
            {"bootstrap.servers": self.platform.kafka_servers, "message.timeout.ms": 15_000, "log_level": 2}
        )

    def put_master_data(self) -> None:
        """Put the customers, and the prices of yesterday."""
        self._put_prices(datetime.now(UTC) - timedelta(days=1))
        people = "".join(f"{n},C{n},c{n}@example.com,{'family' if n % 3 else ''},DE,2026-01-01\n" for n in range(1, 41))
        self._to_put.append(("customers/latest.csv", (_CUSTOMERS + people).encode()))
        self._put_files()

    def start(self) -> None:
        """Send from now on."""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is still to be sent, and end."""
        self._over.set()
        assert self._thread is not None
        self._thread.join(60)
        for send in (self._put_files, self._send_messages):
            self._until_sent(send)
        assert self._producer.flush(60) == 0 and not self._to_topic

    def probe(self) -> tuple[int, str]:
        """Put a file with one order, and send a reading. Return the order's number and the device."""
        now, number = datetime.now(UTC), 5_000_000_000 + int(datetime.now(UTC).timestamp() * 10)
        line = f"{number},1,1,101,1,3,2.50,0.1,{now:%Y-%m-%dT%H}:00:00Z\n"
        key = f"orders/dt={now:%Y-%m-%d}/hour={now:%H}/probe-{number}.csv"
        self._until_sent(lambda: self._put(key, (_HEADER + line).encode()))
        device = f"probe-{number}"
        body = self._reading(device, now)
        self._until_sent(lambda: self._send_to_queue([body]))
        return number, device

    def send_lost_messages(self, lake: Catalog) -> int:
        """Send the messages again that the killed queue has lost, and return their number.

        A real queue loses nothing; moto keeps messages in memory alone.
        """
        there, bad = stored_readings(lake), bad_messages(lake)
        lost = [body for reading, body in [*self.readings.items()] if reading not in there]
        lost += [body for mark, body in [*self.bad_messages.items()] if mark not in bad]
        self._to_queue += lost
        return len(lost)

    def _work(self) -> None:
        while not self._over.wait(PAUSE):
            self._new_file()
            self._new_messages()
            for send in (self._put_files, self._send_messages):
                try:
                    send()
                except (BotoCoreError, ClientError):
                    self.counts["sends that failed, and were repeated"] += 1

    def _until_sent(self, send: Callable[[], Any]) -> None:
        for _ in range(60):
            try:
                return send()
            except (BotoCoreError, ClientError):
                threading.Event().wait(1)
        raise AssertionError("the cloud does not answer a minute after the end of its fault")

    def _put(self, key: str, body: bytes) -> None:
        self._s3.put_object(Bucket="landing", Key=key, Body=body)

    def _put_files(self) -> None:
        while self._to_put:
            self._put(*self._to_put[0])
            del self._to_put[0]

    def _put_prices(self, day: datetime) -> None:
        prices = "product_id,cost_usd\n" + "".join(f"{101 + n},{1 + n * 0.37:.2f}\n" for n in range(12))
        self._to_put.append((f"prices/dt={day:%Y-%m-%d}/prices.csv", prices.encode()))

    def _new_file(self) -> None:
        """Make a file of a random kind."""
        kind = self._dice.choices([*_KINDS], [*_KINDS.values()])[0]
        now = datetime.now(UTC)
        if now.date() != self._priced:
            self._put_prices(now)
            self._priced = now.date()
        if not self._good and kind.startswith(("corrected", "repeated")):
            kind = "new"
        hour = now.replace(minute=0, second=0, microsecond=0)
        if kind == "late":
            hour -= timedelta(hours=self._dice.randint(1, 3))
        self._number += 1
        number, folder = self._number, f"orders/dt={hour:%Y-%m-%d}/hour={hour:%H}"
        key = f"{folder}/soak-{number:06d}.csv"
        self.counts[f"files {kind}"] += 1
        if kind == "without a column":
            self.refused_files.add(key)
            self._to_put.append((key, b"order_id,line_number\n1,1\n"))
        elif kind == "cut off":
            self.refused_files.add(f"{key}.gz")
            self._to_put.append((f"{key}.gz", gzip.compress(self._orders(number, hour), mtime=0)[:60]))
        elif kind == "with a bad row":
            self.bad_rows[key] += 1
            bad = f"{self._id(number)},99,1,101,1,three,2.50,0.1,{hour:%Y-%m-%dT%H}:00:00Z\n"
            self._to_put.append((key, self._orders(number, hour) + bad.encode()))
        elif kind in ("new", "late"):
            self._good_file(Written(key, self._orders(number, hour), hour, number))
        else:
            old = self._dice.choice(self._good[-60:])
            body = old.body if kind.startswith("repeated") else self._orders(old.number, old.hour)
            if not kind.endswith("another file"):
                key = old.key
            else:  # its name is later, as its arrival
                key = f"orders/dt={old.hour:%Y-%m-%d}/hour={old.hour:%H}/soak-{number:06d}.csv"
            self._good_file(Written(key, body, old.hour, old.number))

    def _good_file(self, file: Written) -> None:
        self._to_put.append((file.key, file.body))
        self._good.append(file)

    def _id(self, number: int) -> int:
        return 1_000_000 + number * 100

    def _orders(self, number: int, hour: datetime) -> bytes:
        """Return lines with numbers that depend on the file's, and other values each time."""
        return (_HEADER + "".join(self._line(self._id(number), n, hour) for n in range(LINES))).encode()

    def _line(self, first: int, n: int, hour: datetime) -> str:
        dice = self._dice
        at = hour + timedelta(seconds=dice.randint(0, 3599))
        ids = f"{first + n // 2},{n % 2 + 1},{dice.randint(1, 45)},{101 + dice.randint(0, 13)},{dice.randint(1, 5)}"
        price = f"{dice.randint(100, 999) / 100:.2f},{dice.choice(('0', '0.1', '0.25'))}"
        return f"{ids},{dice.randint(-1, 9)},{price},{at:%Y-%m-%dT%H:%M:%S}Z\n"

    def _new_messages(self) -> None:
        """Make readings, half of them for the topic; some are late, repeated or damaged."""
        now = datetime.now(UTC)
        for n in range(8):
            late = timedelta(minutes=self._dice.randint(61, 90)) if self._dice.random() < 0.05 else timedelta(0)
            body = self._reading(f"soak-{self._dice.randint(0, 39):02}", now - late + timedelta(microseconds=n))
            (self._to_topic if n % 2 else self._to_queue).append(body)
        if self._dice.random() < 0.3:
            self.counts["messages repeated"] += 1
            self._to_queue.append(self._dice.choice([*self.readings.values()][-200:]))
        if self._dice.random() < 0.3:
            self._bad_message()

    def _send_messages(self) -> None:
        topic, self._to_topic = self._to_topic, []
        assert READINGS.topic is not None
        for body in topic:
            self._producer.produce(READINGS.topic, body.encode(), on_delivery=self._delivered)
        self._producer.poll(0)
        while self._to_queue:
            self._send_to_queue(self._to_queue[:10])
            del self._to_queue[:10]

    def _bad_message(self) -> None:
        mark = f"bad-{self._number}"
        at = datetime.now(UTC).isoformat()
        body = self._dice.choice(
            [
                f"no JSON, {mark}",
                json.dumps({"device_id": mark, "store_id": 1, "read_at": at, "temperature_c": "---"}),
                json.dumps({"device_id": mark, "store_id": 1, "read_at": at, "temperature_c": 500.0}),
                json.dumps({"device_id": mark, "read_at": at, "temperature_c": 4.0}),
            ]
        )
        self.counts["messages bad"] += 1
        self.bad_messages[mark] = body
        (self._to_topic if self._dice.random() < 0.5 else self._to_queue).append(body)

    def _reading(self, device: str, at: datetime) -> str:
        temperature, is_open = round(4.0 + self._dice.uniform(-0.5, 5), 2), self._dice.random() < 0.1
        store = self._dice.randint(1, 5)
        said = {
            "device_id": device,
            "store_id": store,
            "read_at": at.isoformat(),
            "temperature_c": temperature,
            "door_open": is_open,
        }
        body = json.dumps(said)
        self.readings[device, at, store, temperature, is_open] = body
        self.counts["readings"] += 1
        return body

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.counts["sends that failed, and were repeated"] += 1
            value = message.value()
            assert value is not None
            self._to_topic.append(value.decode())

    def _send_to_queue(self, bodies: list[str]) -> None:
        entries: list[Any] = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        self._sqs.send_message_batch(QueueUrl=self._queue, Entries=entries)


def rows_of(lake: Catalog, table: str, *columns: str) -> pa.Table:
    """Return columns of a table as it is now; all if none is named."""
    return lake.load_table(table).scan(selected_fields=columns or ("*",)).to_arrow()


def stored_readings(lake: Catalog, table: str = "raw.readings") -> Counter[Reading]:
    """Return the readings of a table, and how often each is there."""
    found = rows_of(lake, table, "device_id", "read_at", "store_id", "temperature_c", "door_open").to_pylist()
    return Counter(
        (row["device_id"], row["read_at"].replace(tzinfo=UTC), row["store_id"], row["temperature_c"], row["door_open"])
        for row in found
    )


def bad_messages(lake: Catalog) -> set[str]:
    """Return the marks of the messages in quarantine."""
    rows = rows_of(lake, "ops.quarantine", "asset", "content").to_pylist()
    return {mark for row in rows if row["asset"] == _OF_MESSAGES for mark in _BAD.findall(row["content"] or "")}


def differences(feed: SoakFeed, lake: Catalog) -> list[str]:
    """Return how the stream's tables and the quarantine differ from the ledger; empty if they do not."""
    found = []
    sent, core = set(feed.readings), stored_readings(lake, "core.readings")
    if missing := sent - core.keys():
        found.append(f"core.readings lacks {len(missing)} readings: {sorted(missing)[:3]}")
    if surplus := core.keys() - sent:
        found.append(f"core.readings has {len(surplus)} readings that nobody sent: {sorted(surplus)[:3]}")
    if twice := [reading for reading, times in core.items() if times > 1]:
        found.append(f"core.readings has {len(twice)} readings twice: {twice[:3]}")
    ids = Counter(rows_of(lake, "raw.readings", "message_id")["message_id"].to_pylist())
    if doubled := [each for each, times in ids.items() if times > 1]:
        found.append(f"raw.readings has {len(doubled)} messages twice: {doubled[:3]}")
    if lacking := feed.bad_messages.keys() - bad_messages(lake):
        found.append(f"the quarantine lacks {len(lacking)} messages: {sorted(lacking)[:3]}")
    entries = [row for row in rows_of(lake, "ops.quarantine").to_pylist() if row["asset"] == _OF_FILES]
    whole = {row["source_file"] for row in entries if row["row_number"] is None and row["reason"] != "no rows"}
    if whole != feed.refused_files:
        found.append(f"refused files: {sorted(whole ^ feed.refused_files)[:5]} are in one of ledger and quarantine")
    rows = Counter(row["source_file"] for row in entries if row["row_number"] is not None)
    if rows != feed.bad_rows:
        found.append(f"rejected rows: {dict(rows - feed.bad_rows)} too many, {dict(feed.bad_rows - rows)} missing")
    return found
