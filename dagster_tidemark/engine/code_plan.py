"""Runs that a deployment of this process's code would cause on an instance. Requests and writes nothing.

Belongs here: the rehearsal's input, from an instance or its saved state, and the plan that follows from its result.
Does not belong here: the rehearsal itself (`planner.rehearsal`), and how a plan is shown (`cli.plan`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.asset_graph.run_plans import RunPlans
from dagster_tidemark.dagster_internals import event_storage, event_time, run_storage, sensor_states
from dagster_tidemark.engine.unkept import UnkeptContracts
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log import checkpoint, deployed
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.lakehouse.table_changes import TableChange
from dagster_tidemark.planner.code_changes import Declared, changes, declared
from dagster_tidemark.planner.decisions import RANGES
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.rehearsal import Rebuild, Rehearsal
from dagster_tidemark.sources.feed import Partition

_FORM = 2


class NoSavedState(Terminal):
    """A file was not written by `tidemark plan --save`, or has a version that cannot be read."""


@dataclass(frozen=True)
class AssetPlan:
    """Plan for an asset.

    Args:
        change: Difference of its declaration from the deployed one; empty if there is none.
        is_new_version: True if the deployed code does not have the asset, or has another code version of it.
        rebuilds: Partitions that run, in the order of their runs, or that wait for a person.
        partitions: The same partitions, the oldest first.
        seconds: Duration of their runs, estimated from its last runs; None if it never ran.
        rows: Number of their present rows; None if it is not known.
    """

    key: str
    change: str
    rebuilds: Sequence[Rebuild] = ()
    seconds: float | None = None
    rows: int | None = None
    partitions: Sequence[Partition] = ()
    is_new_version: bool = False

    @property
    def is_certain(self) -> bool:
        """True if a partition runs even if the rows of other assets do not change."""
        return any(rebuild.certain for rebuild in self.rebuilds)


@dataclass(frozen=True)
class TableDifference:
    """The difference of a declared table from the table in the catalog.

    Args:
        asset: The asset that writes it.
        readers: Effects on its readers, a sentence each.
        refused: Differences that cannot be deployed, a sentence each, with the remedy.
        notes: Work that a deployment does not do, a sentence each.
    """

    asset: str
    changes: Sequence[TableChange]
    readers: Sequence[str] = ()
    refused: Sequence[str] = ()
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as JSON."""
        return {
            "key": self.asset,
            "columns": [
                {"change": str(c.kind), **{name: getattr(c, name) or None for name in ("column", "before", "after")}}
                for c in self.changes
            ],
            "readers": list(self.readers),
            "refused": list(self.refused),
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """Return the difference in words, as lines."""
        for change in self.changes:
            yield f"{self.asset}: {change}"
        yield from (f"  {reader}" for reader in self.readers)
        yield from (f"  {note}" for note in self.notes)
        yield from (f"  refused: {why}" for why in self.refused)


@dataclass(frozen=True)
class MovedDefinition:
    """A function, class or constant whose code differs from the deployed one.

    Args:
        label: The file, and the name of the definition.
        diff: Lines of a unified diff.
    """

    label: str
    diff: Sequence[str]


@dataclass(frozen=True)
class CodePlan:
    """Changes that a deployment of other code causes.

    Args:
        assets: Assets that change or run, in topological order.
        removed: Assets that only the deployed code has. Their tables are kept.
        warnings: Reasons why the plan's runs would not start, and contracts that cannot be kept.
        under_way: Partitions that runs are building now.
        tables: Differences between tables in the catalog and their declarations.
        moved: Definitions that differ, by asset; None if the text of the deployed code is not known.
        unversioned: Assets whose code changed and whose code version did not, so that no run rebuilds them. A message
            each, with the remedy.
        notes: Lines of code that read a file whose path is not known. The plan misses changes of such a file.
    """

    assets: Sequence[AssetPlan]
    removed: Sequence[str] = ()
    warnings: Sequence[str] = ()
    under_way: frozenset[Target] = frozenset()
    tables: Sequence[TableDifference] = ()
    moved: Mapping[str, Sequence[MovedDefinition]] | None = None
    unversioned: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def is_refused(self) -> bool:
        """True if this code must not be deployed: a table cannot be made as declared, or a reader would fail."""
        return any(table.refused for table in self.tables)

    @property
    def has_work(self) -> bool:
        """True if a deployment changes anything: a partition runs or waits for a person, or a table differs."""
        return self.runs or bool(self.tables)

    @property
    def runs(self) -> bool:
        """True if a partition runs because of the code, or would run if a person acted."""
        return any(asset.rebuilds for asset in self.assets)

    @property
    def seconds(self) -> float | None:
        """Seconds that all runs take one after another; None if the duration of no asset is known."""
        known = [asset.seconds for asset in self.assets if asset.rebuilds and asset.seconds is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class SavedState:
    """State of an instance that a plan needs.

    Args:
        text: The history, as a checkpoint.
        rows: Mean number of rows in a partition, by table.
        off: Sensors that are switched off.
        tables: State of each declared table in the catalog, as `table_changes.Stored`.
        code: The text of the deployed code, by path.
    """

    text: str
    declared: Mapping[str, Declared]
    dynamic: Mapping[str, Sequence[str]]
    rows: Mapping[str, float]
    off: Sequence[str]
    now: float
    form: int = _FORM
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "SavedState":
        """Read the state from a file.

        Raises:
            NoSavedState: the file has no saved state.
        """
        try:
            found = cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise NoSavedState(f"{path} contains no saved state: {error}; `tidemark plan --save` writes one") from error
        if found.form != _FORM:
            raise NoSavedState(f"{path} has format {found.form}, and this version reads {_FORM}: save the state again")
        return found

    def write(self, path: Path) -> None:
        """Write the state to a file."""
        path.write_text(json.dumps(self.__dict__))


@dataclass
class _Known:
    """Present or saved state of the instance that a plan is for."""

    graph: Graph
    history: History
    declared: Mapping[str, Declared]
    off: Sequence[str]
    now: float
    rows: Mapping[str, float] = field(default_factory=dict)
    instance: DagsterInstance | None = None
    slots: int | None = None


def plan_of(definitions: dg.Definitions, instance: DagsterInstance, *, contract_scale: float) -> CodePlan:
    """Return the plan of deploying these definitions to an instance."""
    repository = definitions.get_repository_def()
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        graph = _graph(repository, contract_scale)
        follower = _read(instance, graph)
        off = sorted(sensor_states.stopped_sensors(instance))
        known = _Known(
            graph,
            follower.history,
            deployed.kept(instance, graph),
            off,
            event_time.now(),
            instance=instance,
            slots=run_storage.run_slots(instance),
        )
        return _planned(repository, known)


def plan_against(definitions: dg.Definitions, saved: SavedState, *, contract_scale: float) -> CodePlan:
    """Return the plan of deploying these definitions to the saved instance, whose number of slots is not known.

    Raises:
        NoSavedState: the saved history has another version, or other assets.
    """
    repository = definitions.get_repository_def()
    graph = _graph(repository, contract_scale)
    graph.moment.moves_to(saved.now, saved.dynamic)
    kept = checkpoint.load([saved.text], graph)
    if kept is None:
        raise NoSavedState("the saved state comes from another version, or from a code location without these assets")
    return _planned(repository, _Known(graph, kept.history, saved.declared, saved.off, saved.now, saved.rows))


def state_of(definitions: dg.Definitions, instance: DagsterInstance, *, contract_scale: float) -> SavedState:
    """Return the state of an instance, for planning on a machine without access to it."""
    repository = definitions.get_repository_def()
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        graph = _graph(repository, contract_scale)
        follower = _read(instance, graph)
    rows = {key: _rows_of(instance, node, None) for key, node in graph.nodes.items() if not node.source}
    return SavedState(
        checkpoint.dump(follower.history, follower.reader.state()),
        deployed.kept(instance, graph),
        event_storage.dynamic_partitions(instance, graph.dynamic),
        {key: fmean(of.values()) for key, of in rows.items() if of},
        sorted(sensor_states.stopped_sensors(instance)),
        event_time.now(),
        code=deployed.kept_code(instance, graph.nodes),
    )


def deployed_code(definitions: dg.Definitions, instance: DagsterInstance) -> Mapping[str, str]:
    """Return the text of the code that an instance runs, by path; empty if it is not known."""
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    return deployed.kept_code(instance, {key.to_user_string() for key in keys})


def follow(definitions: dg.Definitions, instance: DagsterInstance, *, contract_scale: float) -> LogConsumer:
    """Return a log consumer that has read the whole event log for these definitions. It saves nothing."""
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        return _read(instance, _graph(definitions.get_repository_def(), contract_scale))


def _graph(repository: dg.RepositoryDefinition, contract_scale: float) -> Graph:
    return graph_of(repository.asset_graph, contract_scale=contract_scale)


def _read(instance: DagsterInstance, graph: Graph) -> LogConsumer:
    graph.moment.moves_to(event_time.now(), event_storage.dynamic_partitions(instance, graph.dynamic))
    follower = LogConsumer.started(instance, graph)
    follower.keeps = False
    while follower.read(instance, lambda: False):
        pass
    return follower


def _planned(repository: dg.RepositoryDefinition, known: _Known) -> CodePlan:
    now_declared = declared(known.graph)
    changed = changes(known.declared, now_declared)
    automated = [key for key, node in known.graph.nodes.items() if node.automated]
    graph = known.graph.without_runs_of(RunPlans(repository).problems(automated))
    if graph.nodes != known.graph.nodes:
        known.history.adopt(graph)
    under_way = frozenset(known.history.running)
    versions = {key: asset["code_version"] for key, asset in known.declared.items()}
    durations = known.history.durations
    rebuilds = Rehearsal(graph, known.history, known.now, changed, versions).play()
    of_asset: dict[str, list[Rebuild]] = {key: [] for key in graph.nodes}
    for rebuild in rebuilds:
        of_asset[rebuild.asset].append(rebuild)
    found = []
    for key, mine in of_asset.items():
        if not mine and key not in changed and _version(known.declared, key) == _version(now_declared, key):
            continue
        seconds = durations.of_partition(key) * len(mine) if durations.is_known(key) else None
        ordered = sorted((rebuild.partition for rebuild in mine), key=graph.nodes[key].order)
        change = _change(key, known.declared, now_declared, changed)
        is_new = key not in known.declared or _version(known.declared, key) != _version(now_declared, key)
        found.append(AssetPlan(key, change, mine, seconds, partitions=ordered, is_new_version=is_new))
    counted = [replace(asset, rows=_rows(known, asset)) for asset in found]
    removed = sorted(known.declared.keys() - graph.nodes)
    keep = [f"the sensor {RANGES}, which requests rebuilds, is switched off"] if RANGES in known.off else []
    not_kept = UnkeptContracts().look(repository.asset_graph, graph, durations, known.slots, known.now)
    warnings = [*keep, *(f"{asset}: its contract cannot be kept: {why}" for asset, why in not_kept.items())]
    return CodePlan(counted, removed, warnings, under_way)


def _change(key: str, before: Mapping[str, Declared], now: Mapping[str, Declared], changed: Mapping[str, Any]) -> str:
    said = [changed[key].said] if key in changed else []
    if key in before and _version(before, key) != _version(now, key):
        said.insert(0, f"code version {_version(before, key)} -> {_version(now, key)}")
    return "; ".join(said)


def _version(of: Mapping[str, Declared], key: str) -> str | None:
    version: str | None = of[key]["code_version"] if key in of else None
    return version


def _rows(known: _Known, asset: AssetPlan) -> int | None:
    """Return the number of rows in the partitions. An unbuilt partition counts as the mean of the built ones."""
    partitions = [rebuild.partition for rebuild in asset.rebuilds]
    if known.instance is None:
        mean = known.rows.get(asset.key)
        return None if mean is None else round(mean * len(partitions))
    of = _rows_of(known.instance, known.graph.nodes[asset.key], {p for p in partitions if p is not None} or None)
    if not of:
        return None
    mean = fmean(of.values())
    return round(sum(of.get(partition, mean) for partition in partitions))


def _rows_of(instance: DagsterInstance, node: Node, partitions: set[str] | None) -> dict[Partition, float]:
    name = "dagster/partition_row_count" if node.partitioned else "dagster/row_count"
    found = event_storage.latest_metadata(instance, dg.AssetKey.from_user_string(node.key), name, partitions)
    return {partition: float(rows) for partition, rows in found.items() if isinstance(rows, int | float)}
