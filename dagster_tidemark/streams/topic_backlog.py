"""The backlog of a topic, after an outage or at a first start. Spark reads it in large steps, within the shift.

Belongs here: the definition of a backlog, and the fallback if Spark fails. Does not belong here: reading and committing
a step (`topic_backlog_step`).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagster_tidemark.lakehouse.append import Appendable
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.sources.kafka_errors import KafkaRefused, KafkaUnavailable, TopicUnknown
from dagster_tidemark.sources.kafka_range import range_behind
from dagster_tidemark.streams.stream_declaration import StreamContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from dagster_tidemark.streams.topic_backlog_step import BacklogStep

_SECONDS_WITHOUT_SPARK = 600.0
_FIRST = 2_000
_OF_THE_TOPIC = (KafkaUnavailable, TopicUnknown, KafkaRefused)


@dataclass
class TopicBacklogReader:
    """Reader of the backlog of one topic.

    Args:
        place: The stream and its resources.
        topic: The topic's name.
        from_size: The smallest backlog, in unread offsets. Below it, the shift's own batches are faster.
        at_once: The largest step, in offsets.
        most_bytes: The approximate size of a step in bytes. The shift holds a step's rows in memory for the reaction.
    """

    place: StreamContext
    topic: str
    from_size: int = 100_000
    at_once: int = 200_000
    most_bytes: int = 200_000_000
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))
    _spark: SparkSession | None = None
    _not_before: float = 0.0
    _size: int = _FIRST
    """Offsets of the next step. The first step is small, and shows the size of a message."""

    def next_step(self, resume: str | None, table: Appendable) -> BacklogStep | None:
        """Return the next step, read but not committed; None if there is no backlog, or Spark cannot read it now.

        Args:
            resume: The position to read from, as for `KafkaTopic.receive`.
            table: The stream's table at the snapshot whose newest position is `resume`.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused, RangeGone, ...: see `range_behind`.
        """
        if time.monotonic() < self._not_before:
            return None
        settings = self.place.settings
        read = range_behind(settings.kafka_options(), self.topic, resume)
        if read.size < self.from_size:
            self.close()
            return None
        # Both take a second to import, and most shifts never have a backlog.
        from dagster_tidemark.lakehouse.topic_range import RangeGone
        from dagster_tidemark.streams.topic_backlog_step import read_step

        self.log.info("kafka:%s: %d offsets behind; Spark reads them", self.topic, read.size)
        try:
            self._spark = self._spark or new_session(settings)
            return read_step(self._spark, self.place, read.first(min(self._size, self.at_once)), table)
        except (*_OF_THE_TOPIC, RangeGone):
            raise
        except Exception as error:  # of Spark or its server; the stream continues more slowly without Spark
            said = str(error).strip().partition("\n")[0]
            self.log.warning(
                "kafka:%s: reading the backlog in small batches, because Spark failed: %s", self.topic, said
            )
            self._not_before = time.monotonic() + _SECONDS_WITHOUT_SPARK
            self.close()
            return None

    def learn(self, step: BacklogStep, rows: pa.Table) -> None:
        """Set the size of the next step from the size of a finished step's rows and faults."""
        found = rows.nbytes + sum(len(fault.record.body) for fault in step.faults)
        self._size = max(_FIRST, round(self.most_bytes / max(found, 1) * step.read.size))

    def close(self) -> None:
        """Stop the Spark session, if there is one."""
        spark, self._spark = self._spark, None
        if spark is not None:
            try:
                spark.stop()
            except Exception as error:  # the server may no longer exist
                self.log.debug("%s", error)
