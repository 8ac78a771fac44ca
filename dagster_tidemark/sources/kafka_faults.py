"""Mapping from errors of confluent-kafka to Tidemark's errors.

Belongs here: the error of each code, and the codes to ignore. Does not belong here: the error classes
(`sources.kafka_errors`).
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
"""Codes of failed logins. The library retries, and is refused again."""
NO_CONCERN = {
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # the library requires a group, which no consumer joins
    # The library retries. The regular check of the topic fails if no broker answers.
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}
MOMENTARY = {
    # A partition was just created or moved, and its new leader is not ready yet.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""Codes of requests about a partition that succeed when repeated at once."""


def named(error: KafkaError, servers: str, topic: str) -> TidemarkError:
    """Return Tidemark's error for an error of the library, with a one-line message."""
    code = error.code()
    if code in _UNKNOWN:
        return TopicUnknown(f"Kafka at {servers} has no topic {topic}; create it, or correct its name")
    if code in _NOT_ALLOWED:
        return KafkaRefused(f"Kafka at {servers} does not allow the user to read the topic {topic}: {text(error)}")
    if code in NOT_LET_IN:
        return KafkaRefused(f"Kafka at {servers} refused the login: {text(error)}")
    return KafkaUnavailable(f"Kafka at {servers} does not answer ({text(error)}); is it running?")


def text(error: KafkaError) -> str:
    """Return the library's message on one line."""
    return " ".join(error.str().split())
