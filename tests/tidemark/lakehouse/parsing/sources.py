"""Files in memory, and how they are cut."""

from collections.abc import Iterator
from dataclasses import dataclass

from dagster_tidemark.lakehouse.parsing.rows import Part


@dataclass
class InMemory:
    """A file whose bytes are in hand; `read_bytes` counts what was asked for."""

    key: str
    body: bytes
    read_bytes: int = 0

    @property
    def size(self) -> int:
        return len(self.body)

    def read(self, begin: int, length: int) -> bytes:
        found = self.body[begin : begin + length]
        self.read_bytes += len(found)
        return found


def cut(size: int, number: int) -> Iterator[Part]:
    """A file of some bytes in so many parts of about the same size."""
    length = max(1, -(-size // number))
    for begin in range(0, max(size, 1), length):
        yield Part(begin, begin + length)
