"""A history as text, so that a restarted code server need not read the whole event log again.

Belongs here: the form. A text of another form is no checkpoint: the log is read again, which gives the same. Does not
belong here: where it is kept and when (`event_log.consumer`), and what outlives a lost one (`event_log.journal`).
"""

import base64
import json
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipelines.tidemark.planner.check_results import CheckResult, Results
from pipelines.tidemark.planner.graph import Graph, Target
from pipelines.tidemark.planner.history import History
from pipelines.tidemark.planner.records import SAMPLES, Built, Change, Failure, Materialization, OpenRun
from pipelines.tidemark.tags import HISTORY

_FORM = 3


@dataclass
class Checkpoint:
    """What an earlier process knew.

    Args:
        blocking: By asset the names of its blocking checks; of others no evaluation was read.
        added: Assets of the graph that it did not know of, or did not know all of: their part of the log is not in
            the history.
        reader: The state of its log reader.
        rest: What else the follower kept.
    """

    history: History
    blocking: dict[str, list[str]]
    added: list[str]
    reader: dict[str, Any]
    rest: dict[str, Any]


def key_of(graph: Graph) -> str:
    """Where the checkpoint of a code location is kept: two on one instance build no asset both."""
    built = (key for key, node in graph.nodes.items() if not node.source)
    return f"{HISTORY}{min(built, default='')}"


def dump(history: History, reader: dict[str, Any], rest: dict[str, Any] | None = None) -> str:
    """A history as its log reader's state says how far it goes."""
    targets = {*history.changes, *history.versions, *history.built, *history.failures, *history.listed_at}
    state = {
        "form": _FORM,
        # Of one that is refused no event is applied: once it is repaired all of it is to be read.
        "assets": sorted(key for key, node in history.graph.nodes.items() if not node.refused),
        "reader": reader,
        "rest": rest or {},
        "first_seen": history.first_seen,
        "leads": {asset: list(seconds) for asset, seconds in history.leads.items()},
        "strides": history.strides,
        **keys_of(history),
        "set_aside": [[*target, why] for target, why in history.set_aside.items()],
        "blocking": {key: sorted(node.blocking) for key, node in history.graph.nodes.items() if node.blocking},
        "failed_checks": [
            [asset, check, _result(of.whole), [[partition, *_result(result)] for partition, result in of.on.items()]]
            for asset, checks in history.checks.failed.items()
            for check, of in checks.items()
        ],
        "unseen": [[*target, [_values(change) for change in changes]] for target, changes in history.unseen.items()],
        "open_runs": {run_id: _of_run(run) for run_id, run in history.open_runs.items()},
        "targets": [row_of(history, target) for target in sorted(targets, key=repr)],
    }
    return packed(state)


def load(texts: Iterable[str], graph: Graph) -> Checkpoint | None:
    """Of the checkpoints on an instance the one of this code location, with whatever assets it was made, if any."""
    best, most = None, 0
    for state in (unpacked(text, _FORM) for text in texts):
        assets = set(state["assets"]) if state else set()
        common = len(assets & graph.nodes.keys())
        # Locations on one instance may share assets that one of them only reads.
        if common > most and 2 * common >= len(assets):
            best, most = state, common
    try:
        return _loaded(best, graph) if best else None
    except (LookupError, TypeError, ValueError):
        return None  # of another version after all


def _loaded(state: dict[str, Any], graph: Graph) -> Checkpoint:
    known = graph.nodes.keys() & set(state["assets"])
    history = History(graph)
    history.first_seen = _only(known, state["first_seen"])
    history.leads = {asset: deque(seconds, SAMPLES) for asset, seconds in _only(known, state["leads"]).items()}
    history.strides = _only(known, state["strides"])
    history.set_aside = {(asset, partition): why for asset, partition, why in state["set_aside"] if asset in known}
    for row in state["targets"]:
        if row[0] in known:
            take(history, row)
    take_keys(history, state)
    for asset, check, whole, on in state["failed_checks"]:
        results = Results(CheckResult(*whole), {partition: CheckResult(*result) for partition, *result in on})
        history.checks.failed.setdefault(asset, {})[check] = results
    for asset, partition, changes in state["unseen"]:
        history.unseen[(asset, partition)] = tuple(Change(*change) for change in changes)
    for run_id, row in state["open_runs"].items():
        history.open_runs[run_id] = run = _run(row)
        for target in run.planned:
            history.running.setdefault(target, set()).add(run_id)
    unread = {(asset, partition) for asset, partition, _ in state["rest"].get("unread", ())}
    mended = {asset for asset, _ in history.adopt(graph) - unread}
    added = {key for key, node in graph.nodes.items() if key not in known and not node.refused} | mended
    return Checkpoint(history, state["blocking"], sorted(added), state["reader"], state["rest"])


