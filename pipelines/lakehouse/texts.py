"""From the bytes of a text file to its lines and their values, as Spark's own readers see them.

Belongs here: compression, line ends, quotes. Does not belong here: what the values mean (`fetched`, `judge`).
"""

import zlib

from pipelines.lakehouse.files import Unusable


def text_of(key: str, content: bytes, *, limit: int | None = None, whole: bool = True) -> bytes:
    """The text of a file, decompressed where its name says so; at most `limit` bytes, else all there is.

    Args:
        whole: Whether `content` is the whole file; what is only its beginning may end anywhere.

    Raises:
        Unusable: the compression is broken or ends too early.
    """
    if not key.endswith(".gz"):
        return content[:limit]
    text, rest = b"", content
    try:
        while rest and (limit is None or len(text) < limit):
            stream = zlib.decompressobj(wbits=31)
            text += stream.decompress(rest, 0 if limit is None else limit - len(text))
            if whole and not stream.eof and (limit is None or len(text) < limit):
                raise Unusable("unreadable", "the gzip file is truncated: it ends before its end marker")
            rest = stream.unused_data.lstrip(b"\0")  # padding, which gzip itself skips
    except zlib.error as error:
        raise Unusable("unreadable", f"no gzip file: {error}") from error
    return text


def lines_of(text: bytes) -> list[str]:
    """The lines of a text as Spark splits them, blank ones left out."""
    decoded = text.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return [line for line in decoded.split("\n") if line.strip(_BLANKS)]


_BLANKS = "".join(map(chr, range(33)))


def fields_of(line: str) -> list[str]:
    """The values of a CSV line, as Spark's parser sees them, also where quotes make no sense."""
    if '"' not in line:
        return line.split(",")
    fields, at = [], 0
    while at <= len(line):
        value, at = _quoted_field(line, at) if line.startswith('"', at) else _plain_field(line, at)
        fields.append(value)
        at += 1
    return fields


def _plain_field(line: str, begin: int) -> tuple[str, int]:
    end = line.find(",", begin)
    end = len(line) if end < 0 else end
    return line[begin:end], end


def _quoted_field(line: str, begin: int) -> tuple[str, int]:
    """The value that begins with the quote at `begin`, and where the next delimiter stands."""
    value, at = "", begin + 1
    while (quote := line.find('"', at)) >= 0:
        value += line[at:quote]
        if not line.startswith('""', quote):
            end = next((i for i in range(quote + 1, len(line)) if line[i] > " "), len(line))
            if end == len(line) or line[end] == ",":
                return value, end
            # What follows a closing quote is the delimiter; so it was no quoted value after all.
            rest, end = _plain_field(line, quote)
            return f'"{value}{rest}', end
        value, at = value + '"', quote + 2
    return (value + line[at:] or '"'), len(line)
