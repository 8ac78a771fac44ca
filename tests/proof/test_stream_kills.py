"""Every boundary of a batch of messages, with every transport: killed alone, killed beside another, asleep and back."""

from pathlib import Path
from typing import get_args

import pytest

from dagster_tidemark.settings import Settings, StreamBoundary
from tests.proof.conftest import Report
from tests.tidemark.streams.kills import Cell, Way

_PLAYED: dict[str, list[str]] = {}
_NOT_OF_A_BACKLOG = ("stream_received", "stream_acknowledged")  # which a backlog does not come to
_CELLS = [
    (transport, boundary)
    for transport in ("sqs", "kafka", "backlog")
    for boundary in get_args(StreamBoundary)
    if (boundary not in _NOT_OF_A_BACKLOG if transport == "backlog" else boundary != "stream_branched")
]


@pytest.mark.parametrize("way", get_args(Way))
@pytest.mark.parametrize(("transport", "boundary"), _CELLS)
def test_stream_kill_at_any_boundary_loses_and_doubles_nothing(
    transport: str,
    boundary: StreamBoundary,
    way: Way,
    cloud: Settings,
    tmp_path: Path,
    report: Report,
    request: pytest.FixtureRequest,
) -> None:
    broker = None if transport == "sqs" else request.getfixturevalue("kafka")
    backlog = transport == "backlog"
    if backlog:
        request.getfixturevalue("spark_server")  # beside the cloud
    faults = Cell(boundary, way, cloud, tmp_path, broker, backlog=backlog).play()
    _PLAYED[f"{transport} {boundary} {way}"] = faults
    report("stream-kills", {"cells": len(_PLAYED), "faults": {cell: of for cell, of in _PLAYED.items() if of}})
    assert faults == []
