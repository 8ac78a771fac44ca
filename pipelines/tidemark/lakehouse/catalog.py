"""Tables in the Iceberg catalog: made when first needed, widened when their declaration grew."""

import logging
import re
from collections.abc import Collection, Mapping

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from pipelines.tidemark.lakehouse import direct
from pipelines.tidemark.lakehouse.session import without_token
from pipelines.tidemark.lakehouse.table_properties import PROPERTIES
from pipelines.tidemark.lakehouse.tables import CATALOG, SchemaDiffers, Table, as_ddl, quoted

_RACES = ("UncheckedSQLException", "AlreadyExistsException", "CommitFailedException", "FIELD_ALREADY_EXISTS")

logger = logging.getLogger(__name__)

PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
"""What a column may be called that nobody declared."""


def _is_racing(error: BaseException) -> bool:
    return isinstance(error, PySparkException) and any(name in str(error) for name in _RACES)


# Runs that set up the catalog's own tables, a namespace or a table at once, or alter one, get into each other's way;
# the loser finds it done when it looks again.
again_after_a_race = retry(
    retry=retry_if_exception(_is_racing), wait=wait_random(0.1, 0.5), stop=stop_after_attempt(10), reraise=True
)


@again_after_a_race
def ensure(
    spark: SparkSession, table: Table, *, may_have_more: bool = False, may_alter: bool = True
) -> tuple[str, ...]:
    """Create the table unless it exists; add columns that its declaration gained.

    Args:
        may_have_more: Whether it may have text columns that are not declared, as `add_texts` makes them.
        may_alter: Whether a table that exists is to be altered, or only compared.

    Returns:
        The columns that it has more.

    Raises:
        SchemaDiffers: a column changed its type, was dropped by a person, or is no longer declared.
    """
    try:
        found = _columns_of(spark, table)
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        _create(spark, table)
        return ()
    more = _compared(table, found, may_have_more=may_have_more)
    if not may_alter:
        return more
    missing = {c: t for c, t in table.columns.items() if c not in found}
    if missing:
        _refuse_dropped(spark, table, missing)
        spark.sql(f"ALTER TABLE {table.identifier} ADD COLUMNS ({as_ddl(missing)})")
    return more


def set_properties(spark: SparkSession, table: Table) -> None:
    """Give a table that an earlier version of this code created the properties it would be created with today.

    Called in the wake of a commit, where nobody waits for it. Nothing that goes wrong here fails the commit: it is
    logged, and the next one tries again.
    """
    try:
        if seen := direct.loaded(spark, table):
            set_so = {**seen.properties, "format-version": str(seen.format_version)}
        else:
            set_so = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.identifier}").collect()}
        if differing := {name: value for name, value in PROPERTIES.items() if set_so.get(name) != value}:
            spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ({_listed(differing)})")
    except Exception as error:  # of the engine, the catalog or another run that alters the table
        said = without_token(str(error)).partition("\n")[0]
        logger.warning("%s: its properties stay as they are: %s", table.name, said)


def texts_beside(spark: SparkSession, table: Table) -> tuple[str, ...]:
    """The columns that a table has beside the declared ones.

    Raises:
        SchemaDiffers: one of them is no text, or is declared otherwise.
    """
    return _compared(table, _columns_of(spark, table), may_have_more=True)


def add_texts(spark: SparkSession, table: Table, names: Collection[str], comment: str) -> None:
    """Add text columns that nobody declared. A run that alters the table meanwhile is a race (`again_after_a_race`)."""
    columns = ", ".join(f"{quoted(name)} string COMMENT '{_escaped(comment)}'" for name in names)
    spark.sql(f"ALTER TABLE {table.identifier} ADD COLUMNS ({columns})")


def _columns_of(spark: SparkSession, table: Table) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in spark.table(table.identifier).schema.fields}


def _compared(table: Table, found: Mapping[str, str], *, may_have_more: bool) -> tuple[str, ...]:
    declared = {c.lower() for c in table.columns}
    texts = [c for c, t in found.items() if t == "string" and c.lower() not in declared and PLAIN_NAME.fullmatch(c)]
    more = tuple(texts) if may_have_more else ()
    wrong = {c: t for c, t in found.items() if table.columns.get(c) != t and c not in more}
    if wrong:
        raise SchemaDiffers(
            f"{table.identifier} has {wrong}, its declaration says { {c: table.columns.get(c) for c in wrong} }; "
            f"alter or drop the table, or put the declaration back{_remedy(table, wrong, texts)}"
        )
    return more


def _remedy(table: Table, wrong: Mapping[str, str], texts: Collection[str]) -> str:
    """What else helps, where a feed with `new_columns=add` may have added what is wrong."""
    if kept := [c for c in wrong if c in texts]:
        return f". A feed that added {', '.join(kept)} keeps it with new_columns=add; or declare it as string"
    declared = {c.lower() for c in table.columns}
    retyped = [c for c, t in wrong.items() if t == "string" and c.lower() in declared]
    if not retyped:
        return ""
    names = ", ".join(retyped)
    return (
        f". What a feed with new_columns=add has added is text: declare {names} as string; or drop it "
        f"(ALTER TABLE {table.identifier} DROP COLUMN {names}) and give the asset a new code_version, then it is "
        "filled anew from the files that still lie there"
    )


def _refuse_dropped(spark: SparkSession, table: Table, missing: Mapping[str, str]) -> None:
    """See that the latest rows were not written with a column that the table has no more.

    Raises:
        SchemaDiffers: they were. Added anew, it would be empty.
    """
    [current] = spark.sql(f"SHOW TBLPROPERTIES {table.identifier} ('current-snapshot-id')").collect()
    if current.value == "none":
        return
    # A snapshot has the schema of its time.
    written = spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {current.value}").schema.fields
    dropped = {f.name: missing[f.name] for f in written if missing.get(f.name) == f.dataType.simpleString()}
    if dropped:
        raise SchemaDiffers(
            f"{table.identifier}: somebody has dropped {', '.join(dropped)}, which its declaration has. Declare it no "
            f"more; or add it (ALTER TABLE {table.identifier} ADD COLUMNS ({as_ddl(dropped)})) and give the asset a "
            "new code_version, then it is filled anew from the files that still lie there"
        )


def _create(spark: SparkSession, table: Table) -> None:
    namespace = table.name.rpartition(".")[0]
    partitioning = f"PARTITIONED BY ({', '.join(map(quoted, table.stored_by))})" if table.stored_by else ""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{namespace}")
    comments = {column: said for column in table.columns if (said := table.comment_on(column))}
    columns = as_ddl(table.columns, {column: _escaped(said) for column, said in comments.items()})
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table.identifier} ({columns}) USING iceberg {partitioning} "
        f"COMMENT '{_escaped(table.comment)}' TBLPROPERTIES ({_listed(PROPERTIES)})"
    )


def _escaped(text: str) -> str:
    return text.replace("'", "''")


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
