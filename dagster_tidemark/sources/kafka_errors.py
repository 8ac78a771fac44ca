"""What can be wrong with a topic, each in one line. Importable without the client library."""

from dagster_tidemark.errors import Terminal, Transient


class KafkaMissing(Terminal):
    """The client library is not installed."""

    def __init__(self) -> None:
        super().__init__("Kafka needs the package confluent-kafka: pip install 'dagster-tidemark[kafka]'")


class KafkaUnavailable(Transient):
    """No broker answers, or the one that does cannot do now what it was asked."""


class TopicUnknown(Transient):
    """There is no such topic. A retry helps once somebody has created it."""


class KafkaRefused(Terminal):
    """The broker does not let us in or does not let us read the topic, or an option cannot be used."""


class PositionUnreadable(Terminal):
    """A text is no position of a topic; whoever wrote it has to say what it means."""
