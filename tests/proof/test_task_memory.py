"""Memory of one process that reads large files as Spark's workers do, one part of a file after another."""

import gzip
import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.parsing.part_of_file import PartOfFile, read_part
from dagster_tidemark.lakehouse.parsing.spark_tasks import TASK_BYTES
from dagster_tidemark.lakehouse.readers.batch import declared_by
from dagster_tidemark.lakehouse.readers.format_registry import format_of
from dagster_tidemark.sources.feed import Feed, Grain
from tests.proof.conftest import Report
from tests.proof.test_memory import most_megabytes

COLUMNS = {"id": "bigint", "city": "string", "price": "decimal(12,2)", "at": "timestamp", "note": "string"}
FEED = Feed("lines", "lines/", Grain.DAY, COLUMNS)
ROWS, BATCH = 3_000_000, 100_000
USUAL_MB = 400
"""Memory of a process, as docs/production.md states it, also for the other files in `FILES`."""


class DiskFile:
    """Source of bytes on a disk. A worker reads ranges of an object in the same way."""

    def __init__(self, path: Path) -> None:
        self.path, self.key, self.size = path, path.name, path.stat().st_size

    def read(self, begin: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(length)


def _batch(begin: int, note: int = 40) -> pa.Table:
    dice = np.random.default_rng(begin)
    ids = np.arange(begin, begin + BATCH)
    letters = dice.integers(97, 123, (BATCH, note), dtype=np.uint8)
    return pa.table(
        {
            "id": ids,
            "city": pa.array([f"city {n % 997}" for n in ids]),
            "price": pa.array([f"{n % 10_000}.{n % 100:02}" for n in ids]),
            "at": pa.array([datetime(2026, 11, 1 + n % 28, n % 24).isoformat() for n in ids]),
            "note": pa.array(letters.view(f"S{note}").ravel().astype(str)),
        }
    )


def _batches() -> list[int]:
    return [*range(0, ROWS, BATCH)]


def _csv(path: Path) -> int:
    with pc.CSVWriter(str(path), _batch(0).schema) as writer:
        for begin in _batches():
            writer.write_table(_batch(begin))
    return ROWS


def _gzip(path: Path) -> int:
    plain = path.with_suffix("")
    count = _csv(plain)
    with plain.open("rb") as file, gzip.open(path, "wb", compresslevel=1) as packed:
        while piece := file.read(1 << 20):
            packed.write(piece)
    plain.unlink()
    return count


def _json(path: Path) -> int:
    with path.open("w") as file:
        for begin in _batches():
            file.writelines(json.dumps(row) + "\n" for row in _batch(begin).to_pylist())
    return ROWS


def _long_lines(path: Path) -> int:
    with path.open("w") as file:
        file.write(",".join(COLUMNS) + "\n")
        file.writelines(f"{n},city,1.25,2026-11-01T00:00:00,{'x' * (20 << 20)}\n" for n in range(8))
    return 8


def _parquet(path: Path, *, rows_of_group: int) -> int:
    table = pa.concat_tables(_batch(begin) for begin in _batches())
    pq.write_table(table, path, row_group_size=rows_of_group, use_dictionary=["city"], compression="snappy")
    return ROWS


def _one_group(path: Path) -> int:
    return _parquet(path, rows_of_group=ROWS)


def _usual_groups(path: Path) -> int:
    return _parquet(path, rows_of_group=1 << 20)


def _repeated_text(path: Path) -> int:
    table = _batch(0).set_column(4, "note", pa.repeat("y" * 20_000, BATCH))
    pq.write_table(table, path, compression="zstd")
    return BATCH


def _orc(path: Path) -> int:
    with po.ORCWriter(str(path), stripe_size=64 << 20, compression="zstd") as writer:
        for begin in _batches():
            writer.write(_batch(begin))
    return ROWS


FILES: dict[str, tuple[str, Callable[[Path], int], int]] = {
    "CSV": ("a.csv", _csv, USUAL_MB),
    "CSV, compressed": ("a.csv.gz", _gzip, USUAL_MB),
    "CSV, lines of 20 MB": ("long.csv", _long_lines, 1_200),
    "JSON lines": ("a.jsonl", _json, USUAL_MB),
    "Parquet, row groups of a million rows": ("usual.parquet", _usual_groups, USUAL_MB),
    "Parquet, one row group": ("one.parquet", _one_group, 500),
    "Parquet, 2 GB of one repeated text": ("repeated.parquet", _repeated_text, 900),
    "ORC, stripes of 64 MB": ("a.orc", _orc, 700),
}


@pytest.mark.timeout(3600)
def test_worker_reads_large_files_in_the_memory_that_the_documents_state(tmp_path: Path, report: Report) -> None:
    found: dict[str, dict[str, Any]] = {}
    context = multiprocessing.get_context("spawn")
    for name, (file, write, most_allowed) in FILES.items():
        path = tmp_path / file
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            expected = pool.submit(write, path).result()
        # In a process of its own, because the kernel reports only the most that a process ever had.
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            rows, before, most = pool.submit(_read, path).result()
        found[name] = {
            "MB": path.stat().st_size >> 20,
            "rows": rows,
            "before": before,
            "most": most,
            "allowed": most_allowed,
        }
        print(name, found[name], flush=True)
        assert rows == expected, name
        path.unlink()
    report("task-memory", {"what": "memory of a process that reads a file, MB, before and at most", "files": found})
    assert not {name: of for name, of in found.items() if of["most"] > of["allowed"]}


def _read(path: Path) -> tuple[int, int, int]:
    """Read all parts of a file. Return its rows, and the most memory of this process before and afterwards, in MB."""
    source, before = DiskFile(path), most_megabytes()
    form, declared = format_of(source.key), declared_by(FEED)
    shape = form.shape(FEED, source)
    count = 0
    for part in form.parts(shape, source.key, source.size, TASK_BYTES):
        for _, report in read_part(
            declared, PartOfFile(0, source.key, source.size, "", shape, form.rows_of, part), source
        ):
            assert not report.fault, report.fault
        count += report.sound_rows
    return count, before, most_megabytes()
