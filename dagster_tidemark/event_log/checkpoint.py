"""A history as text, so that a restarted code server need not read the whole event log again.

Belongs here: the format of the text. Texts in other formats are ignored: reading the log again gives the same history.
Does not belong here: when and where it is saved (`event_log.consumer`), and facts that survive the loss of a checkpoint
(`event_log.journal`).
"""

import base64
import json
import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from sys import intern
from typing import Any

from dagster_tidemark.planner.check_results import CheckResult, Results
from dagster_tidemark.planner.event_records import Built, Change, Failure, Materialization, OpenRun
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.partition_facts import PartitionRecord
from dagster_tidemark.planner.run_durations import SAMPLES, RunDurations
from dagster_tidemark.tags import HISTORY

_FORM = 5
FORM_IN_PARTS = 4
"""Format of a head whose rows are in parts (`event_log.checkpoint_parts`)."""


@dataclass
class Checkpoint:
    """History and state that an earlier process saved.

    Args:
        blocking: Names of the blocking checks by asset. Evaluations of other checks were not read.
        added: Assets of the graph that the checkpoint lacks, or has only in part. Their events must be read again.
        reader: State of the log reader.
        rest: Other values that the log consumer saved.
    """

    history: History
    blocking: dict[str, list[str]]
    added: list[str]
    reader: dict[str, Any]
    rest: dict[str, Any]


def key_of(graph: Graph) -> str:
    """Return the key of a code location's checkpoint. It contains an asset, which no other location builds."""
    built = (key for key, node in graph.nodes.items() if not node.source)
    return f"{HISTORY}{min(built, default='')}"


def dump(history: History, reader: dict[str, Any], rest: dict[str, Any] | None = None) -> str:
    """Return a history with its rows as text, together with the state of its log reader."""
    targets = {*history.facts, *history.failures}
    rows = {"targets": [row_of(history, target) for target in sorted(targets, key=repr)]}
    return packed(head_of(history, reader, rest) | rows)


def head_of(history: History, reader: dict[str, Any], rest: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a history without its rows, as plain data."""
    return {
        "form": _FORM,
        # Events of a refused asset are not applied. When it is no longer refused, all its events must be read.
        "assets": sorted(key for key, node in history.graph.nodes.items() if not node.refused),
        "reader": reader,
        "rest": rest or {},
        "first_seen": history.first_seen,
        "leads": {asset: list(seconds) for asset, seconds in history.durations.samples.items()},
        "strides": history.durations.per_partition,
        "ranges": history.durations.ranges,
        **keys_of(history),
        "set_aside": [[*target, why] for target, why in history.set_aside.items()],
        "former": [list(target) for target in history.former],
        "elsewhere": {key: sorted(checks) for key, checks in history.graph.elsewhere.items() if checks},
        "blocking": {key: sorted(node.blocking) for key, node in history.graph.nodes.items() if node.blocking},
        "checks": [
            [asset, check, _result(of.whole), [[partition, *_result(result)] for partition, result in of.on.items()]]
            for asset, checks in history.checks.of.items()
            for check, of in checks.items()
        ],
        "unseen": [[*target, [_values(change) for change in changes]] for target, changes in history.unseen.items()],
        "open_runs": {run_id: _of_run(run) for run_id, run in history.open_runs.items()},
    }


def load(texts: Iterable[str], graph: Graph) -> Checkpoint | None:
    """Return this code location's checkpoint from texts that are not in parts, or None. Its assets may differ."""
    state = best_of(texts, graph, [_FORM])
    if state is None:
        return None
    try:
        history = History(graph)
        take_rows(history, state["targets"], set(state["assets"]))
        return completed(history, state)
    except (LookupError, TypeError, ValueError):
        return None  # the format is the same, but another version wrote it


def best_of(texts: Iterable[str], graph: Graph, forms: Sequence[int] = (_FORM, FORM_IN_PARTS)) -> dict[str, Any] | None:
    """Return the head of the checkpoint that shares most assets with a graph, if any."""
    best, most = None, 0
    for state in (found for text in texts if (found := _head_in(text, forms)) is not None):
        assets = set(state["assets"])
        common = len(assets & graph.nodes.keys())
        # A few shared assets are not enough: one location may read assets of another.
        if common > most and 2 * common >= len(assets):
            best, most = state, common
    return best


def any_head(text: str) -> dict[str, Any] | None:
    """Return the head of any code location's checkpoint; None if its format, or that of a member, is unknown."""
    head = _head_in(text, (_FORM, FORM_IN_PARTS))
    match head:
        case {"reader": {"after": int(), "tail": list(tail)}, "rest": dict(rest)}:
            pairs = [*tail, *rest.get("touched", ())]
            return head if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs) else None
    return None


