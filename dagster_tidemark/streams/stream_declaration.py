"""What a stream is: messages of one kind, the table that keeps them, and what follows from them at once.

Belongs here: the declaration. Does not belong here: how bodies are read (`decode`), the loop (`shift`), and the streams
themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.partitioning import ByTime
from dagster_tidemark.lakehouse.table import MESSAGE, Table
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from dagster_tidemark.lakehouse.cached_reader import LiveTable
    from dagster_tidemark.lakehouse.model_store import Given, Learner, ServingModel, Told
    from dagster_tidemark.streams.decode import Fault

Fields = Mapping[str, Any]
"""A message's fields in their declared types."""


_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_KINDS = re.compile(r"string|bigint|int|double|float|boolean|timestamp|date|decimal\(\d+,\d+\)")


class Reaction(Protocol):
    """What follows from messages within the run that receives them; made once in a run, used by one thread."""

    def react(self, rows: pa.Table, head: int | None) -> None:
        """Commit what follows from these rows. Called again with the same rows it changes nothing.

        Args:
            rows: Of the stream's table. Also those that were there before: a message came again.
            head: The table's snapshot that holds them.
        """
        ...

    def publish(self) -> int:
        """Send what is committed and was not sent yet. Returns the number of messages."""
        ...

    def needs_since(self) -> int | None:
        """The snapshot of the stream's table that the reaction of the next run goes on from; None: it needs none."""
        ...

    def summary(self) -> Mapping[str, Mapping[str, int | float | str]]:
        """By asset key what was committed since this was last asked: metadata of its materialization."""
        ...


@runtime_checkable
class TellsWhy(Protocol):
    """A reaction that also answers to messages that are no rows."""

    def refused(self, faults: Sequence[Fault]) -> Collection[str]:
        """Commit what follows from these. Called again with the same it changes nothing.

        Returns:
            The ids of those whose sender is told with the next `publish`: the queue need not give them up.
        """
        ...


@runtime_checkable
class LooksAfter(Protocol):
    """A reaction that has something to do while nothing comes."""

    def look_after(self) -> None:
        """Do it; called every few seconds."""
        ...


@dataclass(frozen=True)
class Workplace:
    """What a reaction works with.

    Args:
        settings: Of the deployment.
        lake: The catalog, through pyiceberg.
        stream: Whose messages are followed.
        refuse: Writes quarantine entries for messages that the reaction leaves out.
    """

    settings: Settings
    lake: Catalog
    stream: Stream
    refuse: Callable[[Sequence[Fault]], None] | None = None

    def table(self, table: Table) -> LiveTable:
        """A table of the lake, to be read again and again, without Spark."""
        from dagster_tidemark.lakehouse.cached_reader import LiveTable

        return LiveTable(self.lake, table)

    def model(self, name: str, learner: Learner[Given, Told], versions: Table) -> ServingModel[Given, Told]:
        """The version of a model that serves, by the table of its versions."""
        from dagster_tidemark.lakehouse.model_store import ModelStore, ServingModel

        return ServingModel(ModelStore(name, learner, self.settings), self.table(versions))


