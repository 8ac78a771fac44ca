"""Creation and alteration of tables in the Iceberg catalog, so that they match their declarations."""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from dagster_tidemark.catalog_options import is_location
from dagster_tidemark.lakehouse import metadata_reads
from dagster_tidemark.lakehouse.commits import again_after_a_race
from dagster_tidemark.lakehouse.session import without_token
from dagster_tidemark.lakehouse.table import CATALOG, Table, as_ddl, quoted
from dagster_tidemark.lakehouse.table_changes import (
    NOT_DECLARED,
    RETIRED,
    Stored,
    TableChange,
    TableChangeKind,
    changes_of,
    comments_after,
    require_possible,
    widens,
)
from dagster_tidemark.lakehouse.table_properties import (
    PROPERTIES,
    ROW_KEY,
    WIDENED,
    as_widened,
    created_with,
    generation_of,
    location_of,
    properties_of,
    widened_columns,
)

_RACES = ("UncheckedSQLException", "AlreadyExistsException", "CommitFailedException", "FIELD_ALREADY_EXISTS")

logger = logging.getLogger(__name__)

PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
"""Pattern of valid names of undeclared columns."""


def _is_racing(error: BaseException) -> bool:
    return isinstance(error, PySparkException) and any(name in str(error) for name in _RACES)


# Runs conflict if they create the catalog's own tables, a namespace or a table at the same time, or alter a table.
again_after_a_spark_race = again_after_a_race(_is_racing)


@again_after_a_spark_race
def ensure(
    spark: SparkSession, table: Table, *, may_have_more: bool = False, may_alter: bool = True
) -> tuple[str, ...]:
    """Create the table if it is missing. Otherwise add and widen columns as declared.

    A column that is no longer declared stays, and is null in new rows, so that runs of the former code can continue.

    Args:
        may_have_more: True if the table may have undeclared text columns, which `add_texts` has added.
        may_alter: True to alter an existing table; False to only compare it.

    Returns:
        The undeclared text columns; empty without `may_have_more`.

    Raises:
        SchemaDiffers: Iceberg cannot alter the table as declared (`table_changes`).
    """
    stored = _ensured(spark, table, may_have_more=may_have_more, may_alter=may_alter)
    return _texts_beside(table, stored) if may_have_more and stored else ()


@again_after_a_spark_race
def ensure_readable(spark: SparkSession, table: Table) -> Stored | None:
    """Create or alter a table like `ensure`, for a reader. The table may have undeclared text columns.

    Returns:
        The table before any alteration; None if it was created.

    Raises:
        SchemaDiffers: see `ensure`.
    """
    return _ensured(spark, table, may_have_more=True)


def _ensured(spark: SparkSession, table: Table, *, may_have_more: bool, may_alter: bool = True) -> Stored | None:
    """Return the table before any alteration; None if it was created."""
    try:
        stored = as_it_is(spark, table)
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        _create(spark, table)
        return None
    if table.generation > 1 and _is_replaced(spark, table, may_alter=may_alter):
        return None
    stored, changes = _compared(spark, table, stored, may_have_more=may_have_more)
    require_possible(table, changes)
    if may_alter:
        _alter(spark, table, stored, changes)
    return stored


def changes_to(spark: SparkSession, table: Table) -> list[TableChange]:
    """Return the changes that the declaration requires of an existing table, including impossible changes."""
    changes = _compared(spark, table, as_it_is(spark, table), may_have_more=True)[1]
    if table.generation > 1:
        generation = generation_of(_properties(spark, table))
        changes = [*changes, *changes_of(table, Stored(table.columns, generation=generation))]
    return changes


def _is_replaced(spark: SparkSession, table: Table, *, may_alter: bool) -> bool:
    """Replace a table of an earlier generation with an empty table. Return True if it was replaced.

    Only one of several concurrent runs can rename the table, because the new name exists afterwards.

    Raises:
        SchemaDiffers: the table is of a later generation.
    """
    generation = generation_of(_properties(spark, table))
    require_possible(table, changes_of(table, Stored(table.columns, generation=generation)))
    if generation == table.generation or not may_alter:
        return False
    spark.sql(f"ALTER TABLE {table.identifier} RENAME TO {table.name_of_generation(generation)}")
    _create(spark, table)
    return True


def _compared(
    spark: SparkSession, table: Table, stored: Stored, *, may_have_more: bool
) -> tuple[Stored, list[TableChange]]:
    """Return a table and its changes. Some facts are queried only if the changes depend on them."""
    changes = changes_of(table, stored, may_have_more=may_have_more)
    kinds = {change.kind for change in changes}
    if TableChangeKind.ADDED in kinds:
        stored = replace(stored, written=_written(spark, table))
    if TableChangeKind.RETYPED in kinds:
        stored = replace(stored, widened=tuple(widened_columns(_properties(spark, table))))
    if kinds & {TableChangeKind.ADDED, TableChangeKind.RETYPED}:
        changes = changes_of(table, stored, may_have_more=may_have_more)
    return stored, changes


