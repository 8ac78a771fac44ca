"""From a request to its reply, two shifts at work: one at a time, and a hundred at once; and looks for old answers."""

import json
import os
import random
import statistics
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.sqs import SqsQueue, open_queue
from dagster_tidemark.streams.answers.table import AnswerTable
from pipelines.models import demand
from pipelines.schemas import ml, raw
from tests.grocer_demand import FIRST_DAY, features
from tests.grocer_scores import keep_features, publish
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.tidemark.streams import toy
from tests.tidemark.streams.answering_worker import are_ready, started

DAYS = 28
LAST = FIRST_DAY + timedelta(days=DAYS - 1)
ALONE = 30
CROWDS = 6
CROWD = 100
FILES = 1_000
LIMIT_ALONE, LIMIT_CROWD = 1.0, 3.0


class Listener:
    """Those who wait for replies: when each came, and what it said."""

    def __init__(self, queue: SqsQueue) -> None:
        self._queue = queue
        self.came: dict[str, float] = {}
        self.said: dict[str, list[str]] = defaultdict(list)

    @contextmanager
    def listening(self) -> Iterator[None]:
        over = threading.Event()
        threads = [threading.Thread(target=self._listen, args=(over,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _listen(self, over: threading.Event) -> None:
        while not over.is_set():
            messages = self._queue.receive(2)
            now = time.monotonic()
            for message in messages:
                request_id = json.loads(message.body)["request_id"]
                self.came.setdefault(request_id, now)
                self.said[request_id].append(message.body)
            self._queue.delete(messages)

    def have_come(self, ids: list[str]) -> None:
        assert self.came.keys() >= set(ids), f"{len(set(ids) - self.came.keys())} replies are missing"


@pytest.fixture
def settings(cloud: Settings, tmp_path: Path) -> Settings:
    """A lake of its own with four weeks of the sample feed's features, and the model that is fitted to them."""
    own = {"catalog_uri": f"jdbc:sqlite:{tmp_path}/catalog.db?journal_mode=WAL&busy_timeout=30000"}
    made = cloud.model_copy(update=own | {"warehouse": str(tmp_path / "warehouse")})
    known = features(DAYS)
    for day in sorted(set(known["day"])):
        keep_features(made, known, [day])
    publish(made, demand.DemandLearner(), demand.labelled(known))
    return made


def asked(dice: random.Random) -> tuple[str, str]:
    """An id and the body of a request."""
    request_id = str(uuid.UUID(int=dice.getrandbits(128)))
    said = {"store_id": dice.randint(1, 12), "product_id": dice.randint(101, 160), "date": str(LAST)}
    return request_id, json.dumps({"request_id": request_id, **said})


def seconds(of: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = of()
    return time.perf_counter() - began, found


def spread(taken: list[float]) -> dict[str, float]:
    return {"median, s": round(statistics.median(taken), 3), "longest, s": round(max(taken), 3), "n": len(taken)}


def test_one_score_takes_a_second_and_a_hundred_take_three(settings: Settings, tmp_path: Path, report: Report) -> None:
    variables = {f"TIDEMARK_{name}_QUEUE": toy.new_name() for name in ("SCORING", "SCORES")}
    requests = toy.make_queue(settings, variables["TIDEMARK_SCORING_QUEUE"], receives=20)
    toy.make_queue(settings, variables["TIDEMARK_SCORES_QUEUE"], receives=1_000)
    listener = Listener(open_queue(variables["TIDEMARK_SCORES_QUEUE"], **settings.aws_options()))
    dice, ids, alone, crowds = random.Random(0), list[str](), list[float](), list[float]()
    stream = "pipelines.streams.scoring:SCORING"

    def reply_to(count: int) -> float:
        some = dict(asked(dice) for _ in range(count))
        began = time.monotonic()
        requests.send(list(some.values()))
        eventually(lambda: listener.have_come(list(some)), seconds=60, every=0.02)
        ids.extend(some)
        return max(listener.came[each] for each in some) - began

    load = os.getloadavg()[0]
    with (
        listener.listening(),
        started(stream, settings, tmp_path, 10, **variables) as one,
        started(stream, settings, tmp_path, 10, **variables) as two,
    ):
        eventually(lambda: are_ready(tmp_path, 2), seconds=120, every=0.1)
        for _ in range(ALONE):
            time.sleep(dice.uniform(0.2, 1.2))
            alone.append(reply_to(1))
        for _ in range(CROWDS):
            time.sleep(1.0)
            crowds.append(reply_to(CROWD))
        assert (one.wait(120), two.wait(120)) == (0, 0), (tmp_path / "log").read_text()
    rows = Appendable(open_lake(settings), ml.SCORES).rows().to_pylist()
    kept = Appendable(open_lake(settings), raw.SCORING_REQUESTS).rows().num_rows
    figures = {
        "what": "seconds from before a request is sent to its reply; two shifts as processes, local cloud and SQLite",
        "one at a time": spread(alone),
        f"the last of {CROWD} at once": spread(crowds),
        "requests": len(ids),
        "rows": len(rows),
        "doubled rows": len(rows) - len({row["request_id"] for row in rows}),
        "replies": sum(map(len, listener.said.values())),
        "ids with two different replies": sum(len(set(said)) > 1 for said in listener.said.values()),
        "errors": sum(row["error"] is not None for row in rows),
        "the shifts": [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("Counts")],
        "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
    }
    report("scoring-latency", figures)
    assert kept == len(rows) == len(ids) == len({row["request_id"] for row in rows})
    assert listener.said.keys() == set(ids) and figures["ids with two different replies"] == 0
    assert max(alone) <= LIMIT_ALONE
    assert max(crowds) <= LIMIT_CROWD


def test_answers_are_found_quickly_in_a_thousand_files(settings: Settings, tmp_path: Path, report: Report) -> None:
    lake = open_lake(settings)
    table, now = Appendable(lake, ml.SCORES), datetime.now(UTC)
    made, paths = list[dict[str, Any]](), list[str]()
    for n in range(FILES):
        at = now - timedelta(minutes=FILES - n)
        some = [{"request_id": str(uuid.uuid4()), "score": 1.0, "scored_at": at} for _ in range(20)]
        paths.append(str(tmp_path / f"{n}.parquet"))
        pq.write_table(pa.Table.from_pylist(some, schema=table.schema), paths[-1])
        made += some
    loaded = lake.load_table(ml.SCORES.name)
    loaded.add_files(paths)
    answers = AnswerTable(Appendable(lake, ml.SCORES), "request_id", "scored_at")
    first, _ = seconds(answers.refresh)
    new = [str(uuid.uuid4()) for _ in range(100)]
    not_there, none = seconds(lambda: answers.find(new))
    old = [row["request_id"] for row in random.Random(0).sample(made, 100)]
    one, _ = seconds(lambda: answers.find(old[:1]))
    hundred, found = seconds(lambda: answers.find(old))
    figures = {
        "what": f"seconds of a look at ml.scores with {FILES} files of 20 answers",
        "when a shift begins": round(first, 3),
        "a hundred new requests": round(not_there, 6),
        "one that was answered long ago": round(one, 3),
        "a hundred that were answered long ago, at different times": round(hundred, 3),
        "load": round(os.getloadavg()[0], 1),
    }
    report("scoring-looks", figures)
    assert none == {} and found.keys() == set(old)
    assert not_there < 0.05
