"""Every boundary of a batch of messages, with every transport: killed alone, killed beside another, asleep and back."""

from pathlib import Path
from typing import get_args

import pytest

from pipelines.tidemark.settings import Settings, StreamBoundary
from tests.proof.conftest import Report
from tests.tidemark.streams.kills import Cell, Way

_PLAYED: dict[str, list[str]] = {}


@pytest.mark.parametrize("way", get_args(Way))
@pytest.mark.parametrize("boundary", get_args(StreamBoundary))
@pytest.mark.parametrize("transport", ["sqs", "kafka"])
def test_nothing_is_lost_or_doubled(
    transport: str,
    boundary: StreamBoundary,
    way: Way,
    cloud: Settings,
    tmp_path: Path,
    report: Report,
    request: pytest.FixtureRequest,
) -> None:
    broker = request.getfixturevalue("kafka") if transport == "kafka" else None
    faults = Cell(boundary, way, cloud, tmp_path, broker).play()
    _PLAYED[f"{transport} {boundary} {way}"] = faults
    report("stream-kills", {"cells": len(_PLAYED), "faults": {cell: of for cell, of in _PLAYED.items() if of}})
    assert faults == []
