"""A shift that dies, or sleeps and comes back: a cell of the matrix (all: tests/proof/test_stream_kills.py)."""

from pathlib import Path

from dagster_tidemark.settings import Settings
from tests.tidemark.kafka import Broker
from tests.tidemark.streams.kills import Cell


def test_shift_paused_between_commit_and_alert_loses_and_doubles_nothing(
    cloud: Settings, kafka: Broker, tmp_path: Path
) -> None:
    assert Cell("stream_committed", "zombie", cloud, tmp_path, kafka).play() == []
