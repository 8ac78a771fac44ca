"""Small commits through pyiceberg, without Spark. They succeed only if no other writer has committed in between.

A commit names the head (current snapshot) of the table as the writer loaded it. If the table has a different head by
then, nothing is written (`CommitConflict`), and the writer loads the table and decides again. So concurrent writers
neither lose nor duplicate a row, even if a writer that was thought dead continues. Method: optimistic concurrency on
the head of a table, as in Iceberg's REST specification (`assert-ref-snapshot-id`).

Does not belong here: the choice and meaning of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)
from sqlalchemy.exc import SQLAlchemyError

from dagster_tidemark.catalog_options import for_pyiceberg, is_location
from dagster_tidemark.errors import Transient
from dagster_tidemark.lakehouse import snapshot_expiry
from dagster_tidemark.lakehouse.commits import CommitConflict, again_after_a_race
from dagster_tidemark.lakehouse.iceberg_schema import stored_of
from dagster_tidemark.lakehouse.pyiceberg_internals import commit_without_retries, require_head, share_copies
from dagster_tidemark.lakehouse.table import CATALOG, Table
from dagster_tidemark.lakehouse.table_changes import TableChangeKind, changes_of, comments_after, require_possible
from dagster_tidemark.lakehouse.table_properties import created_with, generation_of, location_of
from dagster_tidemark.settings import LOCAL_KEY, Settings

_TYPES: Mapping[str, PrimitiveType] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "float": FloatType(),
    "boolean": BooleanType(),
    "timestamp": TimestamptzType(),
    "date": DateType(),
    "binary": BinaryType(),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXPIRED_AT_ONCE = 25
"""Smallest number of snapshots that stream runs expire together."""


def open_lake(settings: Settings, **more: str) -> Catalog:
    """Return pyiceberg's catalog, with a separate connection for the caller.

    Args:
        more: Additional options of pyiceberg's catalog. They override options from the settings.
    """
    options: dict[str, str | None] = {}
    if "://" in settings.warehouse and settings.aws_endpoint_url:
        options["s3.endpoint"] = settings.aws_endpoint_url
        options["s3.region"] = settings.aws_region
        if settings.own_cloud:
            options["s3.access-key-id"] = options["s3.secret-access-key"] = LOCAL_KEY
    # pyiceberg also reads environment variables. Options that are given here override them.
    return load_catalog(CATALOG, **{**options, **for_pyiceberg(settings.catalog_options), **more})


@dataclass(frozen=True)
class TableCommit:
    """Change of a table in one commit.

    Args:
        rows: Rows to append.
        instead_of: Condition that selects existing rows to delete in the same commit.
        properties: Properties of the snapshot.
        marks: Properties of the table to set in the same commit.
    """

    rows: pa.Table | None = None
    instead_of: BooleanExpression | None = None
    properties: Mapping[str, str] | None = None
    marks: Mapping[str, str] | None = None


class Appendable:
    """Table of the lake, in the state that one writer has loaded. Not thread-safe.

    Args:
        lake: Catalog of `open_lake`.
        table: The declaration. A missing table is created.
        writes: True to add and widen columns as declared. Columns that are no longer declared stay, with null in new
            rows, so that writers with the earlier code can continue.

    Raises:
        SchemaDiffers: Iceberg cannot alter the table as declared (`table_changes`).
    """

    def __init__(self, lake: Catalog, table: Table, *, writes: bool = True) -> None:
        self.table = table
        self._lake = lake
        self._loaded = _as_declared(lake, table) if writes else _made(lake, table)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows, with columns in the order of the declaration."""
        fields = {field.name: field for field in self._loaded.schema().as_arrow()}
        return pa.schema([pa.field(name, small_type(fields[name].type)) for name in self.table.columns])

    @property
    def head(self) -> int | None:
        """Current snapshot of the table as this writer has loaded it; None before the first commit."""
        snapshot = self._loaded.current_snapshot()
        return None if snapshot is None else snapshot.snapshot_id

    def refresh(self) -> bool:
        """Load the table again. Return True if the head has changed."""
        before = self.head
        self._loaded = self._lake.load_table(self._loaded.name())
        return self.head != before

    def newest(self, name: str, *, after: int | None = None) -> str | None:
        """Return a property from the newest snapshot that has this property; None if no snapshot has it.

        Only the head and its unexpired ancestors are searched.

        Args:
            after: Search only snapshots that are newer than this one.
        """
        for snapshot in self._ancestors():
            if snapshot.snapshot_id == after:
                return None
            if snapshot.summary and (found := snapshot.summary.additional_properties.get(name)) is not None:
                return found
        return None

    def mark(self, name: str) -> str | None:
        """Return a property of the table; None if it is not set."""
        return self._loaded.properties.get(name)

    def rows(
        self, where: BooleanExpression | None = None, columns: Sequence[str] = ("*",), snapshot_id: int | None = None
    ) -> pa.Table:
        """Return rows of the head, or of an earlier snapshot."""
        if self.head is None:
            return self.schema.empty_table() if tuple(columns) == ("*",) else _of(self.schema, columns).empty_table()
        scan = self._loaded.scan(where or AlwaysTrue(), tuple(columns), snapshot_id=snapshot_id)
        return _with_small_types(scan.to_arrow())

    def batches(self, where: BooleanExpression, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of the head, in batches."""
        if self.head is not None:
            yield from self._loaded.scan(where, tuple(columns)).to_arrow_batch_reader()

    def planned_rows(self, where: BooleanExpression) -> int:
        """Return the number of rows in those files that may have matching rows."""
        if self.head is None:
            return 0
        return sum(task.file.record_count for task in self._loaded.scan(where).plan_files())

    def latest(self, column: str, where: BooleanExpression) -> datetime | None:
        """Return a time that no matching row of the head exceeds; None if no file may have matching rows.

        It comes from the statistics of the files, so the rows themselves may be earlier. If a file has none, it is the
        latest time that there is.
        """
        if self.head is None:
            return None
        field = self._loaded.schema().find_field(column).field_id
        bounds = [(task.file.upper_bounds or {}).get(field) for task in self._loaded.scan(where).plan_files()]
        if not bounds:
            return None
        known = [_EPOCH + timedelta(microseconds=int(from_bytes(TimestamptzType(), each))) for each in bounds if each]
        return max(known) if len(known) == len(bounds) else datetime.max.replace(tzinfo=UTC)

    def has(self, snapshot_id: int) -> bool:
        """Return True if a snapshot is the head, or an unexpired ancestor of the head."""
        return any(snapshot.snapshot_id == snapshot_id for snapshot in self._ancestors())

    def partitions(self) -> list[Mapping[str, Any]]:
        """Return the values of the partition columns, for each partition of the head that has files."""
        if self.head is None or not self.table.stored_by:
            return []
        found: list[Mapping[str, Any]] = self._loaded.inspect.partitions()["partition"].to_pylist()
        return found

    def counts(self, where: BooleanExpression, columns: Sequence[str]) -> Counter[tuple[Any, ...]]:
        """Return the number of matching rows for each combination of values. The rows are read in batches."""
        found: Counter[tuple[Any, ...]] = Counter()
        if self.head is None:
            return found
        texts = tuple(name for name in columns if self.table.columns[name] == "string")
        # Texts are read as dictionaries, so that a text that a million rows share is in memory once.
        for batch in self._loaded.scan(where, tuple(columns)).to_arrow_batch_reader(dictionary_columns=texts):
            counted = pa.Table.from_batches([batch]).group_by(list(columns)).aggregate([([], "count_all")])
            for row in counted.to_pylist():
                found[tuple(row[name] for name in columns)] += row["count_all"]
        return found

    def appended_since(self, snapshot_id: int | None, columns: Sequence[str] = ("*",)) -> pa.Table | None:
        """Return the rows that were appended after a snapshot, up to the head; None if that snapshot has expired.

        Args:
            snapshot_id: The snapshot. None returns all rows.
            columns: Columns to return.
        """
        if self.head is None or snapshot_id == self.head:
            return _of(self.schema, columns).empty_table()
        if snapshot_id is None:
            return self.rows(columns=columns)
        if not self.has(snapshot_id):
            return None
        scan = self._loaded.incremental_append_scan(
            from_snapshot_id_exclusive=snapshot_id, to_snapshot_id_inclusive=self.head, selected_fields=tuple(columns)
        )
        return _with_small_types(scan.to_arrow())

    def commit(self, change: TableCommit) -> int | None:
        """Commit a change, if the head is still the snapshot that this writer has loaded. Return the new head.

        Raises:
            CommitConflict: the head has changed, or another writer commits at the same moment.
        """

        def _change(transaction: Transaction) -> None:
            properties = dict(change.properties or {})
            require_head(transaction, self.head)
            if change.instead_of is not None:
                transaction.delete(change.instead_of, snapshot_properties=properties)
            if change.rows is not None:
                transaction.append(_as(change.rows, self.schema), snapshot_properties=properties)
            if change.marks:
                transaction.set_properties(dict(change.marks))

        commit_on_head(self._loaded, _change)
        return self.head

    def expire(self, *, keep: int, not_since: Collection[int] = (), batch: int = 1) -> int:
        """Expire old snapshots, and delete the files that only they need. Return the number of expired snapshots.

        Args:
            keep: Number of newest snapshots that stay.
            not_since: Snapshots that stay together with all later snapshots, because a reader still needs the rows that
                were appended after them.
            batch: Smallest number of snapshots to expire, because each expiry reads the manifest list of each snapshot.

        Raises:
            CommitConflict: another writer has committed in between. No snapshot was expired.
            OSError: the snapshots were expired, but some files could not be deleted. The message names one.
        """
        seen = [snapshot.snapshot_id for snapshot in self._ancestors()]
        if len(seen) < keep + batch:
            return 0
        needed_from = [at for at, snapshot_id in enumerate(seen) if snapshot_id in not_since]
        # Another writer may have expired some of the snapshots already.
        now = self._lake.load_table(self._loaded.name())
        try:
            expired = snapshot_expiry.expire(now, seen[max(keep, max(needed_from, default=-1) + 1) :])
        except CommitFailedException as error:
            raise CommitConflict(f"{self.table.name}: another writer has committed: {error}") from error
        finally:
            # If other writers have committed, keep the old state, so that the next commit or refresh notices this.
            if (snapshot := now.current_snapshot()) is not None and snapshot.snapshot_id == self.head:
                self._loaded = now
        return expired

    def _ancestors(self) -> Iterator[Snapshot]:
        """Yield the head and its unexpired ancestors, newest first."""
        yield from ancestors_of(self._loaded.current_snapshot(), self._loaded.metadata)


def commit_on_head(found: IcebergTable, change: Callable[[Transaction], None]) -> None:
    """Commit a change to a table, if the head of the table is still the loaded snapshot.

    Raises:
        CommitConflict: another writer has committed. Nothing was written.
        CatalogUnavailable: the catalog failed. The commit may have succeeded.
    """
    commit_without_retries(found)
    share_copies(found)
    name = ".".join(found.name())
    try:
        with found.transaction() as transaction:
            change(transaction)
    except CommitFailedException as error:
        raise CommitConflict(f"{name}: another writer has committed: {error}") from error
    except (SQLAlchemyError, RESTError) as error:
        # The caller must load the table again to see if the commit succeeded, as after a killed process.
        raise CatalogUnavailable(f"{name}: the catalog failed: {type(error).__name__}") from error


class CatalogUnavailable(Transient):
    """Error of a catalog that does not answer or refuses requests. A retry helps when the catalog works again."""


# Do not retry a failing catalog here, because `_made` has already waited for it.
@again_after_a_race(lambda error: isinstance(error, CommitFailedException))
def _as_declared(lake: Catalog, table: Table) -> IcebergTable:
    """Return the table with all declared columns.

    If two writers add a column at once, the retry of the later writer finds the column already in the table.
    """
    made = _made(lake, table)
    stored = stored_of(made)
    changes = changes_of(table, stored)
    require_possible(table, changes)
    new = [c.new_column for c in changes if c.new_column]
    wider = {c.column: _type(c.after) for c in changes if c.kind is TableChangeKind.WIDENED}
    docs = comments_after(table, stored, changes)
    if new or wider or docs:
        with made.update_schema() as update:
            for name in (c for c in table.columns if c in new):
                update.add_column(name, _type(table.columns[name]), doc=table.comment_on(name) or None)
            for name, kind in wider.items():
                update.update_column(name, field_type=kind)
            for name, doc in docs.items():
                update.update_column(name, doc=doc)
    return made


@again_after_a_race(lambda error: isinstance(error, TableAlreadyExistsError | CommitFailedException | SQLAlchemyError))
def _made(lake: Catalog, table: Table) -> IcebergTable:
    """Return the table. Create it if it is missing.

    If two writers create it at once, the retry of the later writer finds the existing table.
    """
    try:
        found = lake.load_table(table.name)
    except NoSuchTableError:
        pass
    else:
        generation = generation_of(found.properties)
        if generation >= table.generation:
            return found
        lake.rename_table(table.name, table.name_of_generation(generation))
    schema = Schema(
        *(
            NestedField(number, name, _type(kind), required=False, doc=table.comment_on(name) or None)
            for number, (name, kind) in enumerate(table.columns.items(), start=1)
        )
    )
    numbers = {field.name: field.field_id for field in schema.fields}
    spec = PartitionSpec(
        *(
            PartitionField(numbers[column], 1000 + at, IdentityTransform(), column)
            for at, column in enumerate(table.stored_by)
        )
    )
    namespace = table.name.rpartition(".")[0]
    lake.create_namespace_if_not_exists(namespace)
    return lake.create_table(
        table.name,
        schema,
        location=_location(lake, table),
        partition_spec=spec,
        properties=created_with(table) | {"comment": table.comment},
    )


def _location(lake: Catalog, table: Table) -> str | None:
    """Return the folder of a new table; None if the catalog chooses the folder, as for tables that Spark creates."""
    warehouse = lake.properties.get("warehouse", "").rstrip("/")
    if lake.properties.get("type") == "sql" or (table.generation > 1 and is_location(warehouse)):
        return f"{warehouse}/{location_of(table)}"
    return None


def _type(kind: str) -> PrimitiveType:
    if kind.startswith("decimal("):
        precision, scale = kind.removeprefix("decimal(").rstrip(")").split(",")
        return DecimalType(int(precision), int(scale))
    return _TYPES[kind]


def small_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with 32-bit offsets, which readers expect. pyiceberg returns texts with 64-bit offsets."""
    return pa.string() if pa.types.is_large_string(kind) else pa.binary() if pa.types.is_large_binary(kind) else kind


def _with_small_types(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([pa.field(f.name, small_type(f.type)) for f in rows.schema]))


def _of(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return schema if tuple(columns) == ("*",) else pa.schema([schema.field(name) for name in columns])


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


_of_values: Any = expressions  # pyiceberg's annotations require a keyword argument that pyiceberg itself sets


def equal(column: str, value: Any) -> BooleanExpression:
    """Return a filter for rows whose column has this value."""
    found: BooleanExpression = _of_values.EqualTo(column, _literal(value))
    return found


def one_of(column: str, values: Collection[Any]) -> BooleanExpression:
    """Return a filter for rows whose column has one of these values."""
    found: BooleanExpression = _of_values.In(column, sorted(values))
    return found


def at_least(column: str, value: Any) -> BooleanExpression:
    """Return a filter for rows whose column has at least this value."""
    found: BooleanExpression = _of_values.GreaterThanOrEqual(column, _literal(value))
    return found


def at_most(column: str, value: Any) -> BooleanExpression:
    """Match rows with this value or less."""
    found: BooleanExpression = _of_values.LessThanOrEqual(column, _literal(value))
    return found


def begins_with(column: str, text: str) -> BooleanExpression:
    """Match rows whose text begins with a text."""
    found: BooleanExpression = _of_values.StartsWith(column, text)
    return found


def below(column: str, value: Any) -> BooleanExpression:
    """Match rows with less than this value."""
    found: BooleanExpression = _of_values.LessThan(column, _literal(value))
    return found


def is_null(column: str) -> BooleanExpression:
    """Match rows without a value."""
    found: BooleanExpression = _of_values.IsNull(column)
    return found


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def rows_of(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Convert mappings to an Arrow table with a schema. A missing value is null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
