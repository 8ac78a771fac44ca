"""Accounts of rows in files: each row is in the table, in the quarantine, or superseded by another row.

For each file that a load has read: rows in the file = rows in the table + rejected rows + superseded rows. The first
three are counted independently. A row counts as superseded only if the table has another row with the same key. So
accounts detect a row that a transform or commit has lost, and a row that is in the table twice. A transform may return
more rows than it gets, such as one for each element of an array. These additional rows count as rows in the file. Does
not belong here: the reaction to a difference (`execution.load_check`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading.load_plan import Version
from dagster_tidemark.lakehouse.loading.provenance import of_versions
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.feed import Partition


@dataclass(frozen=True)
class Account:
    """Row counts of a version of a file.

    Args:
        landed: Number of rows in the file when it was read.
        in_table: Number of the file's rows that are in the table now.
        rejected: Number of rejected rows.
        superseded: Number of rows that another row with the same key has replaced.
        added: Number of additional rows that the transform created.
    """

    partition: Partition
    key: str
    landed: int
    in_table: int
    rejected: int
    superseded: int
    added: int = 0

    def __str__(self) -> str:
        added = f"the transform added {self.added}, " if self.added else ""
        return (
            f"{self.landed} rows landed, {added}{self.in_table} are in the table, {self.rejected} were rejected, "
            f"{self.superseded} superseded: {self.unaccounted} are unaccounted for"
        )

    @property
    def unaccounted(self) -> int:
        """Number of lost rows; negative if the table has rows that are not in the file."""
        if self.superseded < 0:
            return self.superseded
        return self.landed + self.added - self.in_table - self.rejected - self.superseded


def accounts_of(
    landed: Mapping[SourceFile, tuple[int, int]],
    before: Mapping[Version, int],
    after: Mapping[Version, int],
    *,
    read: DataFrame,
    standing: Callable[[], DataFrame],
    table: Callable[[], DataFrame],
    row_key: tuple[str, ...],
) -> list[Account]:
    """Return an account of each file that was read, and of each other file that has lost rows in the table.

    Superseded rows are queried only if rows of a file are not in the table.

    Args:
        landed: For each file that was read, its number of rows and its number of rejected rows.
        before: For each file that was not read and keeps its rows, its number of rows in the table before the commit.
        after: For each file, its number of rows in the table after the commit.
        read: The good rows of the files that were read, as table rows.
        standing: Returns the table rows of the files in `before`.
        table: Returns the rows of the changed partitions after the commit.
    """
    good = {_version(file): (rows, rejected) for file, (rows, rejected) in landed.items()}
    good |= {version: (rows, 0) for version, rows in before.items() if rows > after.get(version, 0)}
    short = {v for v, (rows, rejected) in good.items() if rows - rejected != after.get(v, 0)}
    from_read = {v for v in short if v not in before}
    found: dict[tuple[str, str], tuple[int, int]] = {}
    if short:
        of_read = [_rows_of(read, from_read)] if from_read else []
        of_others = [_rows_of(standing(), short - from_read)] if short - from_read else []
        named = (rows.select(*row_key, "source_file", "source_version") for rows in (*of_read, *of_others))
        there = table().select(*row_key).distinct().withColumn("_is_there", F.lit(1))
        rows = reduce(DataFrame.unionByName, named).join(there, on=list(row_key), how="left")
        counts = F.count(F.lit(1)).alias("made"), F.count("_is_there").alias("there")
        counted = rows.groupBy("source_file", "source_version").agg(*counts).collect()
        found = {(row.source_file, row.source_version): (row["made"], row["there"]) for row in counted}

    def account(version: Version, rows: int, rejected: int) -> Account:
        partition, key, of = version
        in_table = after.get(version, 0)
        if version not in short:
            return Account(partition, key, rows, in_table, rejected, 0)
        made, still_there = found.get((key, of), (0, 0))
        added = max(0, made - (rows - rejected)) if version in from_read else 0
        return Account(partition, key, rows, in_table, rejected, still_there - in_table, added)

    return [account(version, *counts) for version, counts in sorted(good.items(), key=repr)]


def _version(file: SourceFile) -> Version:
    return file.partition, file.key, file.version


def _rows_of(rows: DataFrame, versions: set[Version]) -> DataFrame:
    return of_versions(rows, {(key, version) for _, key, version in versions})
