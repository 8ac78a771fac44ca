"""The work and the output of `tidemark quarantine`, for a terminal of 80 columns.

Belongs here: opening the lake and the instance, finding the assets, and ordering writes so that a command can be
repeated. Does not belong here: reading and writing entries (`lakehouse.loading.quarantine_actions`), options and exit
codes (`cli.quarantine`).
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import typer
from dagster import DagsterInstance
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as Shown
from rich.text import Text

from dagster_tidemark import location
from dagster_tidemark.cli.commands import name_left_out
from dagster_tidemark.cli.storage import instance_beside_the_lake
from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.observations import QUARANTINE as CHECK
from dagster_tidemark.event_log.observations import ObservationLedger, report_result, source_key
from dagster_tidemark.execution.load_check import columns_said, quarantine_result
from dagster_tidemark.lakehouse.loading import quarantine_actions
from dagster_tidemark.lakehouse.loading.dry_run import DryRun, rehearse
from dagster_tidemark.lakehouse.loading.load import Load, Loaded
from dagster_tidemark.lakehouse.loading.quarantine_actions import Selection
from dagster_tidemark.lakehouse.loading.quarantine_counts import backlog_of, largest_share
from dagster_tidemark.lakehouse.session import naming_the_server, opened_session
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.sensors.change_detection import ask_again
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed, Grain, OutsideLayout, Partition
from dagster_tidemark.sources.s3 import S3Bucket, landing_bucket

_CONTENT = 300  # maximum characters shown of a rejected row


class CannotHandle(Terminal):
    """The requested action is impossible. The message gives the reason and an alternative."""


@dataclass(frozen=True)
class QuarantineTarget:
    """The lake, the bucket and the instance that a command works on, and the loads of the assets."""

    spark: SparkSession
    bucket: S3Bucket
    instance: DagsterInstance
    ledger: ObservationLedger
    loads: Mapping[str, Load]
    streams: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def require(self, asset: str) -> None:
        """Check that an asset has a quarantine.

        Raises:
            CannotHandle: the asset is neither loaded from files nor filled by a stream.
        """
        if asset not in self.streams:
            self.load_of(asset)

    def load_of(self, asset: str) -> Load:
        """Return the load of an asset.

        Raises:
            CannotHandle: the asset is not loaded from files, or cannot be loaded.
        """
        if asset in self.refused:
            raise CannotHandle(f"asset {asset!r} cannot be loaded: {self.refused[asset]}")
        if asset not in self.loads:
            known = ", ".join(sorted(self.loads))
            raise CannotHandle(f"asset {asset!r} is not loaded from files; assets that are: {known}")
        return self.loads[asset]


@contextmanager
def open_place(settings: Settings) -> Iterator[QuarantineTarget]:
    """Open the running platform, or the platform that the environment names.

    Raises:
        NothingRuns: no platform runs, and the environment names none.
        SparkUnreachable: the platform's Spark server does not answer.
        StorageUnreachable: Dagster's storage does not answer.
    """
    settings = take_environment(settings)
    # The code location is loaded after the environment is set, because it reads the environment at import.
    loads, refused, streams = _declared(settings)
    with ExitStack() as stack:
        instance = stack.enter_context(instance_beside_the_lake())
        spark = stack.enter_context(opened_session(settings))
        stack.enter_context(naming_the_server(spark))
        ledger = ObservationLedger(instance, settings.start_date)
        yield QuarantineTarget(spark, landing_bucket(settings), instance, ledger, loads, streams, refused)


def _declared(settings: Settings) -> tuple[dict[str, Load], dict[str, str], list[str]]:
    """Return the loads, the reasons why other assets cannot be loaded, and the streams of the code location.

    Broken parts are listed on stderr. Entries can be shown and waived all the same.
    """
    try:
        with location.without_broken_parts():
            graph = location.asset_graph(settings)
            feeds, tables = location.feeds(settings), location.tables(settings)
            streams = [stream.asset for stream in location.streams(settings)]
    except location.LocationBroken as broken:
        for line in str(broken).splitlines():
            typer.echo(f"tidemark: left out: {line}", err=True)
        return {}, {}, []
    name_left_out(settings)
    return (*loads_of(graph, feeds, tables), streams)


def loads_of(graph: Any, feeds: Iterable[Feed], tables: Mapping[str, Table]) -> tuple[dict[str, Load], dict[str, str]]:
    """Return the load of each asset with a feed, and the reasons why other assets cannot be loaded.

    These loads have no transform. Only the asset's own load converts rows to the form of the table.
    """
    found, refused = dict[str, Load](), dict[str, str]()
    for feed in feeds:
        for key in graph.get(source_key(feed)).child_keys if graph.has(source_key(feed)) else ():
            table = tables.get(".".join(key.path))
            if table and table.columns.keys() >= LINEAGE.keys():
                asset = key.to_user_string()
                try:
                    found[asset] = Load(feed, table, lambda rows: rows, graph.get(key).code_version or "")
                except ValueError as error:  # only this declaration is wrong; continue with the others
                    refused[asset] = str(error)
    return found, refused


def show(place: QuarantineTarget, selection: Selection, *, sample: int, as_json: bool) -> None:
    """Print the number of rejected rows and files per reason, and a sample of the entries."""
    found = quarantine_actions.entries(place.spark, selection)
    counts = [row.asDict() for row in quarantine_actions.counts(found).collect()]
    columns = ["asset", "partition", "source_file", "row_number", "reason", "message", "content", "because"]
    some = [
        row.asDict() for row in found.orderBy("quarantined_at", ascending=False).limit(sample).select(columns).collect()
    ]
    if as_json:
        print(json.dumps({"counts": counts, "sample": some}, indent=2, default=str))
        return
    if counts:
        Console().print(entries_shown(counts, some))
    else:
        print("no entries")


def send_back(place: QuarantineTarget, selection: Selection) -> dict[str, list[Partition]]:
    """Request that the automation or the next load reads the files of the selected entries again.

    Returns:
        The partitions of these files, by asset.
    """
    found = {}
    for asset in _assets(place, selection):
        load = place.load_of(asset)
        found[asset] = quarantine_actions.send_back(place.spark, selection, load)
        ask_again(place.ledger, place.bucket, load.feed, found[asset])
    return found


def waive(place: QuarantineTarget, selection: Selection, because: str) -> int:
    """Waive the selected entries, and report new check results.

    Returns:
        The number of waived entries.
    """
    assets = _assets(place, selection)
    count = quarantine_actions.waive(place.spark, selection, because, run_id=uuid.uuid4().hex)
    _tell(place, assets)
    return count


def unwaive(place: QuarantineTarget, selection: Selection) -> int:
    """Withdraw the waivers of the selected entries, and report new check results.

    Returns:
        The number of withdrawn waivers.
    """
    count = quarantine_actions.unwaive(place.spark, selection)
    _tell(place, _assets(place, selection))
    return count


def patch(place: QuarantineTarget, key: str, corrected: Path, because: str) -> str:
    """Put a corrected copy next to a file, and waive the file's entries. The copy's rows replace rows of the same key.

    Returns:
        The key of the copy.

    Raises:
        CannotHandle: the file has no entries, or its feed allows no copy next to it.
    """
    entered = Selection(key=key)
    assets = _assets(place, entered)
    if not assets:
        raise CannotHandle(f"no entry has the file {key!r}; `tidemark quarantine` shows the entries")
    feeds = {place.load_of(asset).feed for asset in assets}
    for feed in feeds:
        _require_place_beside(feed, key, corrected)
    target = _put_beside(place.bucket, key, corrected)
    reason = f"patched by {target}" + (f": {because}" if because else "")
    quarantine_actions.waive(place.spark, entered, reason, run_id=uuid.uuid4().hex)
    _tell(place, assets)
    for feed in feeds:  # the bucket's notification about the copy may be lost, or switched off
        ask_again(place.ledger, place.bucket, feed, [feed.partition_of(key)])
    return target


def rehearse_days(place: QuarantineTarget, asset: str, days: int) -> DryRun:
    """Return the rows and files of the last days that this code's rules would reject. Write nothing.

    Raises:
        CannotHandle: the asset is not loaded from files, or cannot be loaded.
    """
    load, said = place.load_of(asset), DryRun()
    today = datetime.now(ZoneInfo(load.feed.timezone)).date()
    if load.feed.grain is Grain.NONE:
        return rehearse(place.spark, place.bucket, load, load.feed.partitions_of(today))
    for n in range(days):
        said += rehearse(place.spark, place.bucket, load, load.feed.partitions_of(today - timedelta(days=n)))
    return said


def show_rehearsal(load: Load, said: DryRun, *, as_json: bool) -> None:
    """Print the result of a rehearsal."""
    share, limit = said.largest_share, load.feed.quarantine_share
    counts = [{"now": now, "then": then, "count": n} for (now, then), n in sorted(said.reasons.items(), key=repr)]
    changes = [asdict(change) for change in said.changes]
    if as_json:
        told = {
            "rows": sum(said.rows.values()),
            "rejected": sum(said.rejected.values()),
            "largest_share": share,
            "reasons": counts,
            "changes": changes,
            "added": list(said.added),
            "not_given": dict(said.not_given),
        }
        print(json.dumps(told, indent=2))
        return
    told_limit = "above" if share > limit else "within"
    print(
        f"{sum(said.rows.values())} rows read, {sum(said.rejected.values())} would be rejected; "
        f"at most {share:.2%} of a partition, {told_limit} the feed's limit of {limit:.2%}"
    )
    _print(counts, "nothing would be rejected now, and nothing was rejected before")
    if changes:
        _print(changes, "")
    if said.added:
        print(f"new columns of the table: {', '.join(said.added)}")
    for key, reason in said.not_given.items():
        print(f"not read: {key}: {reason}")


def not_handled(place: QuarantineTarget, selection: Selection) -> list[str]:
    """Return the assets that have selected entries, but that the code location does not or cannot load."""
    found = quarantine_actions.entries(place.spark, selection).select("asset").distinct().collect()
    return sorted(row.asset for row in found if row.asset not in place.loads and row.asset not in place.streams)


def _assets(place: QuarantineTarget, selection: Selection) -> list[str]:
    if selection.asset:
        place.load_of(selection.asset)
    found = quarantine_actions.entries(place.spark, selection).select("asset").distinct().collect()
    return sorted(row.asset for row in found if row.asset in place.loads)


def _tell(place: QuarantineTarget, assets: Sequence[str]) -> None:
    """Report current results for the quarantine checks of some assets, and waivers for their sources."""
    for feed in {place.loads[asset].feed for asset in assets}:
        loaded_from_it = [asset for asset, load in place.loads.items() if load.feed == feed]
        place.ledger.tell_waived(feed, quarantine_actions.waived_beside(place.spark, loaded_from_it))
    for asset in assets:
        load, key = place.loads[asset], dg.AssetKey.from_user_string(asset)
        backlog, share = backlog_of(place.spark, asset), largest_share(place.spark, load.table, asset, {})
        check = dg.AssetCheckKey(key, CHECK)
        before = event_storage.latest_check_metadata(place.instance, check) or {}
        loaded = Loaded(None, {}, backlog=backlog, largest_share=share)
        result = quarantine_result(load.feed, key, replace(loaded, **columns_said(before)))
        report_result(place.instance, check, result)


def _require_place_beside(feed: Feed, key: str, corrected: Path) -> None:
    if feed.is_one_object:
        raise CannotHandle(f"feed {feed.name} is the single object {feed.prefix}: overwrite it with the corrected file")
    try:
        feed.partition_of(key)
    except OutsideLayout as error:
        raise CannotHandle(f"{error}: move the file instead of patching it") from error
    if not feed.is_named_like_data(corrected.name):
        endings = ", ".join(feed.endings)
        raise CannotHandle(f"{corrected.name}: expected a file name of feed {feed.name}, ending in one of {endings}")


def _put_beside(bucket: S3Bucket, key: str, corrected: Path) -> str:
    """Put a copy next to a file, unless an identical copy exists. Return the copy's key."""
    folder, name = key.rpartition("/")[0], PurePosixPath(key).name
    stem, endings = name.partition(".")[0], "." + corrected.name.partition(".")[2]
    body = corrected.read_bytes()
    there, n = {landed.key: landed for landed in bucket.list_folder(f"{folder}/")}, 1
    while landed := there.get(target := f"{folder}/{stem}.patch{n}{endings}"):
        if bucket.read(landed) == body:
            return target
        n += 1
    bucket.put(target, body)
    return target


