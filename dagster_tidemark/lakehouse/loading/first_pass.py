"""Values that Spark observes while tasks read the files of a load: reports on parts of files, and rejected rows.

Observed values are in memory, on each task and here. So only a limited number of short rows is observed. If a load has
more rejected rows, `FirstPass.rejected` is None, and the chunks of these rows must be read a second time. Belongs here:
the observed columns. Does not belong here: the verdicts (`validation`), and the second pass (`one_pass`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.parsing.part_of_file import CHUNK_ROWS, EVERY_CHUNK, REPORT, PartReport
from dagster_tidemark.lakehouse.readers.batch import OF_FILES, FileBatch

_MOST_ROWS, _MOST_BYTES = 10_000, 16 << 20
"""Largest number of observed rows in all tasks, and their approximate largest number of bytes.

Spark Connect sends all observed values in one message, which may have 128 MB.
"""

_MOST_CHUNKS = 100_000
"""Largest number of observed chunks in all tasks. If a task has more rejected rows, its parts are read again whole."""

_ROW, _CHUNK, _WEIGHT = "_rejected_row", "_rejected_chunk", "_rejected_weight"
_OF_TASK = (1 << 33) - 1  # the lower bits of `monotonically_increasing_id`, which count the rows of a task
_OF_PLACE = 100  # bytes of an observed row without its texts
_PLACE, _TEXTS = ("_file", "_block", "_row"), ("_reason", "_message", "_content", "_record")


@dataclass(frozen=True)
class FirstPass:
    """Result of the first pass over the rows of a batch.

    Args:
        parts: The reports of the tasks on the parts of large files.
        weight: Weight of the rejected rows (`weight_of`). A second pass must reject the same rows, not only as many.
        chunks: The chunks that have rejected rows, by part: the file's number and the part's first byte. `EVERY_CHUNK`
            stands for all chunks of the part.
        rejected: The rejected rows, with their place and verdict; None if there are too many, or they are too long.
    """

    parts: Sequence[PartReport]
    weight: int
    chunks: Mapping[tuple[int, int], set[int]]
    rejected: pa.Table | None

    @property
    def most_rows(self) -> int:
        """Largest possible number of rejected rows."""
        return self.weight // _BASE


_BASE = 1 << 20


def weight_of(rows: int, places: int) -> int:
    """Return the weight of rows: one number that tells if two passes have rejected the same rows.

    Args:
        rows: Number of rows.
        places: Sum of the numbers of the rows in their parts (`_row`).
    """
    return rows * _BASE + places


def observed(judged: DataFrame, seen: Observation, tasks: int) -> DataFrame:
    """Return rows of `validation.judge`, observed while they are evaluated for the first time.

    Args:
        tasks: Number of tasks that evaluate the rows.
    """
    is_rejected = F.col("_reason").isNotNull()
    # Spark evaluates the id only for rejected rows, so it counts these rows in each task. If it counted all rows, fewer
    # rows would be observed, which `first_pass` notices.
    number = F.monotonically_increasing_id().bitwiseAND(_OF_TASK)
    rows, size = (max(1, most // max(1, tasks)) for most in (_MOST_ROWS, _MOST_BYTES))
    # Without the marks and escapes of JSON, which would have to be written for every rejected row to be counted.
    length = reduce(add, (F.coalesce(F.octet_length(text), F.lit(0)) for text in _TEXTS), F.lit(_OF_PLACE))
    is_held = number < F.least(F.lit(rows), F.floor(F.lit(size) / length))
    row = F.when(is_held, F.to_json(F.struct(*_PLACE, *_TEXTS)))
    is_counted = number < max(1, _MOST_CHUNKS // max(1, tasks))
    number_of_chunk = F.when(is_counted, (F.col("_row") / CHUNK_ROWS).cast("bigint")).otherwise(EVERY_CHUNK)
    chunk = F.struct("_file", "_block", number_of_chunk.alias("chunk"))
    # Spark compiles the expressions of columns, but interprets those of observed values.
    of_row = {_ROW: row, _CHUNK: chunk, _WEIGHT: F.col("_row") + _BASE}
    of_rejected = {name: F.when(is_rejected, value) for name, value in of_row.items()}
    return (
        judged.withColumns(of_rejected)
        .observe(
            seen,
            F.sum(_WEIGHT).alias("weight"),
            F.collect_set(_CHUNK).alias("chunks"),
            F.collect_set(_ROW).alias("rows"),
            F.collect_set(REPORT).alias("parts"),
        )
        .drop(*of_rejected)
    )


def first_pass(seen: Observation) -> FirstPass:
    """Return the result of a first pass that has ended."""
    found = seen.get
    chunks: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in found["chunks"]:
        chunks[row["_file"], row["_block"]].add(row["chunk"])
    parts = [PartReport.of_json(text) for text in found["parts"]]
    rows, weight = [json.loads(row) for row in found["rows"]], found["weight"] or 0
    is_complete = weight_of(len(rows), sum(row["_row"] for row in rows)) == weight
    return FirstPass(parts, weight, chunks, pa.Table.from_pylist(rows, schema=_COLUMNS) if is_complete else None)


_COLUMNS = pa.schema(
    [("_file", pa.int32()), ("_block", pa.int64()), ("_row", pa.int64()), *((text, pa.string()) for text in _TEXTS)]
)


def with_lineage(rejected: pa.Table, reading: FileBatch) -> pa.Table:
    """Return rejected rows with the columns of their files."""
    lineage = reading.lineage().take(rejected["_file"])
    for name in OF_FILES:
        rejected = rejected.append_column(name, lineage[name])
    return rejected
