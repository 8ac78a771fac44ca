"""A shift of a busy topic and a quiet queue in its own process, which records the lag of each second.

`python -m tests.proof.endurance_worker NAME FILE`. Each line of the file is JSON: the time, the number of rows, their
lags from send to commit, and the process's resident memory. Imports what a run of Dagster imports, for its memory.
"""

import json
import logging
import statistics
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import load_settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.kafka import KafkaTopic
from dagster_tidemark.sources.sqs import open_queue
from dagster_tidemark.streams import job
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import StreamContext
from tests.tidemark.streams import toy

assert job.shift_job


@dataclass
class Measured(Reports):
    """Reports that write down when rows were committed."""

    file: Path = Path("lags")
    _me: psutil.Process = field(default_factory=psutil.Process)

    def added(self, rows: list[dict[str, Any]], not_before: datetime | None = None) -> None:
        super().added(rows, not_before)
        now = time.time()
        lags = sorted(now - row["sent_at"].timestamp() for row in rows)
        if lags:
            p95 = lags[int(len(lags) * 0.95)]
            told = {"at": now, "rows": len(rows), "median": statistics.median(lags), "p95": p95, "longest": lags[-1]}
            with self.file.open("a") as file:
                file.write(json.dumps({**told, "mb": round(self._me.memory_info().rss / 1e6)}) + "\n")


def main(name: str, file: Path) -> None:
    logging.basicConfig(level=logging.WARNING)
    settings, stream = load_settings(), toy.stream_with_alerts(name, quiet=timedelta(minutes=1))
    place = StreamContext(settings, open_lake(settings), stream)
    queue = QueueInlet(f"sqs:queue-{name}", lambda: open_queue(f"queue-{name}", **settings.aws_options()))
    inlets = [queue, KafkaTopic(settings.kafka_options(), f"topic-{name}")]
    shift = Shift(place, inlets, Measured(stream, toy.Heard(), file=file), "code-1", lambda: None)
    shift.work()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
