"""Tables in the Iceberg catalog: made when first needed, widened when their declaration grew."""

from collections.abc import Mapping

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from pipelines.lakehouse.tables import CATALOG, Table

# Writers of disjoint partitions never conflict but have to take turns at the catalog.
_PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "50",
    # One join instead of two: a file of 20 rows merged in 0.7 s instead of 1.0 s.
    "write.merge.mode": "merge-on-read",
    # Each commit writes a metadata.json that names all snapshots, 1.4 KB each: kept for ever they would be 70 GB after
    # 10,000 commits. A reader that was handed one of the last five still finds it.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "5",
    "write.metadata.compression-codec": "gzip",
    # Java's default and not pyiceberg's. No smaller manifests than 8 MB: what is to be merged is packed by size, mostly
    # headers, and the nearer a manifest is to the limit, the oftener it would be written again.
    "commit.manifest-merge.enabled": "true",
    # One task for 128 small files, not for 32: on the hours that arrive in many files a tenth less.
    "read.split.open-file-cost": "1048576",
}
_RACES = ("UncheckedSQLException", "AlreadyExistsException")


class SchemaDiffers(Exception):
    """A table in the catalog is not what its declaration says, and cannot be made so without deciding about data."""


def _is_racing(error: BaseException) -> bool:
    return isinstance(error, PySparkException) and any(name in str(error) for name in _RACES)


# On a fresh database, runs that set up the catalog's own tables, a namespace or a table at once get into each
# other's way; the loser finds it done when it looks again.
@retry(retry=retry_if_exception(_is_racing), wait=wait_random(0.1, 0.5), stop=stop_after_attempt(5), reraise=True)
def ensure(spark: SparkSession, table: Table) -> None:
    """Create the table unless it exists; add columns that its declaration gained, and set our properties.

    Raises:
        SchemaDiffers: a column changed its type, or the table has one that is no longer declared.
    """
    try:
        fields = spark.table(table.identifier).schema.fields
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        _create(spark, table)
        return
    found = {f.name: f.dataType.simpleString() for f in fields}
    wrong = {c: t for c, t in found.items() if table.columns.get(c) != t}
    if wrong:
        raise SchemaDiffers(
            f"{table.identifier} has {wrong}, its declaration says { {c: table.columns.get(c) for c in wrong} }; "
            "alter or drop the table, or put the declaration back"
        )
    missing = {c: t for c, t in table.columns.items() if c not in found}
    if missing:
        columns = ", ".join(f"{name} {kind}" for name, kind in missing.items())
        spark.sql(f"ALTER TABLE {table.identifier} ADD COLUMNS ({columns})")
    # No job: what the catalog says is answered by the server alone, in a few milliseconds.
    set_so = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.identifier}").collect()}
    if differing := {name: value for name, value in _PROPERTIES.items() if set_so.get(name) != value}:
        spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ({_listed(differing)})")


def _create(spark: SparkSession, table: Table) -> None:
    namespace = table.name.rpartition(".")[0]
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
    partitioning = f"PARTITIONED BY ({', '.join(table.stored_by)})" if table.stored_by else ""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{namespace}")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table.identifier} ({columns}) USING iceberg {partitioning} "
        f"COMMENT '{table.comment.replace(chr(39), chr(39) * 2)}' TBLPROPERTIES ({_listed(_PROPERTIES)})"
    )


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
