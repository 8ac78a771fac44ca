"""The reaction of a run, for the declaration on its stream.

Only runs import this module: the modules of the reactions import pyiceberg, which takes a second.
"""

from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.worker import Alerts
from dagster_tidemark.streams.answers.declaration import Answering
from dagster_tidemark.streams.answers.worker import Answers
from dagster_tidemark.streams.stream_declaration import Reaction, StreamContext
from dagster_tidemark.streams.transport import declared_queue


def reaction_of(place: StreamContext) -> Reaction:
    """Return the reaction to the messages of a stream.

    Raises:
        TypeError: the declaration is neither `Alerting` nor `Answering`.
    """
    match place.stream.reaction:
        case None:
            return Reaction()
        case Alerting() as alerting:
            return Alerts(alerting, place, lambda: declared_queue(alerting.queue, place.settings))
        case Answering() as answering:
            return Answers(answering, place, lambda: declared_queue(answering.queue, place.settings))
        case other:
            raise TypeError(f"stream {place.stream.name}: expected Alerting or Answering as reaction, found {other!r}")
