"""A shift that dies, or sleeps and comes back: some cells of the matrix (all: tests/proof/test_stream_kills.py)."""

from pathlib import Path

import pytest

from pipelines.tidemark.settings import Settings, StreamBoundary
from tests.tidemark.kafka import Broker
from tests.tidemark.streams.kills import Cell, Way


@pytest.mark.parametrize(("boundary", "way"), [("stream_committed", "alone"), ("stream_outbox", "zombie")])
def test_nothing_of_a_queue_is_lost_or_doubled(
    boundary: StreamBoundary, way: Way, cloud: Settings, tmp_path: Path
) -> None:
    assert Cell(boundary, way, cloud, tmp_path).play() == []


@pytest.mark.parametrize(("boundary", "way"), [("stream_received", "overlapping"), ("stream_committed", "zombie")])
def test_nothing_of_a_topic_is_lost_or_doubled(
    boundary: StreamBoundary, way: Way, cloud: Settings, kafka: Broker, tmp_path: Path
) -> None:
    assert Cell(boundary, way, cloud, tmp_path, kafka).play() == []
