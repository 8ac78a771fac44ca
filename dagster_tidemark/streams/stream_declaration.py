"""The declaration of a stream: messages of one kind, the table that keeps them, and the reaction to them.

Belongs here: the declaration. Does not belong here: the decoding of bodies (`decode`), the loop (`shift`), and the
streams themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.partitioning import ByTime
from dagster_tidemark.lakehouse.table import MESSAGE, Table
from dagster_tidemark.settings import FIFO, NO_FIFO, Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from dagster_tidemark.lakehouse.cached_reader import LiveTable
    from dagster_tidemark.lakehouse.model_store import Given, Learner, ServingModel, Told
    from dagster_tidemark.streams.decode import Fault

Fields = Mapping[str, Any]
"""A message's fields in their declared types."""


_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,80}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_KINDS = re.compile(r"string|bigint|int|double|float|boolean|timestamp|date|decimal\(\d+,\d+\)")


class Reaction:
    """Work on messages in the run that receives them; by default none. A run creates one and uses it in one thread."""

    def react(self, rows: pa.Table) -> None:
        """Commit the consequences of rows. A second call with the same rows must change nothing.

        Args:
            rows: Rows of the stream's table, including earlier rows whose messages were delivered again.
        """

    def refused(self, faults: Sequence[Fault]) -> Collection[str]:
        """Commit the consequences of faults. A second call with the same faults must change nothing.

        Args:
            faults: Refused messages, which did not become rows.

        Returns:
            The ids of messages whose senders get an answer at the next `publish`. These messages are not dead-lettered.
        """
        return ()

    def publish(self) -> int:
        """Send all messages that are committed and not sent yet. Return their number."""
        return 0

    def needs_since(self) -> int | None:
        """Return the snapshot of the stream's table that the next run's reaction starts from; None if it needs none."""
        return None

    def summary(self) -> Mapping[str, Mapping[str, int | float | str]]:
        """Return materialization metadata by asset key, for the commits since the last call."""
        return {}

    def look_after(self) -> None:
        """Do periodic work. The shift calls this every few seconds while no messages arrive."""


class ReactionDeclaration:
    """Base of `Alerting` and `Answering`. `shift.reaction_of` returns the `Reaction` of a declaration."""

    def require_stream(self, stream: Stream) -> None:
        """Raise if the reaction is impossible for a stream.

        Raises:
            StreamRefused: the reason, with the remedy.
        """


@dataclass(frozen=True)
class StreamContext:
    """The resources of a reaction.

    Args:
        settings: The settings of the deployment.
        lake: The catalog, through pyiceberg.
        stream: The stream whose messages the reaction handles.
        refuse: Writes quarantine entries for messages that the reaction ignores.
    """

    settings: Settings
    lake: Catalog
    stream: Stream
    refuse: Callable[[Sequence[Fault]], None] | None = None

    def table(self, table: Table) -> LiveTable:
        """Return a table of the lake, for repeated reads without Spark."""
        from dagster_tidemark.lakehouse.cached_reader import LiveTable

        return LiveTable(self.lake, table)

    def model(self, name: str, learner: Learner[Given, Told], versions: Table) -> ServingModel[Given, Told]:
        """Return the serving version of a model, as recorded in the table of the model's versions."""
        from dagster_tidemark.lakehouse.model_store import ModelStore, ServingModel

        return ServingModel(ModelStore(name, learner, self.settings), self.table(versions))


