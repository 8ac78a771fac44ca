"""Inspection of files before their rows are read.

Small files are fetched as a whole, and their rows are later read from these bytes. For large files, only the header or
footer is fetched here. Does not belong here: formats (`file_format`), rows (`in_memory`, `batch`), and the choice of
small files (`small_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from dagster_tidemark.lakehouse.parsing.rows import FileBytes
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile, ReaderMissing, WatchedSource
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import (
    SPELLED_OUT,
    FileFault,
    ObjectStore,
    SourceFile,
    StoredFile,
    Unusable,
    foreign,
)
from dagster_tidemark.lakehouse.readers.format_registry import format_named, format_of
from dagster_tidemark.lakehouse.readers.small_files import fetched_whole
from dagster_tidemark.sources.feed import Feed, NewColumns
from dagster_tidemark.sources.listing import ObjectUnavailable

_THREADS = 16


@dataclass(frozen=True)
class Inspected:
    """Inspected files: shapes of readable files, and faults of the others.

    Args:
        shapes: Shape of each readable file, as far as the header or footer shows it.
        bodies: Bytes of the small readable files. Workers read the other files.
        faults: Faults of files that cannot be loaded.
        unavailable: Files that the store has but refuses to return, or whose format needs a library that this process
            lacks, with the error. Their content is unknown.
    """

    shapes: Mapping[SourceFile, Shape]
    bodies: Mapping[SourceFile, bytes]
    faults: Sequence[FileFault]
    unavailable: Mapping[SourceFile, ObjectUnavailable] = field(default_factory=dict)

    @property
    def readable(self) -> list[SourceFile]:
        """Files that can be read."""
        return list(self.shapes)

    @property
    def large(self) -> dict[SourceFile, Shape]:
        """Files that workers read."""
        return {file: shape for file, shape in self.shapes.items() if file not in self.bodies}

    def with_large(self, files: Iterable[SourceFile]) -> Inspected:
        """Return a copy that leaves these files to workers."""
        large = set(files)
        return replace(self, bodies={file: body for file, body in self.bodies.items() if file not in large})

    def new_columns(self, feed: Feed) -> dict[str, list[str]]:
        """Return the undeclared columns, each with the keys of the files that have it."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.shapes, key=lambda file: file.key):
            for name, _ in self.shapes[file].columns:
                if feed.is_new(name):
                    found.setdefault(name, []).append(file.key)
        return found

    def missing_columns(self, feed: Feed) -> dict[str, list[str]]:
        """Return the declared columns that files lack, each with the keys of these files.

        A JSON file counts only if it was inspected to its end.
        """
        found: dict[str, list[str]] = {}
        for file in sorted(self.shapes, key=lambda file: file.key):
            shape = self.shapes[file]
            names = {name for name, _ in shape.columns}
            for column in feed.columns if shape.is_complete else ():
                if column not in names:
                    found.setdefault(column, []).append(file.key)
        return found


def inspect(store: ObjectStore, feed: Feed, files: Sequence[SourceFile]) -> Inspected:
    """Inspect files: fetch small files, and the header or footer of large files.

    Raises:
        ObjectChanged, BucketUnavailable: see `ObjectStore.read`.
    """
    whole = fetched_whole(files)
    shapes: dict[SourceFile, Shape] = {}
    bodies: dict[SourceFile, bytes] = {}
    faults: list[FileFault] = []
    unavailable: dict[SourceFile, ObjectUnavailable] = {}

    def look(file: SourceFile) -> tuple[Shape | Unusable | ObjectUnavailable, bytes | None]:
        try:
            body = store.read(file) if file in whole else None
            source = StoredFile(store, file) if body is None else MemoryFile(file.key, body)
            return _shape_of(feed, source), body
        except (Unusable, ObjectUnavailable) as error:
            return error, None
        except ReaderMissing as error:  # files of other formats are loaded
            return ObjectUnavailable(file.key, str(error)), None

    readable = [file for file in files if not file.misplaced]
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        looks = dict(zip(readable, pool.map(look, readable), strict=True))
    for file in files:
        if file.misplaced:
            faults.append(FileFault(file, file.misplaced, file.message))
            continue
        found, body = looks[file]
        if isinstance(found, Shape):
            shapes[file] = found
            if body is not None:
                bodies[file] = body
        elif isinstance(found, Unusable):
            faults.append(FileFault(file, found.reason, str(found)))
        else:
            unavailable[file] = found
    return Inspected(shapes, bodies, faults, unavailable)


def _shape_of(feed: Feed, source: FileBytes) -> Shape:
    """Return the shape of a file.

    Raises:
        Unusable: the header or footer shows that the file cannot be loaded.
    """
    watched = WatchedSource(source)
    with watched.errors_raised():
        shape: Shape = format_of(source.key, feed).shape(feed, watched)
    shape = with_declared_names(feed, shape)
    names = [name for name, _ in shape.columns]
    if format_named(shape.format).has_header:  # otherwise each row has its own columns
        if not any(c in names for c in feed.columns):
            raise foreign(feed, names)
        if missing := [c for c in feed.required if c not in names]:
            raise Unusable("missing_column", f"no column {', '.join(missing)}; found {', '.join(names)}")
    if twice := sorted(c for c in feed.columns if names.count(c) > 1):
        raise Unusable("duplicate_column", f"column {', '.join(twice)} is in the header twice")
    new = [name for name in names if feed.is_new(name)]
    if new and feed.new_columns is NewColumns.FAIL:
        more = f" and {len(new) - SPELLED_OUT} more" if len(new) > SPELLED_OUT else ""
        raise Unusable(
            "new_column",
            f"not declared: {', '.join(map(repr, new[:SPELLED_OUT]))}{more}; declare such columns, or let the feed say "
            "new_columns='add' or 'ignore', and give the asset a new code_version",
        )
    return shape


def with_declared_names(feed: Feed, shape: Shape) -> Shape:
    """Return a shape with the declared names of columns in place of the names in the file.

    Raises:
        Unusable: a header has two names of one declared column.
    """
    known = feed.known_names
    named: dict[str, list[str]] = {}
    for name, _ in shape.columns:
        named.setdefault(known.get(name, name), []).append(name)
    if format_named(shape.format).has_header:
        for column, names in named.items():
            if len(set(names)) > 1:
                both = " and ".join(map(repr, dict.fromkeys(names)))
                raise Unusable("duplicate_column", f"it has {both}, which are both names of the column {column!r}")
        return replace(shape, columns=tuple((known.get(name, name), kind) for name, kind in shape.columns))
    # Each row has its own names.
    return replace(shape, columns=tuple(dict.fromkeys((known.get(name, name), kind) for name, kind in shape.columns)))
