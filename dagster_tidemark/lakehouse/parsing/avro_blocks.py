"""Container files of Avro: the header, and blocks of encoded rows between markers.

A part of a file has the blocks that begin in its bytes. Blocks are decompressed here with bounded memory, so that no
library for a codec is needed. Does not belong here: the rows in a block (`readers.avro`).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.rows import FileBytes, Part
from dagster_tidemark.lakehouse.readers.files import Unusable

MAGIC = b"Obj\x01"
LARGEST_BLOCK = 64 << 20
"""Largest number of bytes in a block, compressed or not. A task has one block in memory. Usual ones have 64 KB."""

_SYNC = 16  # bytes of the marker after each block
_WINDOW = 4 << 20  # bytes to read at once
_HEADS = (64 << 10, 16 << 20)  # bytes to read for the header: usually enough, and at most
_LONGEST_NUMBER = 10  # bytes
CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")


class Header(NamedTuple):
    """Header of a container file: schema as JSON, codec of the blocks, marker after each block, and number of bytes."""

    schema: bytes
    codec: str
    sync: bytes
    size: int


class Block(NamedTuple):
    """Block of a file: number of rows, and their bytes without compression."""

    rows: int
    content: bytes


def damaged(why: str) -> Unusable:
    """Return the fault of a file that is not a sound Avro file."""
    return Unusable("unreadable", f"not a valid Avro file, or damaged: {why}")


def header_of(source: FileBytes) -> Header:
    """Read the header of a file.

    Raises:
        Unusable: the file is no container file of Avro, ends in its header, or has a codec that is not read.
    """
    for most in _HEADS:
        found = _header(source.read(0, most))
        if found is not None:
            return found
        if most >= source.size:
            raise damaged("it ends in its header")
    raise damaged(f"its header has more than {_HEADS[-1]} bytes")


def _header(head: bytes) -> Header | None:
    """Return a file's header; None if it continues after these bytes."""
    if not head.startswith(MAGIC):
        raise damaged(f"it begins with {head[:4]!r}, and a container file of Avro with {MAGIC!r}")
    values: dict[bytes, bytes] = {}
    try:
        count, at = number_at(head, len(MAGIC))
        while count:
            if count < 0:  # the number of bytes of this group follows
                count, at = -count, number_at(head, at)[1]
            for _ in range(count):
                name, at = _bytes_at(head, at)
                values[name], at = _bytes_at(head, at)
            count, at = number_at(head, at)
    except IndexError:
        return None
    if len(head) < at + _SYNC:
        return None
    codec = values.get(b"avro.codec", b"null").decode(errors="backslashreplace")
    if codec not in CODECS:
        raise Unusable("unreadable", f"its codec {codec!r} is not read; write it with one of {', '.join(CODECS)}")
    if b"avro.schema" not in values:
        raise damaged("its header has no schema")
    return Header(values[b"avro.schema"], codec, head[at : at + _SYNC], at + _SYNC)


def number_at(text: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and the place after it.

    Raises:
        IndexError: the text ends in the number.
    """
    found = shift = 0
    while True:
        byte = text[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
        if shift >= 7 * _LONGEST_NUMBER:
            raise damaged("a number has more than 64 bits")


def number_as_bytes(number: int) -> bytes:
    """Return a number of at least 0 as Avro writes it."""
    rest, found = number << 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def _bytes_at(text: bytes, at: int) -> tuple[bytes, int]:
    length, at = number_at(text, at)
    if length < 0:
        raise damaged("a length is negative")
    if at + length > len(text):
        raise IndexError
    return text[at : at + length], at + length


@dataclass
class _Window:
    """Bytes of a source around the last request, because one request for each small block would take long."""

    source: FileBytes
    begin: int = 0
    held: bytes = b""

    def read(self, begin: int, length: int) -> bytes:
        at = begin - self.begin
        if at < 0 or at + length > len(self.held):
            self.begin, self.held, at = begin, self.source.read(begin, max(length, _WINDOW)), 0
        return self.held[at : at + length]


def blocks_of(source: FileBytes, header: Header, part: Part) -> Iterator[Block]:
    """Return the blocks that begin in a part of a file, in order.

    Raises:
        Unusable: a block is damaged, too large, or the file ends in it.
    """
    window = _Window(source)
    at = _first_block(window, header, part)
    while at < min(part.end, source.size):
        head = window.read(at, 2 * _LONGEST_NUMBER)
        try:
            rows, begin = number_at(head, 0)
            size, begin = number_at(head, begin)
        except IndexError:
            raise damaged("it ends in a block") from None
        if size > LARGEST_BLOCK:
            raise Unusable("unreadable", f"it has a block of {size} bytes; at most {LARGEST_BLOCK} are read")
        if rows < 0 or size < 0:
            raise damaged(f"a block has {rows} rows in {size} bytes")
        body = window.read(at + begin, size + _SYNC)
        if len(body) < size + _SYNC:
            raise damaged("it ends in a block")
        if body[size:] != header.sync:
            raise damaged(f"the marker after the block at byte {at} is missing")
        content = _decompressed(header.codec, body[:size])
        if rows > len(content):  # otherwise a few bytes could claim to have billions of empty rows
            raise damaged(f"a block has {rows} rows in {len(content)} bytes")
        yield Block(rows, content)
        at += begin + size + _SYNC


def _first_block(window: _Window, header: Header, part: Part) -> int:
    """Return the place of the first block that begins in a part or after it."""
    if part.begin <= header.size:
        return header.size
    at, size = part.begin - _SYNC, window.source.size
    while at < min(part.end, size):
        piece = window.read(at, min(_WINDOW, size - at))
        found = piece.find(header.sync)
        if found >= 0:
            return at + found + _SYNC
        at += max(1, len(piece) - _SYNC + 1)
    return size


def _decompressed(codec: str, body: bytes) -> bytes:
    try:
        found = _expanded(codec, body)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise damaged(f"a block is no {codec}: {error}") from error
    if len(found) > LARGEST_BLOCK:
        raise Unusable("unreadable", f"it has a block of more than {LARGEST_BLOCK} bytes, which is not read")
    return found


def _expanded(codec: str, body: bytes) -> bytes:
    """Return the content of a block, cut after `LARGEST_BLOCK` bytes and one more."""
    most = LARGEST_BLOCK + 1
    match codec:
        case "deflate":
            stream = zlib.decompressobj(wbits=-15)
            found = stream.decompress(body, most)
            if not stream.eof and len(found) < most:
                raise damaged("a block is cut")
            return found
        case "zstandard":
            with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as unpacked:
                return bytes(unpacked.read(most))
        case "snappy":
            return _unsnapped(body, most)
        case "bzip2" | "xz":
            other = bz2.BZ2Decompressor() if codec == "bzip2" else lzma.LZMADecompressor()
            found = other.decompress(body, most)
            if not other.eof and len(found) < most:
                raise damaged("a block is cut")
            return found
    return body


def _unsnapped(body: bytes, most: int) -> bytes:
    """Return the content of a block of Snappy, after which a checksum follows."""
    packed, checksum = body[:-4], body[-4:]
    size = shift = 0
    for byte in packed[:5]:  # the size of the content, in another form than Avro's numbers
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size >= most:
        return b"\0" * most
    found: bytes = pa.Codec("snappy").decompress(packed, decompressed_size=size, asbytes=True)
    if zlib.crc32(found).to_bytes(4, "big") != checksum:
        raise damaged("the checksum of a block differs")
    return found
