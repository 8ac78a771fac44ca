"""A shift in a process of its own, without Dagster: `python -m tests.tidemark.streams.worker NAME TRANSPORT SECONDS`.

It works at the toy stream of this name, with alerts, until nothing has come for so many seconds. Its settings are the
environment's; told to, it dies or stops at a boundary (`failpoints`).
"""

import logging
import sys
import time

from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.sources.kafka import KafkaTopic
from dagster_tidemark.sources.received_messages import Inlet
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import StreamContext
from dagster_tidemark.streams.topic_backlog import TopicBacklogReader
from tests.tidemark.streams import toy


def inlets(name: str, transport: str, settings: Settings) -> list[Inlet]:
    if transport in ("kafka", "backlog"):
        return [KafkaTopic(settings.kafka_options(), f"topic-{name}")]
    return [toy.shortly_held(f"queue-{name}", settings)]


def main(name: str, transport: str, seconds: float) -> None:
    logging.basicConfig(level=logging.WARNING)
    settings = load_settings()
    stream = toy.stream_with_alerts(name)
    # Counted from the first look: on a busy machine a process takes long to begin.
    last: list[float] = []

    def ends() -> str | None:
        if not last or shift.counts.received != last[1]:
            last[:] = [time.monotonic(), shift.counts.received]
        return "nothing has come" if time.monotonic() - last[0] > seconds else None

    place = StreamContext(settings, open_lake(settings), stream)
    found = inlets(name, transport, settings)
    backlogs = (
        {found[0].name: TopicBacklogReader(place, f"topic-{name}", from_size=1)} if transport == "backlog" else {}
    )
    shift = Shift(place, found, Reports(stream, toy.Heard()), "code-1", ends, backlogs=backlogs)
    print("ready", flush=True)
    shift.work()
    print(shift.counts, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
