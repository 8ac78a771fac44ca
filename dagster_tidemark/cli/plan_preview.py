"""`tidemark plan --preview`, `--publish` and `--discard`: build rows with changed code on branches, publish or drop.

Belongs here: opening what a preview needs from the settings, and requests to the running platform. Does not belong
here: building and publishing (`preview`), and the printed output (`cli.preview_view`).
"""

import json
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession
from rich.console import Console

from dagster_tidemark import location
from dagster_tidemark.cli import plan_apply, plan_view
from dagster_tidemark.cli.plan_apply import NoWebserver, reload_code
from dagster_tidemark.cli.preview_view import as_dict, exit_code, shown, told
from dagster_tidemark.cli.storage import instance_beside_the_lake
from dagster_tidemark.code_versions.assets import assets_of
from dagster_tidemark.code_versions.project import Project
from dagster_tidemark.dagster_internals.sensor_states import restore_sensors, running_sensors, stop_sensors
from dagster_tidemark.engine.code_plan import CodePlan, deployed_code, follow, plan_of
from dagster_tidemark.engine.condition import own_assets
from dagster_tidemark.event_log import deployed
from dagster_tidemark.lakehouse.loading.provenance import as_keys
from dagster_tidemark.lakehouse.row_diff import RowDiff, row_diff
from dagster_tidemark.lakehouse.session import opened_session
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.decisions import RANGES
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.preview import preview_runs
from dagster_tidemark.preview.lake import PreviewLake
from dagster_tidemark.preview.manifest import (
    DEFAULT,
    NoPreview,
    PreviewManifest,
    Store,
    TablePreview,
    publishing,
    state_of,
)
from dagster_tidemark.preview.publish import NotToPublish, Publisher, require_publishable
from dagster_tidemark.preview.targets import Targets, choose
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import PREFIX

_DIFFS_AT_ONCE = 2


def preview(settings: Settings, name: str, select: str | None, partitions: str | None, *, as_json: bool) -> int:
    """Build the partitions that this code changes on branches, and print how the rows differ.

    Args:
        name: Name of the preview; "" for the preview without a name.

    Returns:
        The exit code: `NOT_PREVIEWED`, else `ROWS_DIFFER`, else 0.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
        Terminal: nothing is selected.
        NoSuchPartitions: no planned partition was chosen.
        PreviewFailed: a run failed. The preview and its branches were dropped.
        PreviewInUse: another process works on the preview of this name.
        NotToPublish: the preview of this name is half published.
    """
    settings = take_environment(settings)
    definitions = location.definitions(settings)
    tables = location.tables(settings)
    store = Store(settings.state_dir, name or DEFAULT)
    with store.used_for("being built"), instance_beside_the_lake() as instance, opened_session(settings) as spark:
        if (before := store.read()) is not None:
            if before.is_half_published:
                raise NotToPublish(
                    f"preview {store.name} is half published: complete it with `tidemark plan --publish {store.name}`, "
                    f"or drop it with `tidemark plan --discard {store.name}`"
                )
            _discard(settings, spark, store, before)
        plan = plan_of(definitions, instance, contract_scale=settings.contract_scale)
        plan = plan_view.with_code(plan, settings, definitions, deployed_code(definitions, instance))
        plan = plan if select is None else plan_view.selected(plan, definitions, select)
        history = follow(definitions, instance, contract_scale=settings.contract_scale).history
        manifest = PreviewManifest.begun({}, {})
        landing = dict(definitions.resources or {})[f"{PREFIX}landing"]
        lake = PreviewLake(spark, tables, manifest, settings, landing=landing.open, instance=instance)
        planned = [asset.key for asset in plan.assets if asset.rebuilds]
        refused = preview_runs.refusals(definitions, history.graph, lake, planned)
        targets = choose(plan, history.graph, partitions, refused)
        manifest.left_out = targets.left_out | _unversioned(plan, targets)
        code = _code(definitions, settings)
        manifest.code = {key: code[key] for group in targets.groups for key in group.assets}
        diffs: dict[str, RowDiff] = {}
        if targets.groups:
            pool = ThreadPoolExecutor(_DIFFS_AT_ONCE)  # tables are compared while the next ones are built
            asked: dict[str, Future[RowDiff]] = {}

            def compare(own: TablePreview) -> None:
                asked[own.asset] = pool.submit(_diff, spark, lake, own)

            try:
                preview_runs.build(definitions, history, targets, lake, store, _say, compare)
                diffs = {asset: diff.result() for asset, diff in asked.items()}
            except BaseException:  # also on Ctrl-C, to drop the branches
                pool.shutdown(cancel_futures=True)
                preview_runs.discard(spark, tables, store, manifest)
                raise
            pool.shutdown()
    checks = [check for run in manifest.runs for check in preview_runs.events(run.checks)]
    if as_json:
        print(json.dumps({"name": store.name, **as_dict(manifest, diffs, checks)}, indent=2))
    else:
        Console().print(shown(manifest, diffs, checks, name))
    return exit_code(manifest, diffs, checks)


