"""Declaration of a table of the lake.

Belongs here: the declaration, and values that are computed from it alone. This module uses plain strings and does not
import pyspark, so that a code location loads quickly.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.partitioning import Partitioning, Value, condition, partitioning_of
from dagster_tidemark.sources.columns import require_columns, require_names

CATALOG = "lake"
BRANCH_DAYS = 2
"""Lifetime of a branch in days. If no command drops the branch earlier, Iceberg's expiry of snapshots drops it."""


class SchemaDiffers(Terminal):
    """Error for a table that differs from its declaration, if altering it needs a decision about its data."""


LINEAGE = {"source_file": "string", "source_version": "string", "arrived_at": "timestamp", "loaded_by": "string"}
"""Columns of every table that is loaded from files: the source object of a row, and the code that loaded the row."""

SOURCE_ROW = {"source_row": "bigint"}
"""Column of a table whose data has no key. Together with `source_file`, it identifies a row by its position."""

_LINEAGE_COMMENTS = {
    "source_file": "The object that the row came from: its key in the landing bucket",
    "source_version": "The version of that object",
    "arrived_at": "When that version arrived in the bucket, UTC",
    "loaded_by": "The code version that loaded the row",
    "source_row": "The number of the row in that object, counted from 1",
}

MESSAGE = {
    "message_id": "string",
    "message_source": "string",
    "topic_id": "string",
    "topic_partition": "int",
    "topic_offset": "bigint",
    "sent_at": "timestamp",
}
"""Columns of every table of messages: the id and the origin of each row's message."""

_MESSAGE_COMMENTS = {
    "message_id": "Id of the message: the queue's, or topic id, partition and offset",
    "message_source": "Source of the message: sqs:QUEUE or kafka:TOPIC/PARTITION",
    "topic_id": "Kafka's id of the topic, new if the topic is created again; null for a queue",
    "topic_partition": "Kafka's partition; null for a queue",
    "topic_offset": "Kafka's offset in the partition; null for a queue",
    "sent_at": "When the broker received the message, UTC",
}

DELIVERY = {"delivery_id": "string", "manifest": "string", "posted_at": "timestamp", "replaces": "string"}
"""Columns of every table of deliveries: the delivery of a row, and the loaded version of the delivery.

All rows of a delivery have the same values."""

_DELIVERY_COMMENTS = {
    "delivery_id": "The delivery, by the name of its folder: the partition",
    "manifest": "A hash of the files that its manifest lists, with their checksums",
    "posted_at": "When the message with this manifest was sent, UTC",
    "replaces": "The manifest of the rows that these rows replaced; null if there were none",
}

MODEL_VERSIONS = {
    "version": "string",
    "path": "string",
    "published": "boolean",
    "reason": "string",
    "libraries": "string",
    "fitted_at": "timestamp",
}
"""Columns of every table of a model's versions. The newest published row is the current version."""

_MODEL_VERSIONS_COMMENTS = {
    "version": "A hash of features, parameters, libraries and code",
    "path": "The folder of its files",
    "published": "True if it may serve: the newest published row is the current version",
    "reason": "Why it was published or not",
    "libraries": "The libraries that fitted it, with their versions",
    "fitted_at": "When it was fitted, UTC",
}


@dataclass(frozen=True)
class Retention:
    """Number and age of the old snapshots that a table keeps. Kept snapshots need storage for metadata and rows.

    Args:
        newest: Number of newest snapshots that commits keep at any age. Maintenance keeps those that a reader needs.
        held_for: Minimum time that a snapshot is kept after the next commit, even if many commits follow. It must be
            longer than any run takes, because a run starts again if its first snapshot has expired.
        batch: Number of older snapshots that expire together.
    """

    newest: int = 1_000
    held_for: timedelta = timedelta(hours=1)
    batch: int = 500


