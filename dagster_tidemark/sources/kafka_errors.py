"""Errors of reading a topic, each with a one-line message. Importable without the client library."""

from dagster_tidemark.errors import Terminal, Transient


class KafkaMissing(Terminal):
    """The client library is not installed."""

    def __init__(self) -> None:
        super().__init__("Kafka needs the package confluent-kafka: pip install 'dagster-tidemark[kafka]'")


class KafkaUnavailable(Transient):
    """No broker answers, or the broker cannot serve the request now."""


class TopicUnknown(Transient):
    """The topic does not exist. A retry helps after it was created."""


class KafkaRefused(Terminal):
    """The broker refuses the login or the access to the topic, or an option cannot be used."""


class PositionUnreadable(Terminal):
    """A property of the table is not a position of a topic. Correct the property, or the program that wrote it."""
