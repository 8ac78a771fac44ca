"""A history as text, so that a restarted code server need not read the whole event log again.

Belongs here: the form. A text of another form, or about other assets, is no checkpoint: the log is read again, which
gives the same. Does not belong here: where it is kept and when (`automation.follower`).
"""

import base64
import json
import zlib
from collections import deque
from typing import Any

from pipelines.automation.graph import Graph, Target
from pipelines.automation.history import History
from pipelines.automation.records import SAMPLES, Built, Change, Failure, Materialization, OpenRun

_FORM = 1


def key_of(graph: Graph) -> str:
    """Where the checkpoint of a code location is kept: two on one instance have no asset in common."""
    return f"tidemark/history/{min(graph.nodes, default='')}"


def dump(history: History, cursor: int) -> str:
    """A history that contains all events up to a storage id."""
    targets = {*history.changes, *history.versions, *history.built, *history.failures, *history.listed_at}
    state = {
        "form": _FORM,
        "assets": sorted(history.graph.nodes),
        "cursor": cursor,
        "first_seen": history.first_seen,
        "leads": {asset: list(seconds) for asset, seconds in history.leads.items()},
        "strides": history.strides,
        "set_aside": [[*target, why] for target, why in history.set_aside.items()],
        "open_runs": {run_id: _of_run(run) for run_id, run in history.open_runs.items()},
        "targets": [_of_target(history, target) for target in sorted(targets, key=repr)],
    }
    return base64.b64encode(zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)).decode()


def load(text: str | None, graph: Graph) -> tuple[History, int] | None:
    """The history and the storage id up to which it goes; None if this is no checkpoint of this graph."""
    if not text:
        return None
    try:
        state = json.loads(zlib.decompress(base64.b64decode(text)))
    except (ValueError, zlib.error):
        return None
    if state.get("form") != _FORM or state["assets"] != sorted(graph.nodes):
        return None
    history = History(graph)
    history.first_seen = state["first_seen"]
    history.leads = {asset: deque(seconds, SAMPLES) for asset, seconds in state["leads"].items()}
    history.strides = state["strides"]
    history.set_aside = {(asset, partition): why for asset, partition, why in state["set_aside"]}
    for row in state["targets"]:
        _take(history, row)
    for run_id, row in state["open_runs"].items():
        history.open_runs[run_id] = run = _run(row)
        for target in run.planned:
            history.running.setdefault(target, set()).add(run_id)
    history.adopt(graph)
    return history, state["cursor"]


def _of_target(history: History, target: Target) -> list[Any]:
    built, failure = history.built.get(target), history.failures.get(target)
    return [
        *target,
        [[c.id, c.arrived_at, c.run_id] for c in history.changes.get(target, ())],
        history.first_arrival.get(target),
        history.versions.get(target),
        history.listed_at.get(target),
        built and [built.id, built.as_of, built.run_id, built.started_at, built.code_version],
        failure and [failure.attempts, failure.as_of, failure.ended_at, failure.code_version],
    ]


def _take(history: History, row: list[Any]) -> None:
    asset, partition, changes, first_arrival, version, listed_at, built, failure = row
    target = (asset, partition)
    if changes:
        history.changes[target] = tuple(Change(*change) for change in changes)
        history.known.setdefault(asset, set()).add(partition)
    if first_arrival is not None:
        history.first_arrival[target] = first_arrival
    if version is not None:
        history.versions[target] = version
    if listed_at is not None:
        history.listed_at[target] = listed_at
    if built is not None:
        history.built[target] = Built(*built)
    if failure is not None:
        history.failures[target] = Failure(*failure)


def _of_run(run: OpenRun) -> list[Any]:
    written = [
        [*m.target, m.id, m.run_id, m.as_of, m.version, m.at, m.started_at, m.code_version]
        for of_asset in run.written.values()
        for m in of_asset
    ]
    return [run.created_at, run.as_of, [[*target, id] for target, id in run.planned.items()], written, run.built]


def _run(row: list[Any]) -> OpenRun:
    created_at, as_of, planned, written, built = row
    run = OpenRun(created_at, as_of, {(asset, partition): id for asset, partition, id in planned}, built=built)
    for asset, partition, *rest in written:
        run.written.setdefault(asset, []).append(Materialization((asset, partition), *rest))
    return run
