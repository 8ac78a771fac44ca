"""What the errors of confluent-kafka mean to who reads a topic.

Belongs here: which code is which error of ours, and which is no concern of anybody's. Does not belong here: the errors
themselves (`sources.kafka_errors`).
"""

from confluent_kafka import KafkaError

from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.sources.kafka_errors import KafkaRefused, KafkaUnavailable, TopicUnknown

_UNKNOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_NOT_ALLOWED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
NOT_LET_IN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}
"""The library goes on trying; it will be refused again."""
NO_CONCERN = {
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # the library wants a group, and nobody joins it
    # The library goes on trying; whoever looks at the topic meanwhile sees whether a broker answers.
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}
MOMENTARY = {
    # A partition that has just been made or has just moved: its new leader does not know yet.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""Of a question about a partition: asked again at once it is answered."""


def named(error: KafkaError, servers: str, topic: str) -> TidemarkError:
    """Our error for one of the library's, in one line."""
    code = error.code()
    if code in _UNKNOWN:
        return TopicUnknown(f"Kafka at {servers} has no topic {topic}; create it, or set its name")
    if code in _NOT_ALLOWED:
        return KafkaRefused(f"Kafka at {servers} does not let its user read the topic {topic}: {text(error)}")
    if code in NOT_LET_IN:
        return KafkaRefused(f"Kafka at {servers} does not let us in: {text(error)}")
    return KafkaUnavailable(f"Kafka at {servers} does not answer ({text(error)}); is it running?")


def text(error: KafkaError) -> str:
    """What the library says, in one line."""
    return " ".join(error.str().split())
