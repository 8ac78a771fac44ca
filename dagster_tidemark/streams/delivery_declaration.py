"""What partners deliver: files in a folder of the landing bucket, then a message that lists them, then all or nothing.

Belongs here: the declaration. Does not belong here: what is done about such a message (`delivery_run`).
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
        name: Its run is `shift_<name>`; its asset has the key of its table.
        like: The feed that a delivery's files are like: their columns, formats and encoding, what is required of a row,
            and its rules (which may name the feed's columns and `delivery_id`). Nothing of where that feed lies.
        table: Has the columns of `DELIVERY` and `LINEAGE`, and is partitioned by `delivery_id` (`ByKey`).
        queue: The name of the queue of the messages; see `from_env`.
        answers: The name of the queue of the answers, likewise.
        code_version: What rows remember as `loaded_by`.
        transform: From typed rows of the files to rows of the table, but for the columns of `DELIVERY`.
        prefix: Below which each delivery has a folder, `<prefix><delivery_id>/`.
        patience: So long after its message a delivery is waited for, where files are missing.
        workers: So many runs work at it at once.

    Raises:
        StreamRefused: something of it cannot be; the message names it.
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
            raise StreamRefused(f"deliveries {self.name!r}: its name is a Python name, because a job is called so")
        for queue in (self.queue, self.answers):
            require_queue_name(f"deliveries {self.name}", queue)
        if self.workers < 1 or self.patience < timedelta(0):
            raise StreamRefused(f"deliveries {self.name}: workers is at least 1, and patience no negative time")
        columns = DELIVERY | LINEAGE
        if missing := [c for c, kind in columns.items() if self.table.columns.get(c) != kind]:
            raise StreamRefused(
                f"deliveries {self.name}: table {self.table.name} lacks {', '.join(missing)} of DELIVERY and LINEAGE"
            )
        if not isinstance(self.table.partitioning, ByKey) or self.table.partition_columns != (_ID,):
            raise StreamRefused(f"deliveries {self.name}: {self.table.name} has to be partitioned by ByKey({_ID!r})")
        nullable = [c for c in self.table.row_key if c in self.like.columns and c not in self.like.required]
        if _ID not in self.table.row_key or nullable:
            raise StreamRefused(
                f"deliveries {self.name}: the row_key of {self.table.name} is {_ID} and columns that the feed requires"
            )
        if ours := [c for c in DELIVERY if c in self.like.columns]:
            raise StreamRefused(f"deliveries {self.name}: {', '.join(ours)} are no columns of files, but of a delivery")
        if not self.prefix or self.like.adds_columns:
            raise StreamRefused(f"deliveries {self.name}: it needs a prefix, and a feed that does not add columns")
        self.feed_of("any")

    def feed_of(self, delivery_id: str) -> Feed:
        """The files of a delivery as a feed: a folder each, of one delivery."""
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
        """Why nobody works at it in a deployment: somebody always does."""
        return None

    @property
    def job(self) -> str:
        """The name of the job whose runs work at it."""
        return f"shift_{self.name}"

    @property
    def asset(self) -> str:
        """The key of the asset that stands for its table."""
        return self.table.name.replace(".", "/")
