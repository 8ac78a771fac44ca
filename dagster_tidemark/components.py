"""Dagster components: a feed or a derived table, declared in `defs.yaml`.

They give the assets that `feed_assets` and `table_asset` give in Python. Belongs here: from the attributes of a
component to these calls, and errors with file and line. Does not belong here: how a code location takes components
over (`component_declarations`, `definitions.extend`).
"""

import pkgutil
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from dagster_tidemark.component_declarations import Declaration, Declaring, pending
from dagster_tidemark.derived_table import table_asset
from dagster_tidemark.discovery import in_words, refusing
from dagster_tidemark.lakehouse.partitioning import ByDimensions, ByKey, ByTime, Partitioning, partitioning_of
from dagster_tidemark.lakehouse.table import LINEAGE, SOURCE_ROW, Retention, Table
from dagster_tidemark.settings import load_settings
from dagster_tidemark.sources.feed import Feed, Grain, NewColumns, OnRemoval
from dagster_tidemark.sources.times import FORMATS, TYPES
from dagster_tidemark.table_partitions import DeclarationRefused


class Duration(dg.Model):
    """A length of time: the sum of its parts."""

    days: float = 0
    hours: float = 0
    minutes: float = 0

    @property
    def length(self) -> timedelta:
        """The length of time in Python."""
        return timedelta(days=self.days, hours=self.hours, minutes=self.minutes)


class Freshness(Duration):
    """How old data may be that a table does not contain yet: a length of time, or a deadline."""

    deadline_cron: str | None = Field(None, description="Deadlines as a cron; then there is no length of time.")
    lower_bound: Duration | None = Field(None, description="With a deadline: data that arrived so long before it.")
    timezone: str = Field("UTC", description="The time zone of the deadlines.")

    @property
    def policy(self) -> dg.FreshnessPolicy:
        """The freshness policy in Python.

        Raises:
            ValueError: it is neither a length of time nor a deadline with its bound, or both.
        """
        if (self.deadline_cron is None) is (self.length == timedelta(0)) or bool(self.deadline_cron) is not bool(
            self.lower_bound
        ):
            raise ValueError(
                "fresh is a length of time (`hours: 24`), or a deadline (`deadline_cron` and `lower_bound`)"
            )
        if self.deadline_cron and self.lower_bound:
            return dg.FreshnessPolicy.cron(self.deadline_cron, self.lower_bound.length, timezone=self.timezone)
        return dg.FreshnessPolicy.time_window(fail_window=self.length)


class PartitionColumn(dg.Model):
    """How one column says which partition a row is in."""

    time: str | None = Field(None, description="The column that holds the start of the window.")
    format: str | None = Field(None, description="With time: how the partitions definition writes its keys.")
    timezone: str = Field("UTC", description="With time: the time zone of the partitions definition.")
    key: str | None = Field(None, description="The column that holds the partition key.")

    @property
    def by_column(self) -> ByTime | ByKey:
        """The same in Python.

        Raises:
            ValueError: it is both or neither.
        """
        if (self.time is None) is (self.key is None):
            raise ValueError("partitioned_by is a column, or one of `time`, `key` and `dimensions`")
        return ByTime(self.time, self.format, self.timezone) if self.time else ByKey(str(self.key))


class PartitionedBy(PartitionColumn):
    """How rows say which partition they are in: by `time`, by `key`, or by several `dimensions`."""

    dimensions: dict[str, PartitionColumn] | None = Field(None, description="Each dimension by its name.")

    @property
    def partitioning(self) -> Partitioning:
        """The same in Python.

        Raises:
            ValueError: it is none of the three, or several.
        """
        if self.dimensions is None:
            return self.by_column
        if self.time or self.key:
            raise ValueError("partitioned_by is a column, or one of `time`, `key` and `dimensions`")
        return ByDimensions({name: each.by_column for name, each in self.dimensions.items()})


class Input(dg.Model):
    """An input that needs more than its key."""

    key: str = Field(description="The asset that is read, as `namespace/table`.")
    partition_mapping: str | None = Field(None, description="A partition mapping in Python, as `package.module:NAME`.")
    metadata: dict[str, Any] = Field({}, description="Knobs, such as `optional: true`.")


class KeptSnapshots(dg.Model):
    """How many old snapshots a table keeps."""

    newest: int = Retention.newest
    held_for: Duration = Duration(minutes=Retention.held_for.total_seconds() / 60)
    batch: int = Retention.batch

    @property
    def retention(self) -> Retention:
        """The same in Python."""
        return Retention(self.newest, self.held_for.length, self.batch)


