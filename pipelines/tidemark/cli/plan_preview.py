"""`pipelines plan --preview`, `--publish` and `--discard`: changed code tried on branches, and shown.

Belongs here: from settings to a preview, what is printed of it, and the running platform meanwhile. Does not belong
here: what a preview is and does (`preview`).
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import dagster as dg
from dagster import DagsterInstance
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from pipelines.tidemark import location
from pipelines.tidemark.cli import plan_apply, plan_view
from pipelines.tidemark.cli.webserver import Webserver
from pipelines.tidemark.code_versions.assets import assets_of
from pipelines.tidemark.code_versions.project import Project
from pipelines.tidemark.engine.code_plan import follow, plan_of
from pipelines.tidemark.lakehouse.row_diff import Example, RowDiff, row_diff
from pipelines.tidemark.lakehouse.session import new_session
from pipelines.tidemark.planner.decisions import RANGES
from pipelines.tidemark.preview import build
from pipelines.tidemark.preview.manifest import Manifest, NoPreview, Store, TablePreview
from pipelines.tidemark.preview.publish import Published, Publisher, require_publishable
from pipelines.tidemark.preview.targets import choose
from pipelines.tidemark.settings import CHECKOUT, Settings, load_settings

_LONGEST = 24  # characters of a value in a table of 80 columns


def preview(settings: Settings, select: str | None, partitions: str | None, *, as_json: bool) -> bool:
    """Build what this code changes on branches, and print how the rows differ.

    Returns:
        Whether any row does, or a check failed.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
        NoSelection: nothing is selected.
        NoSuchPartitions: no planned partition was chosen.
        PreviewFailed: a run failed; nothing is left of the preview.
    """
    settings = plan_view.of_the_platform(settings)
    definitions = _definitions(settings)
    tables = location.tables(settings)
    with DagsterInstance.get() as instance, _session() as spark:
        store = _store(settings)
        if (before := store.read()) is not None:
            _discard(settings, spark, store, before)
        plan = plan_of(definitions, instance, contract_scale=settings.contract_scale)
        plan = plan if select is None else plan_view.selected(plan, definitions, select)
        history = follow(definitions, instance, contract_scale=settings.contract_scale).history
        manifest = Manifest.begun({}, {})
        lake = build.PreviewLake(spark, tables, manifest)
        planned = [asset.key for asset in plan.assets if asset.rebuilds]
        refused = build.refusals(definitions, history.graph, lake, planned)
        targets = choose(plan, history.graph, partitions, refused)
        manifest.left_out = targets.left_out
        code = _code(definitions, settings)
        manifest.code = {key: code[key] for group in targets.groups for key in group.assets}
        diffs: dict[str, RowDiff] = {}
        if targets.groups:
            try:
                build.build(definitions, history, targets, lake, store, _say)
                diffs = {own.asset: _diff(spark, lake, own) for own in manifest.tables}
            except BaseException:
                build.discard(spark, tables, store, manifest)
                raise
    checks = [check for run in manifest.runs for check in build.events(run.checks)]
    if as_json:
        print(json.dumps(as_dict(manifest, diffs, checks), indent=2))
    else:
        Console().print(shown(manifest, diffs, checks))
    return any(diff.differs for diff in diffs.values()) or any(_is_error(check) for check in checks)


def publish(settings: Settings) -> None:
    """Make the preview the tables, and deploy this code.

    Raises:
        NoPreview: there is none.
        NotToPublish: it must not be published.
        NoWebserver: nobody answers who could load this code.
    """
    settings = plan_view.of_the_platform(settings)
    definitions = _definitions(settings)
    store, webserver = _store(settings), Webserver.of(settings)
    manifest = _recorded(store)
    require_publishable(manifest, _code(definitions, settings))
    tables = location.tables(settings)
    with DagsterInstance.get() as instance, _session() as spark:
        publisher = Publisher(
            definitions, instance, spark, tables, manifest, store, contract_scale=settings.contract_scale
        )
        with _no_rebuilds(definitions, webserver, store, manifest):
            try:
                found = publisher.publish()
            finally:
                # The running code would build with its own version what is published of this one.
                if any(own.decided for own in manifest.tables):
                    webserver.reload()
        plan_apply.wait_for_code(instance, settings)
        build.discard(spark, tables, store, manifest)
    Console().print(told(found))


def discard(settings: Settings) -> None:
    """Drop the preview.

    Raises:
        NoPreview: there is none.
    """
    settings = plan_view.of_the_platform(settings)
    store = _store(settings)
    manifest = _recorded(store)
    with _session() as spark:
        _discard(settings, spark, store, manifest)
    print(f"preview {manifest.id}: dropped")


def as_dict(manifest: Manifest, diffs: Mapping[str, RowDiff], checks: Sequence[Any]) -> dict[str, Any]:
    """A preview as JSON. Of an unpartitioned asset the one partition is null; sums are text."""
    return {
        "id": manifest.id,
        "branch": manifest.branch if manifest.tables else None,
        "assets": [
            {
                "key": own.asset,
                "partitions": own.partitions,
                **_figures(diffs[own.asset]),
                "checks": [_check(check) for check in checks if check.asset_key.to_user_string() == own.asset],
            }
            for own in manifest.tables
        ],
        "left_out": manifest.left_out,
    }


def shown(manifest: Manifest, diffs: Mapping[str, RowDiff], checks: Sequence[Any]) -> Group:
    """A preview for a terminal of 80 columns."""
    lines: list[Any] = []
    for own in manifest.tables:
        diff = diffs[own.asset]
        lines.append(Text(f"{own.asset}{_partitions(own)}", style="bold"))
        rows = f"{diff.rows_before:,} rows -> {diff.rows_after:,}"
        lines.append(Text(f"  {rows}: {diff.added:,} added, {diff.removed:,} removed, {diff.changed:,} changed"))
        lines += [Text(f"  {_one_sided(example)}") for example in diff.examples.get("", ())]
        changed = [c for c, t in diff.totals.items() if c in diff.columns or t.before != t.after]
        if columns := list(dict.fromkeys([*diff.columns, *changed])):
            lines.append(_columns(diff, columns))
        for check in (check for check in checks if check.asset_key.to_user_string() == own.asset):
            state = "passed" if check.passed else "failed" if _is_error(check) else "warns"
            lines.append(Text(f"  check {check.check_name} {state}{_because(check.description)}"))
    lines += [Text(f"{asset}: not previewed, {why}") for asset, why in manifest.left_out.items()]
    if not manifest.tables:
        lines.append(Text("nothing to preview: no partition would run because of this code"))
    elif any(_is_error(check) for check in checks):
        lines.append(Text("a check failed, so it cannot be published: correct the code and preview again"))
    else:
        lines.append(Text("pipelines plan --publish makes it the tables; --discard drops it; in two days it expires"))
    return Group(*lines)


def told(found: Published) -> Group:
    """What became of a preview, for a terminal."""
    lines = []
    for asset, partitions in found.partitions.items():
        how = "fast-forwarded" if asset in found.forwarded else "copied"
        lines.append(Text(f"{asset}: {_count(partitions)} published, {how if partitions else 'none'}"))
    for asset, left in found.left.items():
        lines.append(Text(f"{asset}: {_count(left)} changed meanwhile, left to be rebuilt"))
    return Group(*lines)


def _diff(spark: SparkSession, lake: build.PreviewLake, own: TablePreview) -> RowDiff:
    keys = None if None in own.partitions else [str(partition) for partition in own.partitions]
    return row_diff(spark, lake.table(own.asset), keys, own.base, own.head)


def _figures(diff: RowDiff) -> dict[str, Any]:
    names = ("rows_before", "rows_after", "added", "removed", "changed")
    return {
        **{name: getattr(diff, name) for name in names},
        "columns": {
            column: {"rows": rows, "examples": [vars(example) for example in diff.examples[column]]}
            for column, rows in diff.columns.items()
        },
        "only_in_one": [vars(example) for example in diff.examples.get("", ())],
        "totals": {
            column: {side: None if (of := getattr(total, side)) is None else str(of) for side in ("before", "after")}
            for column, total in diff.totals.items()
        },
    }


def _check(check: Any) -> dict[str, Any]:
    return {
        "name": check.check_name,
        "passed": check.passed,
        "severity": check.severity.value,
        "description": check.description,
    }


def _columns(diff: RowDiff, columns: Sequence[str]) -> RichTable:
    found = RichTable(box=SIMPLE_HEAD, collapse_padding=True)
    found.add_column("column")
    for title in ("rows", "sum before", "sum after"):
        found.add_column(title, justify="right")
    found.add_column("for example")
    for column in columns:
        total = diff.totals.get(column)
        sums = ("", "") if total is None else (_number(total.before), _number(total.after))
        examples = "\n".join(map(_changed, diff.examples.get(column, ())))
        found.add_row(column, f"{diff.columns.get(column, 0):,}", *sums, examples)
    return found


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}" if not isinstance(value, float) else f"{value:,.6g}"


def _changed(example: Example) -> str:
    return f"{_key(example)}: {_short(example.before)} -> {_short(example.after)}"


def _one_sided(example: Example) -> str:
    return f"{'removed' if example.before else 'added'}: {_key(example)}"


def _key(example: Example) -> str:
    return " ".join(_short(value) for value in example.key.values())


def _short(value: str | None) -> str:
    if value is None:
        return "null"
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."


def _because(description: str | None) -> str:
    return f": {description}" if description else ""


def _partitions(own: TablePreview) -> str:
    keys = sorted(str(p) for p in own.partitions if p is not None)
    return "" if not keys else f" {keys[0]}" if len(keys) == 1 else f" {len(keys)} partitions, {keys[0]} to {keys[-1]}"


def _count(partitions: Sequence[str | None]) -> str:
    return "all of it" if None in partitions else f"{len(partitions)} partitions"


def _is_error(check: Any) -> bool:
    return not check.passed and check.severity is dg.AssetCheckSeverity.ERROR


@contextmanager
def _no_rebuilds(definitions: dg.Definitions, webserver: Webserver, store: Store, manifest: Manifest) -> Iterator[None]:
    """Switch the sensor off that asks for rebuilds: to the running code what is published looks stale."""
    keys = {key.to_user_string() for key in definitions.resolve_asset_graph().materializable_asset_keys}
    running = [sensor for sensor in webserver.sensors(RANGES, keys) if sensor.is_on]
    known = [*manifest.sensors_off]  # by an attempt that was killed
    manifest.sensors_off = [*known, *(s for s in (dict(r.selector) for r in running) if s not in known)]
    store.write(manifest)
    try:
        for sensor in running:
            webserver.stop(sensor)
        yield
    finally:
        _switch_on(webserver, manifest)
        store.write(manifest)


def _switch_on(webserver: Webserver, manifest: Manifest) -> None:
    for selector in list(manifest.sensors_off):
        webserver.start(selector)
        manifest.sensors_off.remove(selector)


def _discard(settings: Settings, spark: SparkSession, store: Store, manifest: Manifest) -> None:
    _switch_on(Webserver.of(settings), manifest)
    build.discard(spark, location.tables(settings), store, manifest)


def _recorded(store: Store) -> Manifest:
    found = store.read()
    if found is None:
        raise NoPreview("there is no preview; `pipelines plan --preview` builds one")
    return found


def _store(settings: Settings) -> Store:
    return Store(settings.state_dir)


def _definitions(settings: Settings) -> dg.Definitions:
    return location.definitions(settings)


def _code(definitions: dg.Definitions, settings: Settings) -> dict[str, str]:
    """Of each asset its code version and a hash of its code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dagster, which every other command shows
        found = assets_of(definitions.assets or (), Project(CHECKOUT, settings.code_location))
    return {key: f"{asset.code_version} {asset.fingerprint.digest}" for key, asset in found.items()}


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = new_session(load_settings())
    try:
        yield spark
    finally:
        with suppress(Exception):  # the server went away: what was to be said of that is said
            spark.stop()


def _say(line: str) -> None:
    Console(stderr=True).print(line, style="dim", highlight=False)
