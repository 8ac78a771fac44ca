"""The rule too_warm over history, on Spark."""

import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from pyspark import cloudpickle
from pyspark.sql import Row

from dagster_tidemark import shipped
from pipelines.transforms import cold_chain_history
from pipelines.transforms.cold_chain_history import episodes_too_warm
from tests.tidemark.streams.episodes_oracle import episodes
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import at


def test_too_warm_episodes_are_found_for_each_sensor(readings: MakeFrame) -> None:
    frame = readings(
        {"read_at": at(8, 5), "temperature_c": 6.0, "store_id": 3},  # rows in any order
        {"read_at": at(7, 55), "temperature_c": 9.0, "store_id": 2},
        {"read_at": at(7, 40), "temperature_c": 9.0, "device_id": "b"},
        {"read_at": at(7, 45), "temperature_c": 5.0, "device_id": "b"},
        {"read_at": at(7, 52), "temperature_c": 9.0, "device_id": "b"},
    )
    assert episodes_too_warm(frame).collect() == [
        Row(device_id="a", store_id=2, started_at=at(7, 55), last_at=at(8, 5))
    ]


def test_too_warm_rule_finds_no_episodes_without_readings(readings: MakeFrame) -> None:
    assert episodes_too_warm(readings({"read_at": at(7)}).limit(0)).collect() == []


def test_too_warm_episodes_on_spark_equal_those_of_the_oracle(readings: MakeFrame) -> None:
    dice = random.Random(3)
    degrees: dict[str, dict[datetime, float]] = {device: {} for device in "abcde"}
    for read in degrees.values():
        read_at = datetime(2026, 11, 20, tzinfo=UTC)
        for _ in range(300):
            read_at += timedelta(minutes=dice.choice((1, 5, 10, 15, 15.01)))
            read[read_at] = dice.choice((5.9, 6.0, 7.0, 8.0, 8.1, 8.1, 9.0))
    rows = [{"device_id": d, "read_at": t, "temperature_c": c} for d, read in degrees.items() for t, c in read.items()]
    dice.shuffle(rows)
    found = episodes_too_warm(readings(*rows)).toArrow().to_pylist()
    expected = {(device, *span) for device, read in degrees.items() for span in episodes(read)}
    assert len(expected) > 50
    assert {(row["device_id"], row["started_at"], row["last_at"]) for row in found} == expected


def test_too_warm_rule_runs_on_a_worker_without_the_project() -> None:
    body = cloudpickle.dumps(shipped(cold_chain_history._episodes))
    program = (
        "import pickle, sys, pyarrow as pa; from datetime import *\n"
        "sys.modules['pipelines'] = None\n"
        "reading = {'device_id': 'a', 'store_id': 1, 'temperature_c': 9.0}\n"
        "rows = [reading | {'read_at': datetime(2026, 1, 1, 0, minute, tzinfo=UTC)} for minute in (0, 10)]\n"
        "[found] = pickle.loads(sys.stdin.buffer.read())(iter([pa.RecordBatch.from_pylist(rows)]))\n"
        "assert found.num_rows == 1"
    )
    done = subprocess.run([sys.executable, "-c", program], input=body, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