@dataclass(frozen=True, eq=False)
class Stream:
    """Messages of one kind, kept in an append table.

    Args:
        name: Its run is `shift_<name>`; its asset has the key of its table.
        table: Has a column for each field of a message, those of `MESSAGE`, and, where it is partitioned by the hour or
            day, the column of that (`time` says of which field).
        queue: The name of the SQS queue that they come from, if they come from one; see `from_env`.
        topic: The name of the Kafka topic, likewise.
        required: Fields without which a message means nothing.
        rules: Reason code to a condition on the fields that every good message meets.
        time: The field that says which partition a row is in.
        workers: So many runs work at it at once. Kafka's offsets are one line: of a topic only one gets anywhere.
        reaction: What follows at once; made when a run begins.
        latest: How far ahead of the clock `time` may be.
        quiet: A row is reported to Dagster, and so to the assets that read the table, at the latest so long after it
            was committed.

    Raises:
        StreamRefused: something of it cannot be; the message names the stream.
    """

    name: str
    table: Table
    queue: str | None = None
    topic: str | None = None
    required: tuple[str, ...] = ()
    rules: Mapping[str, Callable[[Fields], bool]] = field(default_factory=dict)
    time: str | None = None
    workers: int = 1
    reaction: Callable[[Workplace], Reaction] | None = None
    latest: timedelta = timedelta(days=1)
    quiet: timedelta = timedelta(seconds=15)
    # Attributes, because each message asks for them. A cached property holds a lock, and Spark's workers get this class
    # by value: a lock cannot be pickled.
    fields: Mapping[str, str] = field(init=False, repr=False)
    """A message's fields with their types."""
    partition_column: str | None = field(init=False, repr=False)
    """The column that partitions its table; None if the table has no partitions."""

    def __post_init__(self) -> None:
        derived = {*MESSAGE, *self.table.partition_columns}
        own = {c: kind for c, kind in self.table.columns.items() if c not in derived}
        object.__setattr__(self, "fields", own)
        object.__setattr__(self, "partition_column", next(iter(self.table.partition_columns), None))
        if not self.name.isidentifier():
            raise StreamRefused(f"stream {self.name!r}: its name is a Python name, because a job is called so")
        if self.queue is None and self.topic is None:
            raise StreamRefused(f"stream {self.name}: name the queue or the topic that it comes from")
        require_queue_name(f"stream {self.name}", self.queue)
        if self.topic is not None and not _TOPIC.fullmatch(self.topic):
            raise StreamRefused(
                f"stream {self.name}: topic={self.topic!r}: a topic's name has 1 to 249 of a-z, A-Z, 0-9, ., _ and -"
            )
        if self.workers < 1:
            raise StreamRefused(f"stream {self.name}: workers is at least 1")
        if missing := [c for c, kind in MESSAGE.items() if self.table.columns.get(c) != kind]:
            raise StreamRefused(f"stream {self.name}: table {self.table.name} lacks {', '.join(missing)} of MESSAGE")
        if self.table.partitioned_by is not None:
            self._require_time()
        if odd := [f"{c} ({kind})" for c, kind in self.fields.items() if not _KINDS.fullmatch(kind)]:
            raise StreamRefused(f"stream {self.name}: fields of this type cannot be read from JSON: {', '.join(odd)}")
        if unknown := [c for c in self.required if c not in self.fields]:
            raise StreamRefused(f"stream {self.name}: required {', '.join(unknown)} are no fields of {self.table.name}")

    def _require_time(self) -> None:
        by = self.table.partitioning
        if not isinstance(by, ByTime) or by.format is not None or by.timezone != "UTC":
            raise StreamRefused(
                f"stream {self.name}: its table is cut by hours or days (UTC), by a column of that name, or not at all"
            )
        if self.table.columns.get(self.time or "") not in ("timestamp", "date"):
            raise StreamRefused(
                f"stream {self.name}: its table is cut by {by.column}; say with time= which timestamp field that is of"
            )
        if self.time not in self.required:
            raise StreamRefused(f"stream {self.name}: {self.time} says the partition, so it has to be required")

    def topic_in(self, settings: Settings) -> str | None:
        """The name of its topic; None also where the deployment has no Kafka."""
        return None if settings.kafka_bootstrap_servers is None else self.topic

    def why_off(self, settings: Settings) -> str | None:
        """Why nobody works at it in a deployment; None where somebody does."""
        has_inlet = self.queue is not None or self.topic_in(settings) is not None
        return None if has_inlet else "TIDEMARK_KAFKA_BOOTSTRAP_SERVERS is not set"

    @property
    def job(self) -> str:
        """The name of the job whose runs work at it."""
        return f"shift_{self.name}"

    @property
    def asset(self) -> str:
        """The key of the asset that stands for its table."""
        return self.table.name.replace(".", "/")

    def partition_of(self, fields: Fields) -> datetime | date | None:
        """The value of the partition column."""
        if self.partition_column is None:
            return None
        at: datetime = fields[self.time or ""]
        if self.table.columns[self.partition_column] == "date":
            return at.date() if isinstance(at, datetime) else at
        return at.replace(minute=0, second=0, microsecond=0)

    def key_of(self, value: datetime | date | None) -> str | None:
        """Dagster's key of a partition."""
        by = self.table.partitioning
        if value is None or not isinstance(by, ByTime):
            return None
        at = value.astimezone(UTC) if isinstance(value, datetime) else value
        return at.strftime(by.format_of(self.table.columns))


def require_queue_name(what: str, queue: str | None) -> None:
    """Refuse a name that no queue of SQS can have; None is no name.

    Args:
        what: The declaration, for the message.

    Raises:
        StreamRefused: the message names declaration and queue.
    """
    if queue is not None and not (isinstance(queue, str) and _QUEUE.fullmatch(queue)):
        raise StreamRefused(f"{what}: queue={queue!r}: a queue's name has 1 to 80 of a-z, A-Z, 0-9, _ and -")


class StreamRefused(Terminal):
    """A stream's declaration contradicts itself, or asks for what there is not."""