@dataclass(frozen=True, eq=False)
class Stream:
    """Messages of one kind, kept in an append table.

    Args:
        name: The name. The job is `shift_<name>`; the asset has the key of the table.
        table: The table. It has a column for each field of a message, the columns of `MESSAGE`, and a partition column
            if it is partitioned by hour or day (computed from the field `time`).
        queue: The name of its SQS queue, if it has one; see `from_env`.
        topic: The name of its Kafka topic, if it has one; see `from_env`.
        required: Fields that must not be empty.
        rules: Reason code to a condition on the fields that every good message meets.
        time: The field that determines a row's partition.
        workers: The number of concurrent runs. With a topic only one makes progress, because all share one position.
        reaction: What a run does with the messages besides keeping them: `Alerting` or `Answering`.
        latest: How far the field `time` may be ahead of the clock.
        deserialize: Reads a body that is not JSON, such as Avro with a schema registry. It returns the fields by name,
            with values of Python or as in JSON. If it raises, the message is rejected, except on an `OSError` (a
            registry does not answer): then the message is read again later.
        headers: Field to the name of the Kafka header with its value, as UTF-8 text. Members of the body with the
            field's name are ignored. Messages of a queue have null there.
        quiet: The longest delay between the commit of a row and its report to Dagster, which starts downstream assets.

    Raises:
        StreamRefused: the declaration is invalid; the message names the stream.
    """

    name: str
    table: Table
    queue: str | None = None
    topic: str | None = None
    required: tuple[str, ...] = ()
    rules: Mapping[str, Callable[[Fields], bool]] = field(default_factory=dict)
    time: str | None = None
    workers: int = 1
    reaction: ReactionDeclaration | None = None
    latest: timedelta = timedelta(days=1)
    quiet: timedelta = timedelta(seconds=15)
    deserialize: Callable[[bytes], Fields] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Attributes for speed, because each message reads them. A cached property would hold a lock, and a lock cannot be
    # pickled when this object is sent to Spark's workers.
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
            raise StreamRefused(
                f"stream {self.name!r}: expected a Python identifier as name, because a job has this name"
            )
        if self.queue is None and self.topic is None:
            raise StreamRefused(f"stream {self.name}: no source; set queue= or topic=")
        require_queue_name(f"stream {self.name}", self.queue)
        if self.topic is not None and not _TOPIC.fullmatch(self.topic):
            raise StreamRefused(
                f"stream {self.name}: topic={self.topic!r}: expected 1 to 249 of a-z, A-Z, 0-9, ., _ and -"
            )
        if self.workers < 1:
            raise StreamRefused(f"stream {self.name}: expected workers of at least 1, found {self.workers}")
        if missing := [c for c, kind in MESSAGE.items() if self.table.columns.get(c) != kind]:
            raise StreamRefused(f"stream {self.name}: table {self.table.name} lacks {', '.join(missing)} of MESSAGE")
        if self.table.partitioned_by is not None:
            self._require_time()
        if odd := [f"{c} ({kind})" for c, kind in self.fields.items() if not _KINDS.fullmatch(kind)]:
            raise StreamRefused(
                f"stream {self.name}: these fields have types that cannot be read from JSON: {', '.join(odd)}"
            )
        if unknown := [c for c in self.required if c not in self.fields]:
            raise StreamRefused(
                f"stream {self.name}: required has {', '.join(unknown)}, which {self.table.name} has no columns for"
            )
        if unknown := [c for c in self.headers if c not in self.fields]:
            raise StreamRefused(
                f"stream {self.name}: headers has {', '.join(unknown)}, which {self.table.name} has no columns for"
            )
        if self.headers and self.topic is None:
            raise StreamRefused(f"stream {self.name}: headers are those of Kafka's records; set topic=")
        if odd := [reason for reason, rule in self.rules.items() if not callable(rule)]:
            raise StreamRefused(
                f"stream {self.name}: rule {odd[0]!r} is not a function: write lambda fields: fields['quantity'] > 0"
            )
        if self.deserialize is not None and not callable(self.deserialize):
            raise StreamRefused(f"stream {self.name}: deserialize is a function of a body, not {self.deserialize!r}")
        if self.reaction is not None:
            self.reaction.require_stream(self)

    def _require_time(self) -> None:
        by = self.table.partitioning
        if not isinstance(by, ByTime) or by.format is not None or by.timezone != "UTC":
            raise StreamRefused(
                f"stream {self.name}: expected a table partitioned by hours or days in UTC, or not partitioned"
            )
        if self.table.columns.get(self.time or "") not in ("timestamp", "date"):
            raise StreamRefused(
                f"stream {self.name}: its table is partitioned by {by.column}; set time= to the field it follows from"
            )
        if self.time not in self.required:
            raise StreamRefused(f"stream {self.name}: {self.time} determines the partition; add it to required")

    def topic_in(self, settings: Settings) -> str | None:
        """Return the name of the stream's topic; None if it has no topic, or the deployment has no Kafka."""
        return None if settings.kafka_bootstrap_servers is None else self.topic

    def why_off(self, settings: Settings) -> str | None:
        """Return the reason why no run handles the stream in a deployment; None if runs handle it."""
        has_inlet = self.queue is not None or self.topic_in(settings) is not None
        return None if has_inlet else "TIDEMARK_KAFKA_BOOTSTRAP_SERVERS is not set"

    @property
    def job(self) -> str:
        """The name of the job whose runs handle the messages."""
        return f"shift_{self.name}"

    @property
    def asset(self) -> str:
        """The asset key of the table."""
        return self.table.name.replace(".", "/")

    def partition_of(self, fields: Fields) -> datetime | date | None:
        """Return the value of the partition column for a message's fields; None if the table has no partitions."""
        if self.partition_column is None:
            return None
        at: datetime = fields[self.time or ""]
        if self.table.columns[self.partition_column] == "date":
            return at.date() if isinstance(at, datetime) else at
        return at.replace(minute=0, second=0, microsecond=0)

    def key_of(self, value: datetime | date | None) -> str | None:
        """Return Dagster's partition key for a value of the partition column; None if there is no partition."""
        by = self.table.partitioning
        if value is None or not isinstance(by, ByTime):
            return None
        at = value.astimezone(UTC) if isinstance(value, datetime) else value
        return at.strftime(by.format_of(self.table.columns))


def require_queue_name(what: str, queue: str | None) -> None:
    """Raise if a queue's name is not that of a standard queue. None is allowed: it means that there is no queue.

    Args:
        what: The declaration, as named in the error.

    Raises:
        StreamRefused: the name is invalid, or that of a FIFO queue. The message names the declaration and the queue.
    """
    if isinstance(queue, str) and queue.endswith(FIFO):
        raise StreamRefused(f"{what}: queue={queue!r}: {NO_FIFO}")
    if queue is not None and not (isinstance(queue, str) and _QUEUE.fullmatch(queue)):
        raise StreamRefused(f"{what}: queue={queue!r}: expected 1 to 80 of a-z, A-Z, 0-9, _ and -")


class StreamRefused(Terminal):
    """A stream's declaration contradicts itself, or names something that does not exist."""
