"""One step of a backlog: a range of a topic becomes rows of the stream's table, on Spark, in one commit.

The rows are appended to a branch, which starts at the snapshot with the position where the range begins. The table is
fast-forwarded to the branch only if that snapshot is still its head, so an overlapping or resumed run adds nothing.
Belongs here: the decoding of bodies in Spark's workers, and the commit. Does not belong here: the choice of the range
(`topic_backlog`), and the meaning of a body (`decode`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse import branches
from dagster_tidemark.lakehouse.append import Appendable
from dagster_tidemark.lakehouse.session import naming_the_server
from dagster_tidemark.lakehouse.shipping import OfBatches, shipped
from dagster_tidemark.lakehouse.table import MESSAGE, quoted
from dagster_tidemark.lakehouse.topic_range import RangeGone, naming_the_broker, read_range
from dagster_tidemark.sources.kafka_range import Range, is_still_of
from dagster_tidemark.sources.received_messages import ReceivedMessage
from dagster_tidemark.streams.decode import Decoder, Fault, of_message, table_rows
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREFIX = "backlog_"
_TEXTS = ("fault_content", "fault_reason", "fault_message", "fault_raised")
_FAULT = {"fault_body": "binary"} | dict.fromkeys(_TEXTS, "string")
_ARROW = {"binary": pa.binary(), "string": pa.string()}


@dataclass(frozen=True)
class BacklogStep:
    """A range that was read and is not committed yet.

    Args:
        read: The range.
        faults: The messages in the range that did not become rows.
    """

    read: Range
    faults: Sequence[Fault]
    _decoded: DataFrame
    _place: StreamContext
    _head: int | None

    def has_rows(self) -> bool:
        """Return True if any message of the range became a row."""
        with naming_the_server(self._decoded.sparkSession):
            return not self._decoded.where(F.col("fault_reason").isNull()).isEmpty()

    def commit(self) -> None:
        """Add the rows and the new position of the topic to the table.

        Raises:
            CommitConflict: another writer has committed to the table; nothing was written.
            RangeGone: the topic was deleted and created again; nothing was written.
        """
        spark, table, branch = self._decoded.sparkSession, self._place.stream.table, f"{_PREFIX}{uuid.uuid4().hex[:12]}"
        rows = self._decoded.where(F.col("fault_reason").isNull())
        with naming_the_server(spark), naming_the_broker(self.read):
            branches.drop_all(spark, table, _PREFIX)
            branches.create(spark, table, branch, self._head)
            branches.append(rows, table, branch, self.read.reached)
            reached("stream_branched")
            if not is_still_of(self._place.settings.kafka_options(), self.read):
                raise RangeGone(f"kafka:{self.read.topic} was created again while it was read")
            branches.fast_forward(spark, table, branch)
            branches.drop(spark, table, branch)

    def close(self) -> None:
        """Release the rows that Spark has cached."""
        with suppress(PySparkException):
            self._decoded.unpersist()


def read_step(spark: SparkSession, place: StreamContext, read: Range, table: Appendable) -> BacklogStep:
    """Read and decode a range.

    Args:
        table: The stream's table at the snapshot whose newest position is the start of the range.

    Raises:
        KafkaUnavailable, TopicUnknown, KafkaRefused, RangeGone, NoKafkaSource: see `naming_the_broker`.
        SparkLost: the server is gone.
    """
    columns = place.stream.table.columns
    schema = pa.schema([*table.schema, *(pa.field(name, _ARROW[kind]) for name, kind in _FAULT.items())])
    sent = replace(place.stream, reaction=None)  # workers only decode
    own: list[Callable[..., Any]] = [
        *sent.rules.values(),
        *([sent.deserialize] if sent.deserialize is not None else []),
    ]
    decode = shipped(_decoding(sent, place.settings.start_date, datetime.now(UTC), schema), *own)
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in {**columns, **_FAULT}.items())
    with naming_the_server(spark), naming_the_broker(read):
        frame = read_range(spark, place.settings.kafka_options(), read)
        # Persisted, because the frame is read twice, but bodies should be decoded once.
        decoded = frame.mapInArrow(decode, ddl).persist()
        refused = decoded.where(F.col("fault_reason").isNotNull()).select(*MESSAGE, *_FAULT).toArrow()
    return BacklogStep(read, [_fault(row) for row in refused.to_pylist()], decoded, place, table.head)


def _decoding(stream: Stream, start: date, now: datetime, schema: pa.Schema) -> OfBatches:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(stream, start)
        for batch in batches:
            rows, faults = decoder.read(map(_record, batch.to_pylist()), now)
            made = [*table_rows(stream, rows), *map(_of_fault, faults)]
            yield pa.RecordBatch.from_pylist(made, schema)

    return decode


def _record(row: Mapping[str, Any]) -> ReceivedMessage:
    return ReceivedMessage(
        body=row["body"],
        message_id=row["message_id"],
        sent_at=row["sent_at"].astimezone(UTC),
        source=row["message_source"],
        topic_id=row["topic_id"],
        partition=row["topic_partition"],
        offset=row["topic_offset"],
        is_null=bool(row.get("is_null")),
        headers=tuple((header["key"], header["value"]) for header in row.get("headers") or ()),
    )


def _of_fault(fault: Fault) -> dict[str, Any]:
    return {
        **of_message(fault.record),
        "fault_body": fault.record.body,
        "fault_content": fault.content,
        "fault_reason": fault.reason,
        "fault_message": fault.message,
        "fault_raised": fault.raised,
    }


def _fault(row: Mapping[str, Any]) -> Fault:
    record = _record({**row, "body": row["fault_body"]})
    return Fault(record, *(row[name] for name in _TEXTS))
