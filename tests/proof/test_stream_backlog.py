"""A backlog of a topic, in the small batches of a shift and in the large steps of Spark: rows a second, and memory."""

import json
import threading
import time
from datetime import timedelta

import psutil

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.settings import Settings
from tests.proof.conftest import Report
from tests.tidemark.kafka import Broker
from tests.tidemark.streams import toy
from tests.tidemark.streams.test_topic_backlog import shift_at

MESSAGES = 600_000
GADGETS = 500


def test_topic_backlog_gives_the_same_alerts_by_spark_and_by_batches(
    cloud: Settings, spark_server: Settings, kafka: Broker, report: Report
) -> None:
    settings = spark_server.model_copy(update={"kafka_bootstrap_servers": kafka.servers})
    topic, producer = kafka.topic(partitions=3), kafka.producer(**{"linger.ms": 50})
    for n in range(MESSAGES):
        at = toy.HOUR - timedelta(seconds=(MESSAGES - n) // 50)
        strength = 7.0 if n // 20_000 % 4 == 0 else 1.0
        said = {"gadget": f"g{n % GADGETS}", "at": at.isoformat(), "strength": strength}
        producer.produce(topic, json.dumps(said), partition=n % GADGETS % 3)
        if n % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0
    figures: dict[str, object] = {"what": f"{MESSAGES} messages of {GADGETS} keys in 3 partitions, with alerts"}
    alerts: list[list[tuple[object, ...]]] = []
    for way, large in (("by Spark", True), ("in small batches", False)):
        name = toy.new_name()
        of = toy.stream_with_alerts(name, queue=None, topic=topic)
        toy.make_queue(settings, f"out-{name}", receives=1000)
        peak, over = [0.0], threading.Event()
        watch = threading.Thread(target=_watch, args=[peak, over])
        watch.start()
        begun = time.monotonic()
        with shift_at(of, settings, topic, large=large, from_size=100_000, at_once=200_000) as work:
            while work.step():
                pass
        seconds = time.monotonic() - begun
        over.set()
        watch.join()
        lake = open_lake(settings)
        rows = Appendable(lake, of.table).rows(columns=("message_id",))
        found = Appendable(lake, toy.alerts(name)).rows().to_pylist()
        alerts.append(sorted((a["gadget"], a["episode_started_at"]) for a in found if a["retracted_at"] is None))
        figures[way] = {
            "seconds": round(seconds, 1),
            "rows a second": round(MESSAGES / seconds),
            "commits": work.counts.commits,
            "alerts": len(alerts[-1]),
            "MB of the shift": round(peak[0]),
        }
        report("stream-backlog", figures)
        assert rows.num_rows == len(set(rows["message_id"].to_pylist())) == MESSAGES
    assert alerts[0] == alerts[1] and len(alerts[0]) > GADGETS


def _watch(peak: list[float], over: threading.Event) -> None:
    while not over.wait(0.2):
        peak[0] = max(peak[0], psutil.Process().memory_info().rss / 1e6)
