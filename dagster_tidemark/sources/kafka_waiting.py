"""The unread records of a topic: their number, and the time of the oldest.

Belongs here: the figures, fetched on a separate connection. Does not belong here: reading the records
(`sources.kafka`).
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dagster_tidemark.sources.kafka import open_client
from dagster_tidemark.sources.kafka_position import Position, begin
from dagster_tidemark.sources.received_messages import UncommittedMessages

if TYPE_CHECKING:
    from dagster_tidemark.sources.kafka_client import KafkaClient

_TIMES_EVERY = 20.0  # seconds between reads of the times, because each read fetches records


class TopicBacklog:
    """The unread records of a topic. Used by one thread, with its own connection.

    Args:
        options: Options of librdkafka.
        topic: The topic's name.
    """

    def __init__(self, options: Mapping[str, str], topic: str) -> None:
        self._options, self._topic = options, topic
        self._client: KafkaClient | None = None
        self._times: dict[int, float] = {}
        """The time of the first unread record of each partition, as of the last fetch."""
        self._asked = float("-inf")

    def after(self, position: str | None) -> UncommittedMessages:
        """Return the records after a position: end offset minus position, summed over the partitions that can be read.

        The time of the oldest record may be up to 20 seconds out of date.

        Args:
            position: The position, as for `KafkaTopic.receive`.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused, PositionUnreadable: as in `KafkaTopic.receive`.
        """
        self._client = client = self._client or open_client(self._options, self._topic)
        topic = client.look()
        logs = client.logs(topic.partitions)
        begun = begin(self._topic, topic.id, logs, None if position is None else Position.parse(position))
        unread = {partition: offset for partition, offset in begun.offsets.items() if offset < logs[partition].end}
        if unread and time.monotonic() - self._asked >= _TIMES_EVERY:
            self._times, self._asked = client.first_times(topic.id, unread), time.monotonic()
        oldest = min((at for partition, at in self._times.items() if partition in unread), default=None)
        return UncommittedMessages(sum(logs[partition].end - offset for partition, offset in unread.items()), oldest)