@dataclass(frozen=True)
class Table:
    """Declaration of an Iceberg table.

    Args:
        name: `namespace.table`: the parts of the asset key, joined by a dot.
        columns: Column name to Spark SQL type, in order.
        partitioned_by: Partitioning of the rows: `ByTime`, `ByKey` or `ByDimensions`. The name of a column means
            `ByTime`: the column has the start of an hour (timestamp), or of a day, week or month (date). None for an
            unpartitioned table.
        row_key: The columns that identify a row.
        comment: Description of one row, in one line.
        column_comments: Column name to its description, with the unit. The columns of `LINEAGE`, `MESSAGE`, `DELIVERY`
            and `MODEL_VERSIONS` have descriptions already.
        stored_by: The partition columns of the files, if they differ from `partitioned_by`.
        retention: The old snapshots to keep.
        generation: Raise this number, and the asset's `code_version`, if Iceberg cannot alter the table as declared.
            Then the former table is renamed to `<name>_generation_<number>`, and an empty table is created.
        added: Undeclared columns among `columns`, which a load has found in files (`NewColumns.ADD`).
        branch: The Iceberg branch to read and write; "" for the table that readers see. A branch has the columns and
            properties of its table. Runs on the branch do not alter them.
    """

    name: str
    columns: dict[str, str]
    row_key: tuple[str, ...]
    partitioned_by: str | Partitioning | None = None
    comment: str = ""
    stored_by: tuple[str, ...] = ()
    retention: Retention = Retention()
    added: tuple[str, ...] = ()
    column_comments: Mapping[str, str] = field(default_factory=dict)
    branch: str = ""
    generation: int = 1

    def __post_init__(self) -> None:
        owner = f"table {self.name}"
        if self.generation < 1:
            raise ValueError(f"{owner}: generation: expected 1 or more, found {self.generation}")
        require_columns(owner, self.columns, nested=True)
        require_names(owner, "row_key", self.row_key)
        if unknown := sorted(self.column_comments.keys() - self.columns.keys()):
            raise ValueError(f"table {self.name}: column_comments has {', '.join(unknown)}, which is not in columns")
        if self.partitioning:
            self.partitioning.require(self.name, self.columns)
        if unknown := [c for c in self.row_key if c not in self.columns]:
            raise ValueError(
                f"{owner}: row_key has {', '.join(map(repr, unknown))}, which is not in columns; declare it there, or "
                f"take it out of row_key (columns are {', '.join(self.columns)})"
            )
        if unknown := [c for c in self.stored_by if c not in self.columns]:
            raise ValueError(
                f"{owner}: stored_by has {', '.join(map(repr, unknown))}, which is not in columns; declare it there, "
                "or take it out of stored_by"
            )
        if not self.stored_by:
            object.__setattr__(self, "stored_by", self.partition_columns)

    def comment_on(self, column: str) -> str:
        """Return the description of a column; empty if it has none."""
        known = dict(_LINEAGE_COMMENTS)
        for columns, comments in (
            (MODEL_VERSIONS, _MODEL_VERSIONS_COMMENTS),
            (MESSAGE, _MESSAGE_COMMENTS),
            (DELIVERY, _DELIVERY_COMMENTS),
        ):
            known |= comments if self.columns.keys() >= columns.keys() else {}
        return self.column_comments.get(column) or known.get(column, "")

    def name_of_generation(self, generation: int) -> str:
        """Return the name that the table of an earlier generation was renamed to."""
        return f"{self.name}_generation_{generation}"

    @property
    def identifier(self) -> str:
        """Name of the table in Spark SQL, for access to columns, properties, metadata tables and versions."""
        return f"{CATALOG}.{self.name}"

    @property
    def rows_identifier(self) -> str:
        """Name of the table, or of its branch, for reading and writing rows in Spark SQL."""
        return f"{self.identifier}.branch_{self.branch}" if self.branch else self.identifier

    @property
    def partitioning(self) -> Partitioning | None:
        """Partitioning of the rows; None for an unpartitioned table."""
        return partitioning_of(self.partitioned_by)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that determine the partition of a row; none for an unpartitioned table."""
        return self.partitioning.columns if self.partitioning else ()

    @property
    def partition_key_sql(self) -> str:
        """SQL expression for the partition key of a row. It is null for an unpartitioned table."""
        return self._key_sql(quoted)

    @property
    def partition_key_of_metadata_sql(self) -> str:
        """SQL expression for the partition key of a row in Iceberg's metadata table `partitions`."""
        return self._key_sql(lambda column: f"partition.{quoted(column)}")

    def _key_sql(self, of: Callable[[str], str]) -> str:
        return self.partitioning.key_sql(self.columns, of) if self.partitioning else "CAST(NULL AS STRING)"

    def partition_values_sql(self, key: str) -> dict[str, str]:
        """Return SQL expressions that compute each partition column from a column `key` with a partition key."""
        return self.partitioning.values_sql(key, self.columns) if self.partitioning else {}

    def same_key(self) -> str:
        """Return a SQL condition that is true if the rows `s` and `t` have the same key."""
        return " AND ".join(f"t.{c} = s.{c}" for c in map(quoted, self.row_key))

    def predicate(self, partitions: Collection[str] | None, of: str | None = None) -> str:
        """Return a SQL condition that is true for rows of some partitions; None means the whole table.

        Args:
            of: The alias of the table in the query; None if columns need no alias.

        Raises:
            ValueError: the table is unpartitioned, or `partitions` is empty.
        """
        if partitions is None:
            return "true"
        if not self.partitioning or not partitions:
            raise ValueError(f"{self.name} has no partitions {sorted(partitions)}")
        values = [self.partition_values(key) for key in sorted(partitions)]
        return condition(values, lambda column: f"{of}.{quoted(column)}" if of else quoted(column))

    def partition_values(self, partition: str | None) -> dict[str, Value]:
        """Return the value of each partition column for a partition key; empty for an unpartitioned table (None)."""
        if not self.partitioning or partition is None:
            return {}
        return self.partitioning.values(partition, self.columns)


def as_ddl(columns: Mapping[str, str], comments: Mapping[str, str] | None = None) -> str:
    """Return columns as Spark DDL. Names may be SQL keywords.

    Args:
        comments: Column name to a comment, with single quotes doubled.
    """
    said = {name: f" COMMENT '{text}'" for name, text in (comments or {}).items()}
    return ", ".join(f"{quoted(name)} {kind}{said.get(name, '')}" for name, kind in columns.items())


def quoted(name: str) -> str:
    """Return a column's name as a quoted SQL identifier."""
    return f"`{name}`"
