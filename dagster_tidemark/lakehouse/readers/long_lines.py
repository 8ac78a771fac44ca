"""Lines that are too long for the Spark server that all runs share, found before a file is left to it.

Spark holds a line as a whole and copies it several times; one of some hundred megabytes ends the server, with all that
runs there, and of a compressed file it takes a thousandth. Does not belong here: the first line (`text_files`).
"""

from collections.abc import Iterable, Iterator

from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.text import inflated

LONGEST_LINE = 24 << 20
"""Bytes of a line; of a plain file one that is longer by a quarter may be missed. A server of 2 GB (`spark_memory`)
reads one of 32 MB and ends at one of 48; it may read several at once."""

_MOST_PER_BYTE = 1032  # of text in a byte of gzip
_PEEK = 32 << 10
_PIECE = 4 << 20


def refuse_long_lines(store: ObjectStore, file: SourceFile, charset: str, body: bytes | None) -> None:
    """See that no line of a text file is too long.

    What is compressed is read to its end, and so leaves the bucket twice if Spark reads it too. Of a plain file a
    little is read here and there.

    Raises:
        Unusable: one is, or what is compressed is damaged.
        ObjectChanged, ObjectUnavailable, BucketUnavailable: the bytes could not be had.
    """
    ends = (b"\n",) if charset.startswith("utf-16") else (b"\n", b"\r")
    if file.key.endswith(".gz"):
        if file.size * _MOST_PER_BYTE > LONGEST_LINE:
            _refuse(inflated(pieces_of(store, file) if body is None else [body]), ends)
    elif file.size > LONGEST_LINE:
        # A line that is longer by a quarter holds one of these places, and goes on behind it for as long as is allowed.
        for begin in range(0, file.size, LONGEST_LINE // 4):
            _refuse(_rest_of_line(store, file, begin, ends), ends)


def pieces_of(store: ObjectStore, file: SourceFile, begin: int = 0) -> Iterator[bytes]:
    """The bytes of a file from some place on, read in parts."""
    for at in range(begin, file.size, _PIECE):
        yield store.part(file, at, min(_PIECE, file.size - at))


def _rest_of_line(store: ObjectStore, file: SourceFile, begin: int, ends: tuple[bytes, ...]) -> Iterator[bytes]:
    first = store.part(file, begin, min(_PEEK, file.size - begin))
    yield first
    if not any(end in first for end in ends):
        for piece in pieces_of(store, file, begin + len(first)):
            yield piece
            if any(end in piece for end in ends):
                return


def _refuse(pieces: Iterable[bytes], ends: tuple[bytes, ...]) -> None:
    length = 0
    for piece in pieces:
        first = min((at for end in ends if (at := piece.find(end)) >= 0), default=len(piece))
        if length + first > LONGEST_LINE:
            raise Unusable("unreadable", f"a line of it is longer than {LONGEST_LINE} bytes")
        last = max(piece.rfind(end) for end in ends)
        length = length + len(piece) if last < 0 else len(piece) - last - 1
