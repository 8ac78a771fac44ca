"""Creation of topics on a laptop's own broker. On other clusters, operators create topics."""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # documented, but missing in its types

from dagster_tidemark.sources.kafka_errors import KafkaUnavailable

_PARTITIONS = 3
_SECONDS_TO_CREATE = 20


def create_topic(options: Mapping[str, str], topic: str) -> None:
    """Create a topic unless it exists.

    Raises:
        KafkaUnavailable: the broker did not create the topic.
    """
    admin = AdminClient({**options, "log_level": 2})
    made = admin.create_topics([NewTopic(topic, _PARTITIONS, 1)], request_timeout=_SECONDS_TO_CREATE)[topic]
    try:
        made.result(2 * _SECONDS_TO_CREATE)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise KafkaUnavailable(f"the topic {topic} could not be created: {error.args[0].str()}") from error
