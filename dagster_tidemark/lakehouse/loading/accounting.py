"""Whether every row that landed is accounted for: it is in the table, in the quarantine, or another one took its place.

For each file that a load has read: rows landed = rows in the table + turned away + superseded. The first three are
counted where they lie; a row counts as superseded only if a row of its key stands in the table. So a row that got lost
on the way (in a transform that drops it, in a commit) is missed, and so is one that stands there twice. Does not belong
here: what is done about it (`execution.load_check`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading.load_plan import Version
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.feed import Partition


@dataclass(frozen=True)
class Account:
    """What became of the rows of a version of a file; counts of rows.

    Args:
        landed: How many there were when it was read.
        in_table: How many of them are in the table now.
        rejected: How many were turned away.
        superseded: How many lost to a row of the same key.
    """

    partition: Partition
    key: str
    landed: int
    in_table: int
    rejected: int
    superseded: int

    def __str__(self) -> str:
        return (
            f"{self.landed} rows landed, {self.in_table} are in the table, {self.rejected} were turned away, "
            f"{self.superseded} superseded: {self.unaccounted} are unaccounted for"
        )

    @property
    def unaccounted(self) -> int:
        """How many rows are nowhere; below zero where rows stand in the table that did not land."""
        if self.superseded < 0:
            return self.superseded
        return self.landed - self.in_table - self.rejected - self.superseded


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
    """An account of each file that was read, and of each other one that has fewer rows in the table than before.

    Only where rows of a file are not in the table a query is asked for them.

    Args:
        landed: Files that were read, with how many rows they have and how many were turned away.
        before: The rows in the table of files that were not read and stay, before the commit.
        after: The rows in the table of each file after it.
        read: The good rows of the files that were read, as the table holds them.
        standing: The rows of `before`.
        table: The rows of the touched partitions after the commit.
    """
    good = {_version(file): (rows, rejected) for file, (rows, rejected) in landed.items()}
    good |= {version: (rows, 0) for version, rows in before.items() if rows > after.get(version, 0)}
    short = {v for v, (rows, rejected) in good.items() if rows - rejected != after.get(v, 0)}
    from_read = {v for v in short if v not in before}
    found: dict[tuple[str, str], int] = {}
    if short:
        of_read = [_rows_of(read, from_read)] if from_read else []
        of_others = [_rows_of(standing(), short - from_read)] if short - from_read else []
        named = (rows.select(*row_key, "source_file", "source_version") for rows in (*of_read, *of_others))
        there = table().select(*row_key).distinct()
        rows = reduce(DataFrame.unionByName, named).join(there, on=list(row_key), how="left_semi")
        counted = rows.groupBy("source_file", "source_version").count().collect()
        found = {(row.source_file, row.source_version): row["count"] for row in counted}

    def account(version: Version, rows: int, rejected: int) -> Account:
        partition, key, of = version
        in_table = after.get(version, 0)
        superseded = found.get((key, of), 0) - in_table if version in short else 0
        return Account(partition, key, rows, in_table, rejected, superseded)

    return [account(version, *counts) for version, counts in sorted(good.items(), key=repr)]


def _version(file: SourceFile) -> Version:
    return file.partition, file.key, file.version


def _rows_of(rows: DataFrame, versions: set[Version]) -> DataFrame:
    wanted = rows.sparkSession.createDataFrame(
        sorted({(key, version) for _, key, version in versions}), "source_file string, source_version string"
    )
    return rows.join(F.broadcast(wanted), on=["source_file", "source_version"], how="left_semi")