def set_properties(spark: SparkSession, table: Table) -> None:
    """Add to a table the properties that new tables get, if it lacks them. Existing values stay.

    The owner of the table may have chosen an existing value: some engines cannot read position deletes and need the
    merge mode `copy-on-write`. Call this after a commit. An error here does not fail the commit: it is logged, and the
    next commit tries again.
    """
    try:
        if seen := metadata_reads.loaded(spark, table):
            set_so = {**seen.properties, "format-version": str(seen.format_version)}
        else:
            set_so = _properties(spark, table)
        # Existing values are overwritten only for facts: the row key of the last write, and the types of previews.
        wanted = {name: value for name, value in PROPERTIES.items() if name not in set_so}
        facts = {ROW_KEY: properties_of(table)[ROW_KEY]}
        if WIDENED in set_so:
            of_previews = widened_columns(set_so).items()
            facts[WIDENED] = as_widened({c: k for c, k in of_previews if widens(table.columns.get(c, ""), k)})
        wanted |= {name: value for name, value in facts.items() if set_so.get(name) != value}
        if wanted:
            spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ({_listed(wanted)})")
    except Exception as error:  # the engine or the catalog fails, or another run alters the table
        said = without_token(str(error)).partition("\n")[0]
        logger.warning("%s: the table properties could not be set: %s", table.name, said)


def texts_beside(spark: SparkSession, table: Table) -> tuple[str, ...]:
    """Return the undeclared text columns of a table.

    Raises:
        SchemaDiffers: an undeclared column is not a text, or the table cannot be altered as declared.
    """
    stored, changes = _compared(spark, table, as_it_is(spark, table), may_have_more=True)
    require_possible(table, changes)
    return _texts_beside(table, stored)


def add_texts(spark: SparkSession, table: Table, names: Collection[str], comment: str) -> None:
    """Add undeclared text columns. Concurrent runs conflict, so callers need `again_after_a_spark_race`."""
    columns = ", ".join(f"{quoted(name)} string COMMENT '{_escaped(comment)}'" for name in names)
    spark.sql(f"ALTER TABLE {table.identifier} ADD COLUMNS ({columns})")


def as_it_is(spark: SparkSession, table: Table) -> Stored:
    """Return an existing table as the catalog has it, without altering it."""
    if there := metadata_reads.stored(spark, table):
        return Stored(
            there.columns,
            generation=table.generation,
            required=there.required,
            from_files=there.from_files,
            retired=there.retired,
        )
    fields = spark.table(table.identifier).schema.fields
    return Stored(
        {f.name: f.dataType.simpleString() for f in fields},
        generation=table.generation,
        required=tuple(f.name for f in fields if not f.nullable),
        from_files=tuple(f.name for f in fields if _comment_of(f).startswith(NOT_DECLARED)),
        retired=tuple(f.name for f in fields if _comment_of(f).startswith(RETIRED)),
    )


def _comment_of(field: StructField) -> str:
    return str((field.metadata or {}).get("comment", ""))


def _texts_beside(table: Table, stored: Stored) -> tuple[str, ...]:
    declared = {c.lower() for c in table.columns}
    return tuple(
        c
        for c, kind in stored.columns.items()
        if kind == "string" and c.lower() not in declared and PLAIN_NAME.fullmatch(c)
    )


def _written(spark: SparkSession, table: Table) -> dict[str, str]:
    """Return the columns that the table had when its newest snapshot was written."""
    [current] = spark.sql(f"SHOW TBLPROPERTIES {table.identifier} ('current-snapshot-id')").collect()
    if current.value == "none":
        return {}
    fields = spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {current.value}").schema.fields
    return {f.name: f.dataType.simpleString() for f in fields}


def _properties(spark: SparkSession, table: Table) -> dict[str, str]:
    return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.identifier}").collect()}


def widen_for_preview(spark: SparkSession, table: Table, changes: Collection[TableChange]) -> None:
    """Widen columns of a table while its deployed code still declares the narrower types.

    Iceberg cannot undo this. Readers get the narrower type until the wider type is deployed.
    """
    wider = {change.column: change.after for change in changes if change.kind is TableChangeKind.WIDENED}
    if not wider:
        return
    marked = as_widened(widened_columns(_properties(spark, table)) | wider)
    spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ({_listed({WIDENED: marked})})")
    for column, kind in wider.items():
        spark.sql(f"ALTER TABLE {table.identifier} ALTER COLUMN {quoted(column)} TYPE {kind}")


def _alter(spark: SparkSession, table: Table, stored: Stored, changes: Collection[TableChange]) -> None:
    """Add and widen columns. A column that is no longer declared stays, with a comment that it is retired."""
    new = [c.new_column for c in changes if c.new_column]
    if new:
        columns = as_ddl({c: kind for c, kind in table.columns.items() if c in new})
        spark.sql(f"ALTER TABLE {table.identifier} ADD COLUMNS ({columns})")
    for change in (change for change in changes if change.kind is TableChangeKind.WIDENED):
        spark.sql(f"ALTER TABLE {table.identifier} ALTER COLUMN {quoted(change.column)} TYPE {change.after}")
    for column, comment in comments_after(table, stored, changes).items():
        alter = f"ALTER TABLE {table.identifier} ALTER COLUMN {quoted(column)}"
        spark.sql(f"{alter} COMMENT '{_escaped(comment)}'")


def _create(spark: SparkSession, table: Table) -> None:
    namespace = table.name.rpartition(".")[0]
    partitioning = f"PARTITIONED BY ({', '.join(map(quoted, table.stored_by))})" if table.stored_by else ""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{namespace}")
    comments = {column: said for column in table.columns if (said := table.comment_on(column))}
    columns = as_ddl(table.columns, {column: _escaped(said) for column, said in comments.items()})
    location = ""
    if table.generation > 1:  # the default folder has the files of the former table
        warehouse = str(spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse", "")).rstrip("/")
        if is_location(warehouse):  # otherwise the catalog chooses
            location = f"LOCATION '{warehouse}/{location_of(table)}'"
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table.identifier} ({columns}) USING iceberg {partitioning} {location} "
        f"COMMENT '{_escaped(table.comment)}' TBLPROPERTIES ({_listed(created_with(table))})"
    )


def _escaped(text: str) -> str:
    return text.replace("'", "''")


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