def take_rows(history: History, rows: Iterable[list[Any]], assets: Set[str]) -> None:
    """Add the rows of partitions to a history. For partitions of an earlier definition, note only their existence.

    Args:
        assets: Assets whose rows are taken; rows of other assets are ignored.
    """
    nodes = history.graph.nodes
    for row in rows:
        if row[0] not in nodes or row[0] not in assets:
            continue
        if history.problem((row[0], row[1])) is None:
            take(history, row)
        else:
            history.former.add((row[0], row[1]))


def completed(history: History, state: dict[str, Any]) -> Checkpoint:
    """Return the checkpoint with this head. Its rows must be in the history already."""
    graph = history.graph
    known = graph.nodes.keys() & set(state["assets"])
    history.first_seen = _only(known, state["first_seen"])
    history.durations = RunDurations(
        {asset: deque(seconds, SAMPLES) for asset, seconds in _only(known, state["leads"]).items()},
        _only(known, state["strides"]),
        _only(known, state.get("ranges", {})),
    )
    history.set_aside = {(asset, partition): why for asset, partition, why in state["set_aside"] if asset in known}
    history.former |= {(asset, partition) for asset, partition in state.get("former", ()) if asset in known}
    take_keys(history, state)
    for asset, checks in state.get("elsewhere", {}).items():
        if asset in graph.nodes and (more := set(checks) - graph.nodes[asset].blocking):
            graph.elsewhere[asset] = more
    for asset, check, whole, on in state["checks"]:
        results = Results(CheckResult(*whole), {partition: CheckResult(*result) for partition, *result in on})
        history.checks.of.setdefault(asset, {})[check] = results
    for asset, partition, changes in state["unseen"]:
        history.unseen[(asset, partition)] = tuple(Change(*change) for change in changes)
    for run_id, row in state["open_runs"].items():
        history.open_runs[run_id] = run = _run(run_id, row)
        for target in run.planned:
            history.running.setdefault(target, set()).add(run_id)
    unread = {(asset, partition) for asset, partition, _ in state["rest"].get("unread", ())}
    mended = {asset for asset, _ in history.adopt(graph) - unread}
    added = {key for key, node in graph.nodes.items() if key not in known and not node.refused} | mended
    return Checkpoint(history, state["blocking"], sorted(added), state["reader"], state["rest"])


def packed(state: dict[str, Any]) -> str:
    """Return plain data as text."""
    return base64.b64encode(zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)).decode()


def _head_in(text: str, forms: Iterable[int]) -> dict[str, Any] | None:
    """Return the head in a text; None if the text has none of the formats, or lacks a member that a search needs."""
    heads = (unpacked(text, form) for form in forms)
    return next((head for head in heads if head is not None and _is_head(head)), None)


def _is_head(state: dict[str, Any]) -> bool:
    match state:
        case {"assets": list(assets), "open_runs": dict(), "rest": dict(), "reader": dict()}:
            return all(isinstance(asset, str) for asset in assets)
    return False