def publish(settings: Settings, name: str = "") -> None:
    """Publish the rows of a preview into the tables, and deploy this code.

    Args:
        name: Name of the preview; "" for the only existing preview.

    Raises:
        NoPreview: no preview is recorded, or several are.
        NotToPublish: the preview must not be published.
        PreviewInUse: another process works on this preview, or publishes another one.
        NoWebserver: on a laptop, no webserver answers, so this code cannot be loaded.
    """
    settings = take_environment(settings)
    definitions = location.definitions(settings)
    store = chosen(settings, name)
    with store.used_for("being published"), publishing(settings.state_dir, store.name):
        manifest = _recorded(store)
        require_publishable(manifest, _code(definitions, settings))
        tables = location.tables(settings)
        with instance_beside_the_lake() as instance, opened_session(settings) as spark:
            publisher = Publisher(
                definitions,
                instance,
                spark,
                tables,
                manifest,
                store,
                feeds=list(location.feeds(settings)),
                contract_scale=settings.contract_scale,
            )
            graph = plan_apply.planned_graph(settings)
            with _no_rebuilds(instance, graph, store, manifest):
                try:
                    found = publisher.publish()
                finally:
                    # Until the reload, the running code would rebuild the published partitions with the old version.
                    if any(own.decided for own in manifest.tables):
                        _reload(settings)
            if settings.environment == "production":
                _say("published; waiting for this folder's code: deploy it now")
            plan_apply.wait_for_code(instance, graph, settings)
            preview_runs.discard(spark, tables, store, manifest)  # a repeated publish needs the branches until here
    Console().print(told(found))


def discard(settings: Settings, name: str = "") -> None:
    """Drop a preview. If it is half published, the tables that are already published stay as they are.

    Raises:
        NoPreview: no preview is recorded, or several are.
        PreviewInUse: another process works on this preview.
    """
    settings = take_environment(settings)
    store = chosen(settings, name)
    with store.used_for("being dropped"):
        manifest = _recorded(store)
        published = [own.asset for own in manifest.tables if own.decided]
        with opened_session(settings) as spark:
            _discard(settings, spark, store, manifest)
    print(f"preview {store.name} ({manifest.id}): dropped")
    if published:
        print(f"it was half published: {', '.join(published)} may contain its rows; the automation decides what runs")


def show_previews(settings: Settings, *, as_json: bool) -> None:
    """List the recorded previews."""
    settings = take_environment(settings)
    rows: list[dict[str, Any]] = []
    for name in Store.names(settings.state_dir):
        store = Store(settings.state_dir, name)
        try:
            manifest = store.read()
        except NoPreview as error:
            rows.append({"name": name, "state": str(error)})
            continue
        if manifest is not None:
            rows.append(
                {
                    "name": name,
                    "id": manifest.id,
                    "branch": manifest.branch,
                    "age_seconds": round(time.time() - manifest.created),
                    "assets": {own.asset: len(own.partitions) for own in manifest.tables},
                    "left_out": manifest.left_out,
                    "state": state_of(store, manifest),
                }
            )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print("there is no preview; `tidemark plan --preview` builds one")
    for row in rows:
        assets = ", ".join(f"{key} ({count})" for key, count in row.get("assets", {}).items())
        age = f"{span(max(60.0, row['age_seconds']))} old; " if "age_seconds" in row else ""
        print(f"{row['name']}: {age}{assets and f'{assets}; '}{row['state']}")


