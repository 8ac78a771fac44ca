"""Deliveries of partners: a message lists files in a folder of the landing bucket. All or none of them are loaded.

Belongs here: the declaration. Does not belong here: the handling of a message (`worker`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from dagster_tidemark.lakehouse.partitioning import ByKey
from dagster_tidemark.lakehouse.table import DELIVERY, LINEAGE, Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.streams.stream_declaration import StreamRefused, require_queue_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID = "delivery_id"


@dataclass(frozen=True, eq=False)
class Deliveries:
    """Deliveries of one kind, each loaded as a whole into a partition of a table.

    Args:
        name: The name. The job is `shift_<name>`; the asset has the key of the table.
        like: A feed with the same columns, formats, encoding, required columns and rules as a delivery's files. The
            rules may use the feed's columns and `delivery_id`. The feed's location is ignored.
        table: The table. It needs the columns of `DELIVERY` and `LINEAGE`, and the partitioning `ByKey("delivery_id")`.
        queue: The name of the queue with the messages; see `from_env`.
        answers: The name of the queue for the answers; see `from_env`.
        code_version: The value of the column `loaded_by` in loaded rows.
        transform: Turns typed rows of the files into rows of the table, without the columns of `DELIVERY`.
        prefix: The prefix of the delivery folders: `<prefix><delivery_id>/`.
        patience: How long a delivery may wait for missing files, from the sending of its message.
        workers: The number of concurrent runs.

    Raises:
        StreamRefused: the declaration is invalid. The message contains its name.
    """

    name: str
    like: Feed
    table: Table
    queue: str
    answers: str
    code_version: str
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows
    prefix: str = "deliveries/"
    patience: timedelta = timedelta(minutes=30)
    workers: int = 1

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise StreamRefused(
                f"deliveries {self.name!r}: expected a Python identifier as name, because a job has this name"
            )
        for queue in (self.queue, self.answers):
            require_queue_name(f"deliveries {self.name}", queue)
        if self.workers < 1 or self.patience < timedelta(0):
            raise StreamRefused(f"deliveries {self.name}: expected workers of at least 1, and patience not negative")
        columns = DELIVERY | LINEAGE
        if missing := [c for c, kind in columns.items() if self.table.columns.get(c) != kind]:
            raise StreamRefused(
                f"deliveries {self.name}: table {self.table.name} lacks {', '.join(missing)} of DELIVERY and LINEAGE"
            )
        if not isinstance(self.table.partitioning, ByKey) or self.table.partition_columns != (_ID,):
            raise StreamRefused(
                f"deliveries {self.name}: table {self.table.name} must be partitioned by ByKey({_ID!r})"
            )
        nullable = [c for c in self.table.row_key if c in self.like.columns and c not in self.like.required]
        if _ID not in self.table.row_key or nullable:
            raise StreamRefused(
                f"deliveries {self.name}: row_key of {self.table.name} must be {_ID} and required columns of the feed"
            )
        if ours := [c for c in DELIVERY if c in self.like.columns]:
            raise StreamRefused(
                f"deliveries {self.name}: {', '.join(ours)} belong to the delivery; remove them from the feed's columns"
            )
        if not self.prefix or self.like.adds_columns:
            raise StreamRefused(f"deliveries {self.name}: expected a prefix, and a feed without new_columns=add")
        self.feed_of("any")

    def feed_of(self, delivery_id: str) -> Feed:
        """Return the feed of one delivery: the files of its folder."""
        return replace(
            self.like,
            name=self.name,
            prefix=self.prefix,
            grain=Grain.NONE,
            folders=f"{{{_ID}}}",
            keys={_ID: (delivery_id,)},
            timezone="UTC",
            time_name=None,
        )

    def why_off(self, settings: Settings) -> str | None:
        """Return None: runs handle deliveries in every deployment."""
        return None

    @property
    def job(self) -> str:
        """The name of the job whose runs handle the messages."""
        return f"shift_{self.name}"

    @property
    def asset(self) -> str:
        """The asset key of the table."""
        return self.table.name.replace(".", "/")