def unpacked(text: str | None, form: int) -> dict[str, Any] | None:
    """Return the plain data of a text; None if the text has a different format."""
    try:
        state = json.loads(zlib.decompress(base64.b64decode(text or "")))
    except (ValueError, zlib.error):
        return None
    return state if isinstance(state, dict) and state.get("form") == form else None


def row_of(history: History, target: Target) -> list[Any]:
    """Return everything that a history knows about a partition, as plain data."""
    facts = history.facts.of(target)
    return [
        *target,
        [_values(change) for change in facts.changes],
        facts.first_arrival,
        facts.version,
        facts.listed_at,
        _values(facts.built),
        _values(history.failures.get(target)),
        history.again.get(target),
    ]


def take(history: History, row: list[Any]) -> None:
    """Copy the row of a partition into a history.

    Raises:
        TypeError, ValueError: the row has the fields of a different version. The history is unchanged.
    """
    asset, partition, changes, first_arrival, version, listed_at, *rest, again = row
    if partition is not None:
        partition = intern(partition)  # many assets share a key, and many partitions share a run
    target = (intern(asset), partition)
    for values in (*changes, *filter(None, rest[:1])):
        values[2:] = [intern(of) if isinstance(of, str) else of for of in values[2:]]
    changed = tuple(Change(*change) for change in changes)
    built, failure = (of and kind(*of) for kind, of in zip((Built, Failure), rest, strict=True))
    facts = (changed, first_arrival, version, listed_at, built)
    if facts != ((), None, None, None, None):  # a partition may have only failures
        history.facts.put(target, PartitionRecord(*facts))
    if again is not None:
        history.again[target] = again
    if failure is not None:
        history.failures[target] = failure


def replace_row(history: History, row: list[Any]) -> None:
    """Replace all facts about a partition with those of a later row. An older failure, for example, is forgotten.

    Raises:
        TypeError, ValueError: the row has the fields of a different version. The history is unchanged.
    """
    take(History(history.graph), row)  # raises before anything is forgotten
    target = (row[0], row[1])
    history.facts.forget(target)
    for known in (history.failures, history.again):
        known.pop(target, None)
    take(history, row)


def keys_of(history: History) -> dict[str, Any]:
    """Return a history's facts about partition keys, which no event contains, as plain data."""
    return {
        "keys": {name: list(keys) for name, keys in history.keys.existing.items()},
        "appeared": [[*target, *times] for target, times in history.keys.appeared.items()],
        "removed": [[*target, at] for target, at in history.keys.removed.items()],
        "declared": [[*target, at] for target, at in history.keys.declared.items()],
    }


def take_keys(history: History, said: Mapping[str, Any]) -> None:
    """Copy facts about partition keys, as returned by `keys_of`, into a history."""
    history.keys.existing |= said.get("keys", {})
    for asset, partition, at in said.get("declared", ()):
        if asset in history.graph.nodes:
            history.keys.declared[(asset, partition)] = at
    for asset, partition, gone, came in said.get("appeared", ()):
        if asset in history.graph.nodes:
            history.keys.appeared[(asset, partition)] = (gone, came)
    for asset, partition, gone in said.get("removed", ()):
        if asset in history.graph.nodes:
            history.keys.removed[(asset, partition)] = gone


def newest(row: list[Any]) -> int:
    """Return the place of the latest event in a row; see `LogReader.place`."""
    changes, built = row[2], row[6]
    return max([change[0] for change in changes] + ([built[0]] if built else []), default=-1)


def _result(result: CheckResult) -> list[Any]:
    return [result.id, result.passed, result.run_id, result.began]


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


def _run(run_id: str, row: list[Any]) -> OpenRun:
    created_at, as_of, planned, written, built = row
    targets = {(asset, partition): id for asset, partition, id in planned}
    run = OpenRun(created_at, as_of, targets, built=built, run_id=run_id)
    for asset, partition, *rest in written:
        run.written.setdefault(asset, []).append(Materialization((asset, partition), *rest))
    return run
