"""A kind of file: its generator, and its rows as a person reads them.

Does not belong here: the kinds (`text_kinds`, `json_kinds`, `parquet_kinds`, `orc_kinds`, `avro_kinds`,
`fixed_width_kinds`). No module of this folder imports the
loader: rows are written from the number of the row alone.
"""

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Line = Callable[[int, str], str]
Row = Callable[[int, str], tuple[Any, ...]]
SIZES = {"small": 7, "large": 12_000}
"""Rows of each size. A large file has more than 1 MB, also if it is compressed."""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        name: What is special about it, as the table in the docs names it.
        columns: The declared columns.
        write: The bytes of a file with as many good rows. `pad` gives the text that makes a file large.
        row: The values of a good row by its number. The first column is that number.
        options: Further settings of the feed.
        key: The file's name.
        odd: Words in the message of each rejected row, in the order of the file.
        refused: Words in the message if the whole file is refused; ` or ` separates the words of two sizes.
    """

    name: str
    columns: Mapping[str, str]
    write: Callable[[int, Callable[[int], str]], bytes]
    row: Row = lambda n, pad: (n,)
    options: Mapping[str, Any] = field(default_factory=dict)
    key: str = "f.csv"
    odd: Sequence[str] = ()
    refused: str = ""

    def is_refused_with(self, message: str) -> bool:
        """True if this message refuses the whole file as expected."""
        return bool(self.refused) and any(words in message for words in self.refused.split(" or "))

    def file(self, size: str) -> bytes:
        """Return the bytes of a file of a size."""
        return self.write(SIZES[size], PADS[size])

    def rows(self, size: str) -> list[tuple[Any, ...]]:
        """Return the good rows of a file of a size."""
        return [] if self.refused else [self.row(n, PADS[size](n)) for n in range(SIZES[size])]

    @property
    def outcome(self) -> str:
        """What becomes of a file, in the words of the table."""
        if self.refused:
            return "refused: " + self.refused
        if not self.odd:
            return "all rows"
        return f"all good rows; rejected: {'; '.join(dict.fromkeys(self.odd))}"


def beside_number_and_text(
    file_of: Callable[..., bytes], values: Callable[[int], Any], patch: Callable[[bytes], bytes], **writing: Any
) -> Callable[[int, Callable[[int], str]], bytes]:
    """Return the `write` of a kind: a column of values beside the row's number and the pad."""

    def write(count: int, pad: Callable[[int], str]) -> bytes:
        numbers = pa.array(range(count), pa.int64())
        return patch(file_of({"n": numbers, "text": [pad(n) for n in range(count)], "value": values(count)}, **writing))

    return write


def _long(n: int) -> str:
    return hashlib.sha512(str(n).encode()).hexdigest() + hashlib.sha512(f"{n}+".encode()).hexdigest()


PADS: Mapping[str, Callable[[int], str]] = {"small": lambda n: f"p{n}", "large": _long}


def text(
    name: str,
    columns: Mapping[str, str],
    line: Line,
    row: Row,
    *,
    head: str = "",
    foot: str = "",
    odd: Sequence[tuple[str, str]] = (),
    end: str = "\n",
    charset: str = "utf-8",
    pack: Callable[[bytes], bytes] = bytes,
    key: str = "f.csv",
    refused: str = "",
    **options: Any,
) -> Kind:
    """Return a kind of text file: a head, odd lines, good lines, and a foot.

    Args:
        odd: Lines that are rejected, each with words in the message.
        end: The line end. `\\n` in the other arguments stands for it, but not in `line`.
    """

    def write(count: int, pad: Callable[[int], str]) -> bytes:
        above, below = head.replace("\n", end), foot.replace("\n", end)
        lines = [*(bad for bad, _ in odd), *(line(n, pad(n)) for n in range(count))]
        return pack((above + "".join(one + end for one in lines) + below).encode(charset))

    return Kind(name, columns, write, row, options, key, [why for _, why in odd], refused)


def packed(body: bytes) -> bytes:
    """Return a text as one gzip file."""
    return gzip.compress(body, 1)


def members(body: bytes) -> bytes:
    """Return a text as a gzip file with three members, cut inside lines."""
    third = len(body) // 3
    return b"".join(gzip.compress(body[n * third : (n + 1) * third if n < 2 else None], 1) for n in range(3))
