"""Files that Spark's workers read: cut into tasks, parsed there, as a frame of typed rows.

Spark is the scheduler: a task reads some parts of files with ranged requests and gives batches of rows. What is wrong
with a file is told in its notes and fails no task, so one bad file harms only itself. Does not belong here: which files
these are, and which rows are good.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_tidemark.lakehouse.parsing import kernels
from dagster_tidemark.lakehouse.parsing.remote import RemoteFile, Store, StoreFault
from dagster_tidemark.lakehouse.parsing.rows import Declared, Part, RowsOf, Seen
from dagster_tidemark.lakehouse.parsing.typed_batch import RECORD, TEXTS, WHY, typed_columns
from dagster_tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, Unusable

TASK_BYTES = 32 << 20
"""About how much of files a task reads: a cluster has some for each core, and a file or two fit into one."""

NOTE = "_note"

CHUNK_ROWS = 256
"""Rows of a part that are looked at again together (`Scan.chosen`)."""

Chunks = Mapping[tuple[int, int], Collection[int]]
"""Chunks of rows: by number of the file and beginning of the part, the numbers of the chunks in it."""


@dataclass(frozen=True)
class PartOfFile:
    """What a task reads of a file. `file` is its number in the load."""

    file: int
    key: str
    size: int
    etag: str
    shape: Any
    rows_of: RowsOf
    part: Part


@dataclass(frozen=True)
class Note:
    """What a task has to say of a part that it has read.

    Args:
        file: The file's number.
        block: Where the part begins.
        rows: How many rows it gave, those with faults among them.
        fault: Reason and message why the file cannot be taken.
        refused: Why its bytes could not be had, which says nothing of the file.
        objects: Rows without a fault.
        others: `Rows.others` of all its rows, where no row has a declared column.
    """

    file: int
    block: int
    rows: int = 0
    fault: tuple[str, str] | None = None
    refused: str | None = None
    objects: int = 0
    others: Sequence[str] | None = None


class FileNotRead(Exception):
    """A file ended a job. Its notes say why (`Scan.is_strict`)."""


@dataclass(frozen=True)
class Scan:
    """Files of one load as workers read them.

    Args:
        declared: What the feed says of their content.
        store: Where they lie.
        tasks: What each task reads, in the order in which it does.
        is_strict: Whether a file that cannot be read ends the job (`FileNotRead`). If not, its note says why.
        chosen: The rows to give, without notes; None for all rows.
        with_records: Whether rows come with what stands in the file. They are half of the bytes that cross into Spark.
    """

    declared: Declared
    store: Store
    tasks: Sequence[Sequence[PartOfFile]]
    is_strict: bool
    chosen: Chunks | None = None
    with_records: bool = True

    def ddl(self) -> str:
        """The columns of the frame, in Spark's words."""
        declared = ", ".join(f"`{name}` {kind}" for name, kind in self.declared.columns.items())
        return (
            f"_file int, _block bigint, _row bigint, {declared}, {TEXTS} array<string>, {RECORD} string, {WHY} string, "
            f"{NOTE} string"
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a worker does. The numbers of its tasks are in the first column."""
        system = self.store.connect()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self.tasks[number]:
                    yield from self._read(system, part)

    def _read(self, system: Any, part: PartOfFile) -> Iterator[pa.RecordBatch]:
        seen = Seen()
        fault = refused = source = None
        try:
            source = RemoteFile(system, self.store.bucket, part.key, part.size, part.etag)
            for found in part.rows_of(self.declared, part.shape, source, part.part):
                places = np.arange(seen.rows, seen.rows + found.count)
                seen.add(found)
                if self.chosen is not None:
                    mask = np.isin(places // CHUNK_ROWS, list(self.chosen[part.file, part.part.begin]))
                    places, found = places[mask], found.where(pa.array(mask))
                if found.count:
                    yield self._batch(part, places, typed_columns(self.declared.columns, found))
            if source.refusal:  # a library has passed over it
                raise source.refusal
        except LIMITS_OF_ARROW:
            raise
        except Exception as caught:
            # A library may report a refusal as damage.
            error = source.refusal if source and source.refusal else caught
            if self.is_strict:
                raise FileNotRead(f"{FileNotRead.__name__} {part.key}: {error}") from error
            if isinstance(error, StoreFault):
                refused = str(error)
            elif isinstance(error, Unusable):
                fault = (error.reason, str(error))
            else:  # the bytes were given: what they hold is all that can be wrong
                fault = ("unreadable", f"it cannot be read: {type(error).__name__}: {error}")
        if self.chosen is not None:
            return
        others = None if seen.others is None else list(seen.others)
        yield self._noted(Note(part.file, part.part.begin, seen.rows, fault, refused, seen.objects, others))

    def _batch(self, part: PartOfFile, places: npt.NDArray[np.int64], columns: dict[str, pa.Array]) -> pa.RecordBatch:
        count = len(places)
        if not self.with_records:
            columns = {**columns, RECORD: pa.nulls(count, pa.string())}
        arrays = [
            pa.array(np.full(count, part.file, np.int32)),
            pa.array(np.full(count, part.part.begin, np.int64)),
            pa.array(places),
            *(columns[name] for name in (*self.declared.columns, TEXTS, RECORD, WHY)),
            pa.nulls(count, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema())

    def _noted(self, note: Note) -> pa.RecordBatch:
        schema = self._schema()
        said = {"_file": note.file, "_block": note.block, NOTE: json.dumps(asdict(note))}
        return pa.RecordBatch.from_arrays([pa.array([said.get(f.name)], f.type) for f in schema], schema=schema)

    def _schema(self) -> pa.Schema:
        declared = [(name, kernels.arrow_type(kind)) for name, kind in self.declared.columns.items()]
        place = [("_file", pa.int32()), ("_block", pa.int64()), ("_row", pa.int64())]
        behind = [(TEXTS, pa.list_(pa.string())), (RECORD, pa.string()), (WHY, pa.string()), (NOTE, pa.string())]
        return pa.schema([*place, *declared, *behind])


def note_of(text: str) -> Note:
    """A note as a task has written it."""
    said = json.loads(text)
    return Note(**{**said, "fault": said["fault"] and tuple(said["fault"])})


def tasks_of(parts: Iterable[PartOfFile], of_bytes: int = TASK_BYTES) -> list[list[PartOfFile]]:
    """Parts of files put together to tasks, in their order."""
    tasks: list[list[PartOfFile]] = []
    held = of_bytes
    for part in parts:
        size = min(part.part.end, part.size) - part.part.begin
        if held + size > of_bytes:
            tasks.append([])
            held = 0
        tasks[-1].append(part)
        held += size
    return tasks
