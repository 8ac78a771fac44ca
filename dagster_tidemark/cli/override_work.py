"""The work of `tidemark pause`, `resume`, `skip` and `rebuild` on an instance.

Belongs here: loading the names of a code location, storing and ending overrides, and canceling queued runs. Does not
belong here: options and output (`cli.overrides`), and what a name selects (`cli.override_selection`).
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from dagster_tidemark import location
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.cli.commands import name_left_out
from dagster_tidemark.cli.override_selection import (
    NotSelectable,
    Selectable,
    Selected,
    partitions,
    selected,
)
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.dagster_internals.partitions import partition_ends
from dagster_tidemark.engine import saved_overview
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.event_log import deployed
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.overrides import Override, OverrideKind, without
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import REQUESTED_BY


@dataclass(frozen=True)
class OverrideTarget:
    """The instance and the code location that a command works on."""

    instance: DagsterInstance
    settings: Settings

    @property
    def store(self) -> OverrideStore:
        return OverrideStore(self.instance)

    def place(self, override: Override) -> str:
        """Return the code location of an override. Equal names mean other assets in another one."""
        return override.location or self.settings.code_location

    def owns(self, override: Override) -> bool:
        """Return True if an override is of this code location."""
        return self.place(override) == self.settings.code_location

    def known(self) -> Selectable:
        """Load the code location, and return everything that a person can name. Broken parts are left out."""
        with location.without_broken_parts():
            assets = location.asset_graph(self.settings)
            feeds = {feed.name: f"raw/{feed.name}" for feed in location.feeds(self.settings)}
            streams = {stream.name: stream.asset for stream in location.streams(self.settings)}
        name_left_out(self.settings)
        kept = saved_overview.kept(self.instance, self.settings.code_location)
        if kept is not None:  # feeds and streams that `build_definitions` got directly
            feeds |= dict(kept.watched.feeds)
            streams |= {post.stream: post.asset for post in kept.watched.posts}
        groups: dict[str, list[str]] = {}
        for node in assets.asset_nodes:
            groups.setdefault(node.group_name or "", []).append(node.key.to_user_string())
        automated = {n.key.to_user_string() for n in assets.asset_nodes if n.automation_condition is not None}
        return Selectable(self._graph(assets), groups, feeds, streams, automated)

    def _graph(self, assets: AnyGraph) -> Graph:
        graph = graph_of(assets, contract_scale=self.settings.contract_scale)
        graph.moment.moves_to(event_time.now(), event_storage.dynamic_partitions(self.instance, graph.dynamic))
        return graph


@contextmanager
def open_target(settings: Settings) -> Iterator[OverrideTarget]:
    """Open the instance of the running platform, or the instance that the environment names."""
    settings = take_environment(settings)
    with opened_instance() as instance:
        yield OverrideTarget(instance, settings)


def stored(
    target: OverrideTarget,
    kind: OverrideKind,
    what: str,
    *,
    by: str,
    reason: str,
    until: float | None = None,
    given: Sequence[str] = (),
) -> tuple[Override, Selected]:
    """Store a person's command (see `planner.overrides.Override`), and return it with what it selects.

    Args:
        given: Partitions as in the option `--partitions`; empty means all.

    Raises:
        NotSelectable: the command names nothing, or something that it cannot concern.
    """
    known = target.known()
    with dg.partition_loading_context(dynamic_partitions_store=target.instance):
        found = selected(known, what, kind)
        if found.streams and given:
            raise NotSelectable(f"--partitions: the stream {', '.join(found.streams)} has none; leave the option out")
        only = partitions(known.graph, found.assets, given)
    nodes, codes = known.graph.nodes, dict[str, str | None]()
    if kind is OverrideKind.SKIP:
        ran = deployed.kept(target.instance, known.graph)  # the code that the platform has loaded may be older
        codes = {key: ran.get(key, {}).get("code_version", nodes[key].code_version) for key in found.assets}
    override = Override(
        f"o-{uuid.uuid4().hex[:8]}",
        kind,
        what,
        found.assets,
        by,
        reason,
        event_time.now(),
        as_of=event_storage.last_event_id(target.instance),
        until=until,
        streams=found.streams,
        keys=only.keys,
        first=only.first,
        last=only.last,
        codes=codes,
        location=target.settings.code_location,
    )
    target.store.change(lambda before: [*before, override])
    return override, found


def resumed(target: OverrideTarget, what: str, by: str) -> tuple[list[Override], list[Override]]:
    """End the pauses of a selection. Other assets of such a pause stay paused.

    Returns:
        The ended pauses, and the pauses that still apply to assets of the selection.

    Args:
        what: The id of a pause of any code location. Else the words that selected its assets, or any other selection:
            these count for the pauses of the own code location.

    Raises:
        NotSelectable: nothing of the selection is paused.
    """
    at = event_time.now()
    everywhere = [each for each in target.store.read() if each.kind is OverrideKind.PAUSE and each.lasts(at)]
    pauses = [each for each in everywhere if target.owns(each)]
    by_name = [each for each in everywhere if each.id == what] or [each for each in pauses if each.what == what]
    assets = {key for each in by_name for key in each.assets}
    streams = {stream for each in by_name for stream in each.streams}
    if not by_name:  # only now, because an asset that no longer exists can still be resumed by its old name
        try:
            found = selected(target.known(), what, OverrideKind.PAUSE)
        except TidemarkError as error:
            raise NotSelectable(f"{error}; {_paused(target, everywhere)}") from error
        assets, streams = set(found.assets), set(found.streams)
        by_name = [each for each in pauses if assets & {*each.assets} or streams & {*each.streams}]
    if not by_name:
        raise NotSelectable(f"{what} is not paused; {_paused(target, everywhere)}")
    ended, places = {each.id for each in by_name}, {target.place(each) for each in by_name}

    def _change(before: tuple[Override, ...]) -> list[Override]:
        rest = []
        for each in before:
            left = tuple(key for key in each.assets if key not in assets)
            others = tuple(stream for stream in each.streams if stream not in streams)
            if each.id in ended and each.ended_at is None and (left or others):
                rest.append(replace(each, id=f"o-{uuid.uuid4().hex[:8]}", assets=left, streams=others))
        return [*without(before, ended, at=at, by=by), *rest]

    after = target.store.change(_change)
    lasting = [each for each in after if each.kind is OverrideKind.PAUSE and each.lasts(at)]
    others = [each for each in lasting if target.place(each) in places]
    return by_name, [each for each in others if assets & {*each.assets} or streams & {*each.streams}]


def _paused(target: OverrideTarget, pauses: Sequence[Override]) -> str:
    said = ", ".join(
        f"{each.what} ({each.id})" if target.owns(each) else f"{each.what} of {each.location} ({each.id})"
        for each in pauses
    )
    return f"paused: {said}" if said else "nothing is paused"


def ended(target: OverrideTarget, id_: str, by: str) -> Override:
    """End an override by its id, and return it. Work that an ended skip left out is pending again.

    Raises:
        NotSelectable: there is no such override, or it has ended.
    """
    lasting = {each.id: each for each in target.store.read() if each.ended_at is None}
    if id_ not in lasting:
        raise NotSelectable(f"no override {id_} applies; ids: {', '.join(lasting) or 'none'}")
    target.store.change(lambda before: without(before, [id_], at=event_time.now(), by=by))
    return lasting[id_]


def cancel_queued(target: OverrideTarget, pause: Override) -> list[str]:
    """Cancel the queued runs that the automation requested for paused partitions, and return their ids.

    A run is canceled as a whole. Its other partitions are requested again.
    """
    graph = target.known().graph
    canceled = []
    with dg.partition_loading_context(dynamic_partitions_store=target.instance):
        for run in target.instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED])):
            built = {key.to_user_string() for key in run.asset_selection or ()} & {*pause.assets}
            first, *others = partition_ends(run.tags)
            last = others[0] if others else first
            if REQUESTED_BY in run.tags and any(pause.overlaps(graph.nodes[key], first, last) for key in built):
                target.instance.report_run_canceling(run, f"paused {pause.told()}")
                target.instance.report_run_canceled(run)
                canceled.append(run.run_id)
    return canceled
