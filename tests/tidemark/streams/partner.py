"""A partner of a toy domain, who drops files of orders and posts manifests; and what a test needs to see to them."""

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import boto3

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.partitioning import ByKey
from dagster_tidemark.lakehouse.table import DELIVERY, LINEAGE, Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.s3 import S3Bucket
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.deliveries.verdict import Verdicts
from dagster_tidemark.streams.deliveries.worker import Delivering
from tests.tidemark.streams import toy
from tests.toys.feeds import ORDERS
from tests.toys.schemas import ORDERS_LANDING, order_lines

HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at"
_OF_A_LINE = {reason: rule for reason, rule in ORDERS.rules.items() if reason != "wrong_hour"}


def declared(name: str, **more: Any) -> Deliveries:
    """Deliveries with a table, a prefix and queues of their own."""
    said: dict[str, Any] = {
        "like": replace(ORDERS, rules=_OF_A_LINE),
        "table": Table(
            name=f"core.{name}",
            columns=ORDERS_LANDING | {"revenue_usd": "decimal(18,4)"} | DELIVERY | LINEAGE,
            partitioned_by=ByKey("delivery_id"),
            row_key=("delivery_id", "order_id", "line_number"),
            comment="An order line that a partner delivered",
        ),
        "queue": f"queue-{name}",
        "answers": f"answers-{name}",
        "code_version": "7",
        "transform": order_lines,
        "prefix": f"{name}/deliveries/",
        "patience": timedelta(seconds=60),
    }
    return Deliveries(name, **said | more)


def line(order_id: int, *, number: int = 1, quantity: int | str = 3) -> str:
    return f"{order_id},{number},3,4,5,{quantity},1.25,0.1,2026-10-01T07:15:00Z"


def csv(*lines: str) -> bytes:
    return "\n".join([HEADER, *lines, ""]).encode()


def listed(path: str, body: bytes, **more: Any) -> dict[str, Any]:
    """A file as a manifest lists it."""
    return {"key": path, "size": len(body), "sha256": hashlib.sha256(body).hexdigest()} | more


def new_name() -> str:
    return f"parcels_{uuid.uuid4().hex[:12]}"


def delivering(
    of: Deliveries,
    settings: Settings,
    heard: toy.Heard | None = None,
    *,
    inlet: type[QueueInlet] = QueueInlet,
    verdicts: type[Verdicts] = Verdicts,
    ends: Callable[[], str | None] = lambda: None,
) -> Delivering:
    """A run at deliveries."""
    client = boto3.client("sqs", **settings.aws_options())
    bucket = S3Bucket(lambda: boto3.client("s3", **settings.aws_options()), settings.landing_bucket)
    return Delivering(
        verdicts(of, settings, open_lake(settings), bucket),
        inlet(f"sqs:{of.queue}", lambda: SqsQueue(client, of.queue), at_once=1),
        SqsQueue(client, of.answers),
        heard or toy.Heard(),
        ends,
        logging.getLogger("deliveries"),
    )


@dataclass
class Partner:
    """A partner, the deliveries that he makes, and what comes of them."""

    of: Deliveries
    settings: Settings
    heard: toy.Heard = field(default_factory=toy.Heard)

    def __post_init__(self) -> None:
        self.queue = toy.make_queue(self.settings, str(self.of.queue), receives=20)
        self.answers = toy.make_queue(self.settings, str(self.of.answers), receives=1000)
        self.s3 = boto3.client("s3", **self.settings.aws_options())

    def put(self, delivery_id: str, path: str, body: bytes) -> dict[str, Any]:
        """Drop a file. Returns how a manifest lists it."""
        self.s3.put_object(Bucket=self.settings.landing_bucket, Key=self.key(delivery_id, path), Body=body)
        return listed(path, body)

    def key(self, delivery_id: str, path: str) -> str:
        return f"{self.of.prefix}{delivery_id}/{path}"

    def post(self, delivery_id: str, *files: Mapping[str, Any]) -> None:
        """Say that a delivery is complete."""
        time.sleep(0.002)  # the later of two messages is a millisecond later
        self.queue.send([json.dumps({"delivery_id": delivery_id, "files": files})])

    def run(self, **how: Any) -> Delivering:
        return delivering(self.of, self.settings, self.heard, **how)

    def answer(self, run: Delivering | None = None, seconds: float = 60) -> dict[str, Any]:
        """Have a run (None: another one) work until a message is answered, and what the answer is."""
        at_work, until = run or self.run(), time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                at_work.step()
                if found := self.sent():
                    assert len(found) == 1, found
                    return found[0]
        finally:
            if run is None:
                at_work.inlet.close()
        raise AssertionError("no answer")

    def sent(self) -> list[dict[str, Any]]:
        """The answers that were sent since this was last asked."""
        found = list[dict[str, Any]]()
        while messages := self.answers.receive(0):
            found += [json.loads(message.body) for message in messages]
            self.answers.delete(messages)
        return found

    def rows(self, columns: Sequence[str] = ("delivery_id", "order_id", "line_number", "quantity")) -> list[Any]:
        """What the table holds."""
        found = Appendable(open_lake(self.settings), self.of.table).rows(columns=columns)
        return sorted(tuple(row[name] for name in columns) for row in found.to_pylist())

    def commits(self) -> int:
        """How often the table was written."""
        return len(open_lake(self.settings).load_table(self.of.table.name).snapshots())

    def quarantined(self) -> list[tuple[str | None, str, str]]:
        """Delivery, reason and message of the entries."""
        rows = Appendable(open_lake(self.settings), QUARANTINE).rows().to_pylist()
        return sorted(
            (row["partition"], row["reason"], row["message"]) for row in rows if row["asset"] == self.of.asset
        )
