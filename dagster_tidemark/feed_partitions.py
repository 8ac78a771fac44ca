"""Checks that each feed can be loaded: its assets have its partitions, its table takes its rows, a format reads it.

Otherwise files would wait for ever in partitions that Dagster does not have, or every run would fail. So loading the
code location fails, with a line for each wrong asset or feed that names the needed declaration.

sqlglot parses the rules of feeds. It does not know all of Spark's syntax: a rule that it cannot parse is logged, not
refused.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from dagster_tidemark.event_log.observations import QUARANTINE, source_key
from dagster_tidemark.lakehouse.loading.spec import require_cut_alike, require_loadable
from dagster_tidemark.lakehouse.table import DELIVERY, LINEAGE, Table
from dagster_tidemark.sources.feed import RESERVED, Feed, require_readable
from dagster_tidemark.sources.times import FORMATS, TYPES, Grain
from dagster_tidemark.table_partitions import DeclarationRefused, PartitionsDiffer, keys_of

_Definition = dg.PartitionsDefinition[Any] | None

_QUARTERS = "*/15 * * * *"
_CUTS = {
    Grain.QUARTER_HOUR: (
        _QUARTERS,
        f"TimeWindowPartitionsDefinition(cron_schedule={_QUARTERS!r}, fmt={FORMATS['timestamp']!r}, ...",
    ),
    Grain.HOUR: ("0 * * * *", "HourlyPartitionsDefinition(..."),
    Grain.DAY: ("0 0 * * *", "DailyPartitionsDefinition(..."),
    Grain.WEEK: ("0 0 * * 1", "WeeklyPartitionsDefinition(..., day_offset=1"),
    Grain.MONTH: ("0 0 1 * *", "MonthlyPartitionsDefinition(..."),
}
"""Cron schedule of each grain's windows, and the Dagster definition with these windows."""
_WITHOUT_BRACKETS = {"current_time", "localtimestamp"}  # functions of Spark that sqlglot takes for columns


def require_loadable_feeds(
    assets: Sequence[Any], feeds: Iterable[Feed], tables: Mapping[str, Table], delivered: Iterable[Feed] = ()
) -> None:
    """Check each feed against its format, its source asset and the assets that load its files.

    Args:
        tables: Tables by name: the parts of the asset key, joined by dots.
        delivered: The feeds of deliveries. Only their rules are checked.

    Raises:
        PartitionsDiffer: the partitions of a feed and an asset or table differ.
        DeclarationRefused: a feed cannot be loaded for another reason.
    """
    of_sources = {source_key(feed): feed for feed in feeds}
    wrong = [_refusal(require_readable, feed) for feed in of_sources.values()]
    wrong += [_refusal(partial(require_known_columns, partition_columns=DELIVERY), feed) for feed in delivered]
    wrong = list(filter(None, wrong))
    known = set(keys_of(assets))
    wrong += [
        f"feed {feed.name}: there is no asset {key.to_user_string()}, so its files are not loaded; add "
        "ASSETS = feed_assets(...) to its module"
        for key, feed in of_sources.items()
        if key not in known
    ]
    wrong += [
        f"asset {key.to_user_string()} is the source of a feed that is not passed, so its files are not loaded: pass "
        "the Feed too (`feeds=[...]`)"
        for key in _sources_without_feed(assets, of_sources)
    ]
    differing = []
    for key, definition, feed in _cut_by_feeds(assets, of_sources, tables):
        name, table = key.to_user_string(), tables.get(".".join(key.path))
        if why := _difference(definition, feed):
            differing.append(f"asset {name}, feed {feed.name} by {feed.layout.by}: {why}")
        elif table and (why := _refusal(require_cut_alike, feed, table)):
            differing.append(f"asset {name}: {why}")
        elif table and (why := next(filter(None, (_refusal(each, feed, table) for each in _OF_TABLES)), "")):
            wrong.append(f"asset {name}: {why}")
    if differing or wrong:
        raise (PartitionsDiffer if differing else DeclarationRefused)("\n".join([*differing, *wrong]))


def _refusal(require: Callable[..., None], *declarations: Feed | Table) -> str:
    try:
        require(*declarations)
    except ValueError as error:
        return str(error)
    return ""


def _require_lineage(feed: Feed, table: Table) -> None:
    if lacking := [c for c, kind in LINEAGE.items() if table.columns.get(c) != kind]:
        raise ValueError(
            f"feed {feed.name}: table {table.name} lacks the columns {', '.join(lacking)}; add LINEAGE to its columns"
        )


def _require_known_columns(feed: Feed, table: Table) -> None:
    require_known_columns(feed, table.partition_columns)


_OF_TABLES = (require_loadable, _require_lineage, _require_known_columns)


def _cut_by_feeds(
    assets: Iterable[Any], of_sources: Mapping[dg.AssetKey, Feed], tables: Mapping[str, Table]
) -> Iterator[tuple[dg.AssetKey, _Definition, Feed]]:
    """Yield the source asset of each feed and the assets that load its files, with their partitions."""
    for asset in assets:
        if isinstance(asset, dg.SourceAsset | dg.AssetSpec):
            if feed := of_sources.get(asset.key):
                yield asset.key, asset.partitions_def, feed
        elif isinstance(asset, dg.AssetsDefinition):
            for spec in asset.specs:
                table = tables.get(".".join(spec.key.path))
                has_lineage = table is not None and table.columns.keys() >= LINEAGE.keys()
                is_load = has_lineage or dg.AssetCheckKey(spec.key, QUARANTINE) in asset.check_keys
                read = [spec.key, *(dep.asset_key for dep in spec.deps if is_load)]
                for feed in (of_sources[key] for key in read if key in of_sources):
                    yield spec.key, spec.partitions_def, feed


