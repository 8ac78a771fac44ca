"""Results of the check `stream`, which the sensor `contracts` writes when the state of a stream changes.

Does not belong here: the state (`engine.stream_rows`), and the check (`streams.checks`).
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.engine.doubts import Doubts, Watched
from dagster_tidemark.engine.stream_rows import StreamRow, stream_rows
from dagster_tidemark.streams.checks import STREAM, state_result

_FIGURES_EVERY = 600.0  # seconds; a stream at work writes six results an hour


def changed_streams(
    instance: dg.DagsterInstance, watched: Watched, found: Doubts, now: float, told: Mapping[str, Any]
) -> tuple[list[dg.AssetCheckEvaluation], dict[str, list[Any]]]:
    """Return results for the streams whose state has changed since the last report, and the states of all streams."""
    rows = stream_rows(instance, watched, found, now)
    states = {f"stream {row.stream}": _state(row) for row in rows}
    changed = [row for row in rows if told.get(f"stream {row.stream}") != states[f"stream {row.stream}"]]
    return [_evaluation(row, now) for row in changed], states


def _state(row: StreamRow) -> list[Any]:
    """Return the values that a result depends on, without the text of a hindrance: its times change at each tick."""
    return [row.is_behind, bool(row.hindrance), (row.committed_at or 0.0) // _FIGURES_EVERY]


def _evaluation(row: StreamRow, now: float) -> dg.AssetCheckEvaluation:
    key = dg.AssetKey.from_user_string(row.asset)
    return dg.AssetCheckEvaluation(asset_key=key, check_name=STREAM, **state_result(row, now))
