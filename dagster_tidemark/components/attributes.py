"""Attributes of components that are not plain text, and their conversion to Python objects."""

import pkgutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_tidemark.discovery import in_words
from dagster_tidemark.lakehouse.partitioning import ByDimensions, ByKey, ByTime, Partitioning
from dagster_tidemark.lakehouse.table import Retention
from dagster_tidemark.settings import load_settings
from dagster_tidemark.sources.text_formats import AnyText, Csv, FixedWidth, Json
from dagster_tidemark.sources.times import FORMATS, Grain


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
    """Limit on the age of data that a table does not contain yet: a length of time, or a deadline."""

    deadline_cron: str | None = Field(None, description="Cron schedule of the deadlines, in place of a length of time.")
    lower_bound: Duration | None = Field(None, description="With a deadline: data that arrived this long before.")
    timezone: str = Field("UTC", description="Time zone of the deadlines.")

    @property
    def policy(self) -> dg.FreshnessPolicy:
        """The freshness policy in Python.

        Raises:
            ValueError: expected either a length of time, or a deadline with `lower_bound`.
        """
        if (self.deadline_cron is None) is (self.length == timedelta(0)) or bool(self.deadline_cron) is not bool(
            self.lower_bound
        ):
            raise ValueError(
                "fresh must be a length of time (`hours: 24`), or a deadline (`deadline_cron` and `lower_bound`)"
            )
        try:
            if self.deadline_cron and self.lower_bound:
                return dg.FreshnessPolicy.cron(self.deadline_cron, self.lower_bound.length, timezone=self.timezone)
            return dg.FreshnessPolicy.time_window(fail_window=self.length)
        except Exception as error:  # Dagster raises several types for a wrong cron, time zone or length
            raise ValueError(f"fresh: {error}") from error


class PartitionColumn(dg.Model):
    """Column that determines the partition of a row: by time, or by key."""

    time: str | None = Field(None, description="Column with the start of the window.")
    format: str | None = Field(None, description="With time: format of the partitions definition's keys.")
    timezone: str = Field("UTC", description="With time: time zone of the partitions definition.")
    key: str | None = Field(None, description="Column with the partition key.")

    @property
    def by_column(self) -> ByTime | ByKey:
        """The column as an object for `Table`.

        Raises:
            ValueError: both `time` and `key` are set, or neither.
        """
        if (self.time is None) is (self.key is None):
            raise ValueError("partitioned_by must be a column, or one of `time`, `key` and `dimensions`")
        return ByTime(self.time, self.format, self.timezone) if self.time else ByKey(str(self.key))


class PartitionedBy(PartitionColumn):
    """Columns that determine the partition of a row: by `time`, by `key`, or by several `dimensions`."""

    dimensions: dict[str, PartitionColumn] | None = Field(None, description="Column of each dimension, by its name.")

    @property
    def partitioning(self) -> Partitioning:
        """The partitioning as an object for `Table`.

        Raises:
            ValueError: none of the three is set, or several are.
        """
        if self.dimensions is None:
            return self.by_column
        if self.time or self.key:
            raise ValueError("partitioned_by must be a column, or one of `time`, `key` and `dimensions`")
        return ByDimensions({name: each.by_column for name, each in self.dimensions.items()})


class ComponentInput(dg.Model):
    """An input with a partition mapping or metadata, not only a key."""

    key: str = Field(description="Key of the asset to read, as `namespace/table`.")
    partition_mapping: str | None = Field(None, description="Partition mapping in Python, as `package.module:NAME`.")
    metadata: dict[str, Any] = Field({}, description="Metadata of the input, such as `optional: true`.")


class TextOptions(dg.Model):
    """Options that all formats of text have."""

    nulls: list[str] = Field([], description="Texts that mean a missing value.")
    typed_nulls: list[str] = Field(
        [], description="Texts that mean a missing value only in columns of other types than string."
    )
    times: dict[str, str | list[str]] = Field(
        {}, description="Column to the form of its dates or times.", examples=["dd.MM.yy"]
    )
    timezone: str = Field("UTC", description="The zone of times that are written without one.")