def chosen(settings: Settings, name: str) -> Store:
    """Return the store that records a preview.

    Args:
        name: Name of the preview; "" for the only existing preview.

    Raises:
        NoPreview: no preview has this name, no preview is recorded, or several are recorded and no name is given.
    """
    names = Store.names(settings.state_dir)
    there = f"existing previews: {', '.join(names)}" if names else "`tidemark plan --preview` builds one"
    if name and name not in names:
        raise NoPreview(f"there is no preview {name!r}; {there}")
    if not names:
        raise NoPreview("there is no preview; `tidemark plan --preview` builds one")
    if not name and len(names) > 1:
        raise NoPreview(f"several previews exist: give a name; {there}")
    return Store(settings.state_dir, name or names[0])


def _diff(spark: SparkSession, lake: PreviewLake, own: TablePreview) -> RowDiff:
    return row_diff(spark, lake.table(own.asset), as_keys(own.partitions), own.base, own.head)


@contextmanager
def _no_rebuilds(instance: dg.DagsterInstance, graph: Graph, store: Store, manifest: PreviewManifest) -> Iterator[None]:
    """Stop the sensor that requests rebuilds during the block: the running code sees published partitions as stale."""
    running = running_sensors(instance, RANGES, deployed.locations(instance, graph))
    manifest.sensors_off += running  # a killed attempt may have left others off
    store.write(manifest)
    is_complete = False
    try:
        stop_sensors(instance, running)
        yield
        is_complete = True
    finally:
        # After a failure the running code may still be the old one, which would build the published partitions back.
        if is_complete or not any(own.decided for own in manifest.tables):
            _restore_sensors(instance, manifest)
        else:
            _say(f"the sensor {RANGES} stays off until `tidemark plan --publish {store.name}` has succeeded")
        store.write(manifest)


def _restore_sensors(instance: dg.DagsterInstance, manifest: PreviewManifest) -> None:
    restore_sensors(instance, manifest.sensors_off)
    manifest.sensors_off.clear()


def _reload(settings: Settings) -> None:
    """Reload the code. A deployment may have no webserver on this host, and its code server keeps its code anyway."""
    try:
        reload_code(settings)
    except NoWebserver:
        if settings.environment != "production":
            raise


def _discard(settings: Settings, spark: SparkSession, store: Store, manifest: PreviewManifest) -> None:
    if manifest.sensors_off:
        with instance_beside_the_lake() as instance:
            _restore_sensors(instance, manifest)
    preview_runs.discard(spark, location.tables(settings), store, manifest)


def _recorded(store: Store) -> PreviewManifest:
    found = store.read()
    if found is None:
        raise NoPreview("there is no preview; `tidemark plan --preview` builds one")
    return found


def _code(definitions: dg.Definitions, settings: Settings) -> dict[str, str]:
    """Return the code version and the hash of the code of each asset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster's warnings, which other commands show
        found = assets_of(own_assets(definitions), Project(settings.code_root, settings.code_location))
    return {key: f"{asset.code_version} {asset.fingerprint.digest}" for key, asset in found.items()}


def _unversioned(plan: CodePlan, targets: Targets) -> dict[str, str]:
    """Return the assets whose code changed under the same version. They are not rebuilt, so no preview has them."""
    built = {key for group in targets.groups for key in group.assets}
    known = built | targets.left_out.keys()
    why = "its code changed under the same code_version: raise it, or mark the change as harmless"
    return {key: why for key in plan.unversioned if key not in known}


def _say(line: str) -> None:
    Console(stderr=True).print(line, style="dim", highlight=False)
