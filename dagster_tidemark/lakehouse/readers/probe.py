"""Looking into files before they are read: a header, a footer, or the whole of a small file.

A small file is fetched whole, once, and its rows are taken from those bytes: whatever is wrong with it harms nobody
else. Of a large one the header or footer is fetched; Spark's workers read the rest. Does not belong here: what a
format's files look like (`file_format`), how the rows are made (`in_memory`, `batch`), and which file is small
(`small_files`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import (
    SPELLED_OUT,
    FileFault,
    ObjectStore,
    SourceFile,
    Unusable,
    foreign,
)
from dagster_tidemark.lakehouse.readers.format_registry import format_named, format_of
from dagster_tidemark.lakehouse.readers.remote_file import refusals_raised
from dagster_tidemark.lakehouse.readers.small_files import fetched_whole
from dagster_tidemark.sources.feed import Feed, NewColumns
from dagster_tidemark.sources.listing import ObjectUnavailable

_THREADS = 16


@dataclass(frozen=True)
class Inspected:
    """What can be read, and what cannot: small files with their bytes, large ones, and faults.

    `unavailable` are files that are there and not given, with what S3 says: no verdict on them.
    """

    fetched: Mapping[SourceFile, tuple[Shape, bytes]]
    large: Mapping[SourceFile, Shape]
    faults: Sequence[FileFault]
    unavailable: Mapping[SourceFile, ObjectUnavailable] = field(default_factory=dict)

    @property
    def readable(self) -> list[SourceFile]:
        """Every file that has rows to read, as far as its header says."""
        return [*self.fetched, *self.large]

    def new_columns(self, feed: Feed) -> dict[str, list[str]]:
        """Columns that the feed does not declare, with the files that have them."""
        found: dict[str, list[str]] = {}
        shapes = [*((f, s) for f, (s, _) in self.fetched.items()), *self.large.items()]
        for file, shape in sorted(shapes, key=lambda pair: pair[0].key):
            for name, _ in shape.columns:
                if name not in feed.columns:
                    found.setdefault(name, []).append(file.key)
        return found

    def missing_columns(self, feed: Feed) -> dict[str, list[str]]:
        """Return the declared columns that files lack, with these files. A JSON file counts only if read to its end."""
        found: dict[str, list[str]] = {}
        shapes = [*((f, s) for f, (s, _) in self.fetched.items()), *self.large.items()]
        for file, shape in sorted(shapes, key=lambda pair: pair[0].key):
            names = {name for name, _ in shape.columns}
            for column in feed.columns if shape.is_complete else ():
                if column not in names:
                    found.setdefault(column, []).append(file.key)
        return found


def inspect(store: ObjectStore, feed: Feed, files: Sequence[SourceFile]) -> Inspected:
    """Look into each of these files.

    Raises:
        ObjectChanged, BucketUnavailable: see `ObjectStore.read`.
    """
    whole = fetched_whole(files)

    def _look(file: SourceFile) -> tuple[SourceFile, Shape | FileFault | ObjectUnavailable, bytes | None]:
        try:
            return _looked_into(file)
        except ObjectUnavailable as refusal:
            return file, refusal, None

    def _looked_into(file: SourceFile) -> tuple[SourceFile, Shape | FileFault, bytes | None]:
        if file.misplaced:
            return file, FileFault(file, file.misplaced, file.message), None
        body = store.read(file) if file in whole else None
        try:
            read_as = format_of(file.key)
            with refusals_raised(store) as asked:
                shape = _checked(read_as.shape(asked, feed, file, body), feed)
            return file, shape, body
        except Unusable as unusable:
            return file, FileFault(file, unusable.reason, str(unusable)), None

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        looked = list(pool.map(_look, files))
    fetched = {file: (shape, body) for file, shape, body in looked if isinstance(shape, Shape) and body is not None}
    return Inspected(
        fetched,
        {file: shape for file, shape, _ in looked if isinstance(shape, Shape) and file not in fetched},
        [fault for _, fault, _ in looked if isinstance(fault, FileFault)],
        {file: refusal for file, refusal, _ in looked if isinstance(refusal, ObjectUnavailable)},
    )


def _checked(shape: Shape, feed: Feed) -> Shape:
    names = [name for name, _ in shape.columns]
    has_header = format_named(shape.format).has_header
    if has_header and not any(c in names for c in feed.columns):
        raise foreign(feed, names)
    # Without a header a column may come in any row, and is missing row by row.
    missing = [c for c in feed.required if c not in names] if has_header else []
    if missing:
        raise Unusable("missing_column", f"no column {', '.join(missing)}; found {', '.join(names)}")
    twice = sorted(c for c in feed.columns if names.count(c) > 1)
    if twice:
        raise Unusable("duplicate_column", f"column {', '.join(twice)} stands there twice")
    new = [name for name in names if name not in feed.columns]
    if new and feed.new_columns is NewColumns.FAIL:
        more = f" and {len(new) - SPELLED_OUT} more" if len(new) > SPELLED_OUT else ""
        raise Unusable(
            "new_column",
            f"not declared: {', '.join(map(repr, new[:SPELLED_OUT]))}{more}; declare such columns, or let the feed say "
            "new_columns='add' or 'ignore', and give the asset a new code_version",
        )
    return shape