class CsvOptions(TextOptions):
    """Options of CSV files. `dagster_tidemark.Csv` documents them."""

    separator: str = Csv.separator
    header: bool | str = Field(
        Csv.header, description="True: the first line; a text that the header line begins with; false: none."
    )
    fields: list[str] = Field([], description="With header false: the names of all columns, in order.")
    skip_lines: int = Csv.skip_lines
    quote: str | None = Csv.quote
    escape: str | None = Csv.escape
    comment: str | None = Csv.comment
    trailing_separator: bool = Csv.trailing_separator
    decimal: str = Csv.decimal
    thousands: str | None = Csv.thousands


class JsonOptions(TextOptions):
    """Options of JSON files. `dagster_tidemark.Json` documents them."""

    rows: str | None = Field(Json.rows, description="The place of the array whose elements are the rows.")


class FixedWidthOptions(TextOptions):
    """Options of text of fixed width. `dagster_tidemark.FixedWidth` documents them."""

    columns: dict[str, int | tuple[int, int | None]] = Field(
        description="The width of each column; or its first character, from 1, and its width.",
        examples=[{"id": 6, "name": 20}],
    )
    skip_lines: int = FixedWidth.skip_lines
    is_trimmed: bool = FixedWidth.is_trimmed
    decimal: str = FixedWidth.decimal
    thousands: str | None = FixedWidth.thousands


class FileForm(dg.Model):
    """The format of a feed's files, `csv`, `json` or `fixed_width`, with options."""

    csv: CsvOptions | None = None
    json_: JsonOptions | None = Field(None, alias="json")
    fixed_width: FixedWidthOptions | None = None

    @property
    def format(self) -> AnyText:
        """The format as an object for `Feed`.

        Raises:
            ValueError: several formats are set or none, or an option is invalid.
        """
        given: dict[type[AnyText], TextOptions | None] = {
            Csv: self.csv,
            Json: self.json_,
            FixedWidth: self.fixed_width,
        }
        found = [(format, options) for format, options in given.items() if options is not None]
        if len(found) != 1:
            raise ValueError(
                "format is the name of a registered format, or one of `csv`, `json` and `fixed_width` with its options"
            )
        [(format, options)] = found
        return format(**options.model_dump())


class KeptSnapshots(dg.Model):
    """Retention of a table's old snapshots."""

    newest: int = Retention.newest
    held_for: Duration = Duration(minutes=Retention.held_for.total_seconds() / 60)
    batch: int = Retention.batch

    @property
    def retention(self) -> Retention:
        """The retention as an object for `Table`."""
        return Retention(self.newest, self.held_for.length, self.batch)


_GRAINS = {str(grain): grain for grain in Grain if grain is not Grain.NONE}


def partitions_of(given: str | None) -> dg.PartitionsDefinition[Any] | None:
    """Return the partitions definition of a grain, or the definition named as `package.module:NAME`."""
    if given is None:
        return None
    if given in _GRAINS:
        return partitions_by(_GRAINS[given])
    if ":" not in given:
        raise ValueError(f"partitions must be one of {', '.join(_GRAINS)}, or `package.module:NAME`, not {given!r}")
    found = named("partitions", given)
    if not isinstance(found, dg.PartitionsDefinition):
        raise ValueError(f"partitions {given} is a {type(found).__name__}; expected a partitions definition")
    return found


def partitions_by(grain: Grain, timezone: str = "UTC") -> dg.PartitionsDefinition[Any]:
    """Return time partitions from the code location's start date on, including the current window.

    They equal the definitions that `tidemark init` writes, so that tables with either definition can share runs.
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


def transform_named(path: str) -> Callable[..., Any]:
    """Return the function that `package.module:name` names.

    Raises:
        ValueError: the name does not exist, cannot be imported, or is not a function.
    """
    found = named("transform", path)
    if not callable(found):
        raise ValueError(f"transform {path} is a {type(found).__name__}; expected a function")
    return found  # type: ignore[no-any-return]


def named(attribute: str, path: str) -> Any:
    """Return the object that `package.module:name` names.

    Raises:
        ValueError: the module or name does not exist, or the import failed. The message gives the reason.
    """
    module, _, name = path.partition(":")
    if not (module and name):
        raise ValueError(f"{attribute} must be written as `package.module:name`, not {path!r}")
    try:
        return pkgutil.resolve_name(path)
    except Exception as error:  # the imported module may raise any error
        raise ValueError(
            f"{attribute} {path} cannot be imported: {in_words(error).rpartition('Error: ')[2]}"
        ) from error