def _print(rows: Sequence[Mapping[str, object]], nothing: str) -> None:
    if not rows:
        print(nothing)
        return
    shown = Shown(*rows[0])
    for row in rows:
        shown.add_row(*("" if value is None else str(value) for value in row.values()))
    Console().print(shown)


def entries_shown(counts: Sequence[Mapping[str, Any]], some: Sequence[Mapping[str, Any]]) -> Group:
    """Return a table of the entries per reason, and for some entries the file, the error and the content."""
    table = Shown(box=SIMPLE_HEAD, collapse_padding=True)
    table.pad_edge = False
    for column in ("asset", "reason", "rows", "files", "waived", "since"):
        table.add_column(column, justify="right" if column in ("rows", "files") else "left", overflow="fold")
    for row in counts:
        table.add_row(
            row["asset"],
            row["reason"],
            str(row["rows"]),
            str(row["files"]),
            "yes" if row["waived"] else "",
            f"{row['since']:%Y-%m-%d}",
        )
    return Group(table, *(part for entry in some for part in _entry(entry)))


def _entry(entry: Mapping[str, Any]) -> list[Text | Padding]:
    at = "" if entry["row_number"] is None else f" row {entry['row_number']}"
    lines = [f"{entry['reason']}: {entry['message']}"]
    if entry["content"]:
        cut = "..." if len(entry["content"]) > _CONTENT else ""
        lines.append(entry["content"][:_CONTENT] + cut)
    if entry["because"]:
        lines.append(f"waived: {entry['because']}")
    # As `Text`, so that Rich does not interpret the content of files as markup.
    return [
        Text(f"{entry['asset']}: {entry['source_file']}{at}"),
        *(Padding(Text(line), (0, 0, 0, 2)) for line in lines),
    ]