def packed(state: dict[str, Any]) -> str:
    """Plain data as a text."""
    return base64.b64encode(zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)).decode()


def unpacked(text: str | None, form: int) -> dict[str, Any] | None:
    """The plain data of a text; None if it is none of this form."""
    try:
        state = json.loads(zlib.decompress(base64.b64decode(text or "")))
    except (ValueError, zlib.error):
        return None
    return state if isinstance(state, dict) and state.get("form") == form else None


def row_of(history: History, target: Target) -> list[Any]:
    """All that is known of a partition, as plain data."""
    return [
        *target,
        [_values(change) for change in history.changes.get(target, ())],
        history.first_arrival.get(target),
        history.versions.get(target),
        history.listed_at.get(target),
        _values(history.built.get(target)),
        _values(history.failures.get(target)),
        history.again.get(target),
    ]


def take(history: History, row: list[Any]) -> None:
    """Know of a partition what a row says.

    Raises:
        TypeError: it has other fields than those of this version. Nothing of it was taken.
        ValueError: likewise.
    """
    asset, partition, changes, first_arrival, version, listed_at, *rest, again = row
    target = (asset, partition)
    changed = tuple(Change(*change) for change in changes)
    built, failure = (of and kind(*of) for kind, of in zip((Built, Failure), rest, strict=True))
    if changed:
        history.changes[target] = changed
        history.known.setdefault(asset, set()).add(partition)
    if first_arrival is not None:
        history.first_arrival[target] = first_arrival
    if version is not None:
        history.versions[target] = version
    if listed_at is not None:
        history.listed_at[target] = listed_at
    if built is not None:
        history.built[target] = built
    if again is not None:
        history.again[target] = again
    if failure is not None:
        history.failures[target] = failure


def keys_of(history: History) -> dict[str, Any]:
    """What is known of partitions by key, which no event tells of, as plain data."""
    return {
        "keys": {name: list(keys) for name, keys in history.keys.items()},
        "appeared": [[*target, *times] for target, times in history.appeared.items()],
        "removed": [[*target, at] for target, at in history.removed.items()],
        "declared": [[*target, at] for target, at in history.declared.items()],
    }


def take_keys(history: History, said: Mapping[str, Any]) -> None:
    """Know of partitions by key what that says."""
    history.keys |= said.get("keys", {})
    for asset, partition, at in said.get("declared", ()):
        if asset in history.graph.nodes:
            history.declared[(asset, partition)] = at
    for asset, partition, gone, came in said.get("appeared", ()):
        if asset in history.graph.nodes:
            history.appeared[(asset, partition)] = (gone, came)
    for asset, partition, gone in said.get("removed", ()):
        if asset in history.graph.nodes:
            history.removed[(asset, partition)] = gone


def newest(row: list[Any]) -> int:
    """The place of the latest event a row knows of."""
    changes, built = row[2], row[6]
    return max([change[0] for change in changes] + ([built[0]] if built else []), default=-1)


def _result(result: CheckResult) -> list[Any]:
    return [result.id, result.passed]


def _values(record: Change | Built | Failure | None) -> list[Any] | None:
    return None if record is None else [getattr(record, name) for name in _NAMES[type(record)]]


_NAMES = {kind: tuple(field.name for field in fields(kind)) for kind in (Change, Built, Failure)}


def _only(known: set[str], told: dict[str, Any]) -> dict[str, Any]:
    return {asset: value for asset, value in told.items() if asset in known}


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