class _LeftOut(dg.Component):
    """Takes the place of a component that cannot be as declared."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()


class _TableAttributes(Declaring, dg.Component, dg.Resolvable, dg.Model):
    """Attributes of every component: of its table, and of the asset that fills it."""

    name: str
    columns: dict[str, str]
    partitioned_by: str | PartitionedBy | None = None
    partitions: str | None = None
    comment: str = ""
    column_comments: dict[str, str] = Field({})
    stored_by: list[str] = Field([])
    retention: KeptSnapshots = KeptSnapshots()
    generation: int = 1
    fresh: Freshness | None = None
    code_version: str | None = None
    owners: list[str] = Field([])
    tags: dict[str, str] = Field({})
    description: str | None = None
    group_name: str | None = None

    _file: str = PrivateAttr("")
    _line: int = PrivateAttr(1)
    _declaration: Declaration | None = PrivateAttr(None)

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the schema of the attributes: exactly these types.

        The schema that Dagster derives also takes a text for each attribute, so `grain: daay` would pass it.
        """
        return cls

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Any:
        """Return the component of a `defs.yaml`.

        Within `leaving_out` a component that cannot be as declared is recorded, and an empty one takes its place.

        Raises:
            DeclarationRefused: a table or feed cannot be as declared. The message names file and line.
        """
        found: dg.Component = _LeftOut()
        with refusing(), _named_by_place(context):
            found = cls._loaded(attributes, context)
        return found

    @classmethod
    def _loaded(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        component: Self = super().load(attributes, context)
        if tree := context.resolution_context.source_position_tree:
            component._file = _below(context.project_root, tree.position.filename)
            component._line = tree.position.start.line
        component._assets()  # what cannot be fails here, where the line is known
        return component

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the component of attributes, with their templates (`{{ ... }}`) rendered.

        Dagster renders every text, and takes the result for Python: the code version "1.10" would become 1.1.
        """
        return cls(**_rendered(model.model_dump(exclude_unset=True), context))

    @property
    def declaration(self) -> Declaration:
        """Table and feed of the component."""
        if self._declaration is None:
            feed, attributes = self._feed(), self.model_dump(mode="json", exclude_defaults=True)
            self._declaration = Declaration(self._file, self._line, attributes, self._table(feed), feed)
        return self._declaration

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the component's assets, which the code location has to pass to `extend`."""
        return dg.Definitions(assets=self._assets(), resources=pending(self.declaration))

    def _feed(self) -> Feed | None:
        return None

    def _table(self, feed: Feed | None) -> Table:
        raise NotImplementedError

    def _assets(self) -> Sequence[dg.AssetsDefinition | dg.SourceAsset]:
        raise NotImplementedError

    def _table_options(self) -> dict[str, Any]:
        by = self.partitioned_by
        return {
            "partitioned_by": by.partitioning if isinstance(by, PartitionedBy) else by,
            "comment": self.comment,
            "column_comments": self.column_comments,
            "stored_by": tuple(self.stored_by),
            "retention": self.retention.retention,
            "generation": self.generation,
        }

    def _asset_options(self) -> dict[str, Any]:
        given = {"description": self.description, "group_name": self.group_name, "code_version": self.code_version}
        plain = {"owners": self.owners, "tags": self.tags, "fresh": self.fresh.policy if self.fresh else None}
        return plain | {name: value for name, value in given.items() if value is not None}


def _write(request: "dg.ScaffoldRequest[Any]", attributes: str, **files: str) -> None:
    """Write the files of a new component."""
    name = request.target_path.name
    if request.append or request.scaffold_format != "yaml":
        raise DeclarationRefused(f"{request.type_name} is written in YAML, as the only component of its folder")
    if not name.isidentifier():
        raise DeclarationRefused(f"{name!r} cannot name a table; use letters, digits and _")
    (request.target_path / "defs.yaml").write_text(f"type: {request.type_name}\n\n{attributes}")
    for module, text in files.items():
        (request.target_path / f"{module}.py").write_text(text)


class TableParameters(BaseModel):
    """What `dg scaffold defs` takes for a table."""

    reads: str = Field("core/orders", description="The asset that the table is computed from.")


class TableScaffolder(dg.Scaffolder[TableParameters]):
    """Writes a table by day and the function that computes it."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableParameters]:
        """Return the model of the parameters."""
        return TableParameters

    def scaffold(self, request: dg.ScaffoldRequest[TableParameters]) -> None:
        """Write `defs.yaml` and `transform.py`."""
        name, reads = request.target_path.name, request.params.reads
        module = ".".join(request.target_path.relative_to(request.project_root or Path()).parts).removeprefix("src.")
        attributes = f"""attributes:
  name: marts.{name}
  columns:
    day: date
    lines: bigint
  row_key: [day]
  partitioned_by: day
  comment: A day
  ins:
    rows: {reads}  # the asset that each parameter of the transform reads
  partitions: day
  fresh:
    hours: 24
  transform: {module}.transform:{name}
  code_version: "1"
"""
        transform = f'''from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def {name}(rows: DataFrame) -> DataFrame:
    """One row per day: how many rows {reads} has."""
    return rows.groupBy("day").agg(F.count("*").alias("lines"))
'''
        _write(request, attributes, transform=transform)


class FeedScaffolder(dg.Scaffolder):
    """Writes a feed with a folder of files for each day."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write `defs.yaml`."""
        name = request.target_path.name
        attributes = f"""attributes:
  name: {name}
  grain: day  # files land below {name}/dt=YYYY-MM-DD/
  columns:
    id: bigint
    remark: string
    happened_at: timestamp
  key: [id]
  rules:
    wrong_day: to_date(happened_at) = day
  comment: A record of {name}
  tags:
    tidemark/pace: asap
  code_version: "1"
"""
        _write(request, attributes)


@dg.scaffold_with(TableScaffolder)
class TableComponent(_TableAttributes):
    """A table that is computed from other tables, and its asset, as `table_asset` declares them in Python."""

    name: str = Field(description="`namespace.table`; the asset's key is `namespace/table`.", examples=["marts.sales"])
    columns: dict[str, str] = Field(description="Column name to Spark SQL type, in order.")
    row_key: list[str] = Field(description="The columns that identify a row.")
    transform: str = Field(
        description="The function that computes the table: a parameter for each of `ins`, the rows as its result.",
        examples=["shop.transforms.sales:sales_daily"],
    )
    ins: dict[str, str | Input] = Field({}, description="The asset that each parameter of the transform reads.")
    partitions: str | None = Field(
        None,
        description="`hour`, `day`, `week` or `month`, from the location's start date on; or a partitions definition "
        "in Python, as `package.module:NAME`.",
    )

    def _table(self, feed: Feed | None) -> Table:
        return Table(self.name, self.columns, tuple(self.row_key), **self._table_options())

    def _assets(self) -> Sequence[dg.AssetsDefinition | dg.SourceAsset]:
        table = self.declaration.table
        ins = {name: self._input(each) for name, each in self.ins.items()}
        partitions = _partitions(self.partitions)
        declare = table_asset(table, ins=ins, partitions=partitions, **self._asset_options())
        return [declare(_named("transform", self.transform))]

    def _input(self, given: str | Input) -> str | dg.AssetIn:
        if isinstance(given, str):
            return given
        mapping = _named("partition_mapping", given.partition_mapping) if given.partition_mapping else None
        key = dg.AssetKey.from_user_string(given.key)
        return dg.AssetIn(key, partition_mapping=mapping, metadata=given.metadata or None)


@dg.scaffold_with(FeedScaffolder)
class FeedComponent(_TableAttributes):
    """A feed of files, its source asset and the table that is loaded from it, as `feed_assets` declares them."""

    name: str = Field(description="The feed's name; its source asset is `raw/<name>`.", examples=["returns"])
    grain: Grain = Field(description="How its files are cut into partitions by time.")
    columns: dict[str, str] = Field(description="Column name of the files to SQL type.")
    key: list[str] = Field(
        description="The columns that identify a row of a partition; they are required. If empty, a row is identified "
        "by its file and its place in it."
    )
    prefix: str | None = Field(
        None, description="Where its files lie, ending in /; by default `<name>/`. With grain `none`: its one object."
    )
    suffixes: list[str] | None = None
    required: list[str] = Field([], description="More columns without which a row is rejected.")
    rules: dict[str, str] = Field({}, description="Reason to a SQL condition that every good row meets.")
    quarantine_share: float = Feed.quarantine_share
    removals: OnRemoval = Feed.removals
    follow_for: Duration = Duration(days=Feed.follow_for.days)
    allow_empty: bool = Feed.allow_empty
    encoding: str = Feed.encoding
    multiline: bool = Feed.multiline
    exact: bool = Feed.exact
    new_columns: NewColumns = Feed.new_columns
    folders: str | None = None
    keys: dict[str, list[str]] = Field({}, description="By what else it is cut: a name to the keys there are.")
    timezone: str = Feed.timezone
    time_name: str | None = None
    table: str | None = Field(None, description="The table's name; by default `core.<name>`.")
    table_columns: dict[str, str] | None = Field(
        None, description="All columns of the table; by default the partition columns, `columns` and the lineage."
    )
    transform: str | None = Field(
        None,
        description="A function from rows of the landing columns to rows of the table.",
        examples=["shop.transforms.returns:with_reason"],
    )
    partitions: str | None = Field(
        None, description="A partitions definition in Python, as `package.module:NAME`; by default as the grain."
    )

    def _feed(self) -> Feed:
        if unknown := [column for column in self.key if column not in self.columns]:
            raise ValueError(f"feed {self.name}: key has {', '.join(unknown)}, which is not in columns; add it there")
        return Feed(
            prefix=self._prefix(),
            required=tuple(dict.fromkeys([*self.key, *self.required])),
            suffixes=None if self.suffixes is None else tuple(self.suffixes),
            follow_for=self.follow_for.length,
            **{name: getattr(self, name) for name in _SAME_IN_FEED},
        )

    def _prefix(self) -> str:
        if self.prefix is not None:
            return self.prefix
        if self.grain is Grain.NONE and not self.keys:
            raise ValueError(f"feed {self.name}: prefix is missing; with grain none it is the key of its one object")
        return f"{self.name}/"

    def _table(self, feed: Feed | None) -> Table:
        options = self._table_options()
        by = partitioning_of(options["partitioned_by"]) or self._partitioning()
        types = self._types(by)
        place = {} if self.key else SOURCE_ROW
        return Table(
            self.table or f"core.{self.name}",
            self.table_columns or types | self.columns | place | LINEAGE,
            (*types, *(self.key or ("source_file", *SOURCE_ROW))),
            **options | {"partitioned_by": by},
        )

    def _partitioning(self) -> Partitioning | None:
        """Return a column for the time, called as the grain, and one for each of `keys`."""
        zone = self.timezone if TYPES.get(self.grain) == "timestamp" else "UTC"
        parts: dict[str, ByTime | ByKey] = {name: ByKey(name) for name in self.keys}
        if self.grain is not Grain.NONE:
            parts[self.time_name or self.grain.value] = ByTime(self.grain.value, timezone=zone)
        return ByDimensions(parts) if len(parts) > 1 else next(iter(parts.values()), None)

    def _types(self, by: Partitioning | None) -> dict[str, str]:
        """Return the partition columns with their types."""
        match by:
            case ByTime(column):
                return {column: TYPES.get(self.grain, "date")}
            case ByKey(column):
                return {column: "string"}
            case ByDimensions(dimensions):
                parts = [self._types(part) for _, part in sorted(dimensions.items())]
                return {column: kind for part in parts for column, kind in part.items()}
        return {}

    def _assets(self) -> Sequence[dg.AssetsDefinition | dg.SourceAsset]:
        # Imported here: `dg` imports this module in every project of the environment, and pyspark takes a second.
        from dagster_tidemark.feed_factory import feed_assets

        feed, options = self.declaration.feed, self._asset_options()
        assert feed is not None
        if self.transform:
            options["transform"] = _named("transform", self.transform)
        # Dagster adds the defs.yaml; without this it would be shown beside a line of this module.
        no_references = dg.CodeReferencesMetadataValue(code_references=[])
        source, table = feed_assets(
            feed,
            self.declaration.table,
            partitions_def=self._partitions_definition(),
            metadata={"dagster/code_references": no_references},
            **options,
        )
        # Dagster looks at the table first, and then at the placeholder of `pending`; of a source it would only say
        # that a resource is missing.
        return [table, source]

    def _partitions_definition(self) -> dg.PartitionsDefinition[Any] | None:
        if self.partitions:
            return _partitions(self.partitions)
        keys: dict[str, dg.PartitionsDefinition[Any]] = {
            name: dg.StaticPartitionsDefinition(each) for name, each in self.keys.items()
        }
        if self.grain is not Grain.NONE:
            keys[self.time_name or self.grain.value] = _by_grain(self.grain, self.timezone)
        return dg.MultiPartitionsDefinition(keys) if len(keys) > 1 else next(iter(keys.values()), None)


_SAME_IN_FEED = (
    "name", "grain", "columns", "rules", "quarantine_share", "removals", "allow_empty", "encoding", "multiline",
    "exact", "new_columns", "folders", "keys", "timezone", "time_name",
)  # fmt: skip
"""Settings of a feed that are attributes of its component, value by value."""

_GRAINS = {str(grain): grain for grain in Grain if grain is not Grain.NONE}


def _partitions(given: str | None) -> dg.PartitionsDefinition[Any] | None:
    """Return the partitions definition of a grain or of a name in Python."""
    if given is None:
        return None
    if given in _GRAINS:
        return _by_grain(_GRAINS[given])
    if ":" not in given:
        raise ValueError(f"partitions is one of {', '.join(_GRAINS)}, or `package.module:NAME`, not {given!r}")
    found = _named("partitions", given)
    if not isinstance(found, dg.PartitionsDefinition):
        raise ValueError(f"partitions {given} is a {type(found).__name__}; expected a partitions definition")
    return found


def _by_grain(grain: Grain, timezone: str = "UTC") -> dg.PartitionsDefinition[Any]:
    """Return the partitions from the location's start date on. They include the window that is being filled.

    They equal the definitions that `tidemark init` writes, so that tables of both share runs.
    """
    start, zone = load_settings().start_date, timezone
    midnight = f"{start.isoformat()}-00:00"
    match grain:
        case Grain.QUARTER_HOUR:
            return dg.TimeWindowPartitionsDefinition(
                cron_schedule="*/15 * * * *", start=midnight, fmt=FORMATS["timestamp"], timezone=zone, end_offset=1
            )
        case Grain.HOUR:
            return dg.HourlyPartitionsDefinition(midnight, timezone=zone, end_offset=1)
        case Grain.WEEK:
            return dg.WeeklyPartitionsDefinition(start.isoformat(), day_offset=1, timezone=zone, end_offset=1)
        case Grain.MONTH:
            return dg.MonthlyPartitionsDefinition(start.replace(day=1).isoformat(), timezone=zone, end_offset=1)
    return dg.DailyPartitionsDefinition(start.isoformat(), timezone=zone, end_offset=1)


def _named(attribute: str, path: str) -> Any:
    """Return what `package.module:name` names.

    Raises:
        ValueError: there is no such module or name, or the module cannot be imported. The message gives the reason.
    """
    module, _, name = path.partition(":")
    if not (module and name):
        raise ValueError(f"{attribute} is written as `package.module:name`, not {path!r}")
    try:
        return pkgutil.resolve_name(path)
    except Exception as error:  # an import runs any code
        raise ValueError(f"{attribute} {path} cannot be imported: {in_words(error, module)}") from error


def _rendered(value: Any, context: dg.ResolutionContext) -> Any:
    match value:
        case str():
            return context.resolve_value(value) if "{{" in value or "{%" in value else value
        case dict():
            return {name: _rendered(each, context.at_path(name)) for name, each in value.items()}
        case list():
            return [_rendered(each, context.at_path(number)) for number, each in enumerate(value)]
    return value


@contextmanager
def _named_by_place(context: dg.ComponentLoadContext) -> Iterator[None]:
    """Raise errors of a component's attributes with the file and line of the attribute that they are about."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        path = [part for part in first["loc"] if isinstance(part, str | int)]
        name = ".".join(map(str, path))
        raise DeclarationRefused(f"{_place(context, path)}: {name}: {first['msg']}") from error
    except ValueError as error:
        raise DeclarationRefused(f"{_place(context, _path_in(str(error), context))}: {error}") from error


def _path_in(message: str, context: dg.ComponentLoadContext) -> list[str]:
    """Return the path of the first attribute that a message names, of `feed NAME: ...` after the name."""
    tree = context.resolution_context.source_position_tree
    attributes = tree.children.get("attributes") if tree else None
    known = attributes.children if attributes else {}
    for word in re.findall(r"\w+", re.sub(r"^(feed|table) \S+:", "", message)):
        if word in known:
            return [word]
        if inside := next((str(name) for name, each in known.items() if word in each.children), ""):
            return [inside, word]
    return []


def _place(context: dg.ComponentLoadContext, path: Sequence[str | int]) -> str:
    tree = context.resolution_context.source_position_tree
    if tree is None:
        return "component"
    position, _ = tree.lookup_closest_and_path(["attributes", *path], None)
    return f"{_below(context.project_root, position.filename)}:{position.start.line}"


def _below(root: Path, file: str) -> str:
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