def _sources_without_feed(assets: Sequence[Any], of_sources: Collection[dg.AssetKey]) -> list[dg.AssetKey]:
    """Return the sources that `feed_assets` has made for other feeds than the given ones."""
    sources = {each.key for each in assets if isinstance(each, dg.SourceAsset)}.difference(of_sources)
    loads = [
        spec
        for each in assets
        if isinstance(each, dg.AssetsDefinition)
        for spec in each.specs
        if dg.AssetCheckKey(spec.key, QUARANTINE) in each.check_keys
    ]
    return sorted(sources.intersection(dep.asset_key for spec in loads for dep in spec.deps))


def _difference(definition: _Definition, feed: Feed) -> str:
    """Return the difference and the remedy; empty if there is none."""
    dimensions = feed.layout.dimensions
    if definition is None:
        return "the asset has no partitions: give it a partitions_def" if dimensions else ""
    if not dimensions:
        return "the feed is one object: give the asset no partitions_def"
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        if len(dimensions) > 1:
            return f"give the asset a MultiPartitionsDefinition of {', '.join(dimensions)}"
        return _of_dimension(dimensions[0], definition, feed)
    theirs = {each.name: each.partitions_def for each in definition.partitions_defs}
    if set(theirs) != set(dimensions):
        said = f"the asset has the dimensions {', '.join(sorted(theirs))}, the feed {', '.join(dimensions)}"
        lacking, more = set(dimensions) - theirs.keys(), sorted(theirs.keys() - set(dimensions))
        is_name_of_time = lacking == {feed.layout.dimension_of_time} and len(more) == 1
        return f"{said}: " + (f"write Feed(time_name={more[0]!r})" if is_name_of_time else "declare the same in both")
    found = ((name, _of_dimension(name, theirs[name], feed)) for name in dimensions)
    return "; ".join(f"dimension {name}: {why}" for name, why in found if why)


def _of_dimension(name: str, definition: _Definition, feed: Feed) -> str:
    if name in feed.keys:
        return _of_keys(name, definition, feed)
    return _of_time(definition, feed)


def _of_keys(name: str, definition: _Definition, feed: Feed) -> str:
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return "folders of dynamic keys cannot be distinguished from misspelled ones: use a StaticPartitionsDefinition"
    if not isinstance(definition, dg.StaticPartitionsDefinition):
        return f"the feed has partitions by {name}: give the asset a StaticPartitionsDefinition"
    theirs, ours = set(definition.get_partition_keys()), set(feed.keys[name])
    if theirs == ours:
        return ""
    differing = ", ".join(sorted(theirs ^ ours)[:5])
    return f"only one of asset and feed has {differing}: write keys={{{name!r}: <the definition>.get_partition_keys()}}"


def _of_time(definition: _Definition, feed: Feed) -> str:
    zone, form = feed.timezone, FORMATS[TYPES[feed.grain]]
    cron, definition_begins = _CUTS[feed.grain]
    remedy = f"{definition_begins}{'' if zone == 'UTC' else f', timezone={zone!r}'})"
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return f"the feed has partitions by time: give the asset a {remedy}"
    if definition.cron_schedule != cron or definition.fmt != form or definition.exclusions:
        more = f" without {len(definition.exclusions)} of them" if definition.exclusions else ""
        said = f"the asset's windows start at {definition.cron_schedule!r}{more}, written {definition.fmt}"
        return f"{said}: give it a {remedy}, or the feed another grain"
    if definition.timezone != zone:
        return f"the asset has the time zone {definition.timezone}: write Feed(timezone={definition.timezone!r})"
    return ""


def require_known_columns(feed: Feed, partition_columns: Collection[str]) -> None:
    """Check that the rules of a feed name only columns that its rows have. Warn of rules that cannot be parsed.

    Args:
        partition_columns: The columns that rows get from the partition of their file.

    Raises:
        ValueError: a rule names another column. The message names feed, rule, column and the known columns.
    """
    known = [*feed.columns, *partition_columns]
    every = {name.lower() for name in (*known, *RESERVED)} | _WITHOUT_BRACKETS
    for reason, rule in feed.rules.items():
        read = columns_of(rule)
        if read is None:
            dg.get_dagster_logger("feeds").warning(
                f"feed {feed.name}: rule {reason!r} cannot be parsed, so only a load shows if it is valid: {rule}"
            )
            continue
        unknown = [c for c in read if c.lower() not in every and not c.startswith("_")]
        if unknown and not feed.adds_columns:  # otherwise its rows may have any column of its files
            raise ValueError(
                f"feed {feed.name}: rule {reason!r} reads {', '.join(map(repr, unknown))}, which is not declared; "
                f"read one of the columns {', '.join(known)}, or declare the column"
            )


def columns_of(condition: str) -> list[str] | None:
    """Return the names of the columns that a SQL condition reads, each once; None if it cannot be parsed."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        parsed = parse_one(condition, dialect="spark")
    except SqlglotError:
        return None
    found = [column.parts[0].name for column in parsed.find_all(exp.Column)]
    return sorted({name for name in found if name})
