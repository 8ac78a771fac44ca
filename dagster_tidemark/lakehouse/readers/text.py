"""From the bytes of a text file to its lines and records: the exact rule, record by record.

Belongs here: compression, encodings, line ends, quotes, where a record ends, and the words for a fault of a line. Does
not belong here: reading many lines at once (`parsing`), and the meaning of values (`validation`).
"""

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dagster_tidemark.lakehouse.readers.files import Unusable

LONGEST_RECORD = 10_000
"""Lines of one record. What is longer is a quote or a bracket that nobody closed; only so much of it is kept."""

TERMINATED = r'^(?:"[^"]*+(?:""[^"]*+)*+"[^,]*+|(?!")[^,]*+)(?:,(?:"[^"]*+(?:""[^"]*+)*+"[^,]*+|(?!")[^,]*+))*+$'
"""A CSV line whose quotes are closed. Possessive, as Java's stack ends where a long line would go back."""

JSON_STRING = r'"(?:[^"\\]|\\.)*+"?'

NO_ROW = "the line is no row of this file"
NOT_CLOSED = "unterminated quote: it is not closed in its line; a feed with line breaks in quotes says multiline=True"
NEVER_CLOSED = f"unterminated quote: it is not closed before the file ends, nor within {LONGEST_RECORD} lines"
TRUNCATED = "the gzip file is truncated: it ends before its end marker"
HALF_A_CHARACTER = "not valid Unicode: a \\u escape is half of a character"
NO_END = f"unterminated JSON: it does not end before the file does, nor within {LONGEST_RECORD} lines"

_PIECE = 4 << 20
is_terminated = re.compile(TERMINATED).match
_LINE_ENDS = re.compile(b"\r\n|\r|\n")
_IN_QUOTES = re.compile(JSON_STRING)


class Record(NamedTuple):
    """A line, or the lines that quotes or brackets hold together; and what is wrong with it as text."""

    text: str
    fault: str | None = None


def encoding_name(charset: str) -> str:
    """Return the name of an encoding in messages."""
    return "UTF-8" if charset == "utf-8" else charset


def not_valid(charset: str) -> str:
    """What is said of a line that is not in the encoding of its feed."""
    name = encoding_name(charset)
    return f"not valid {name}: such bytes are shown as \\xNN; a feed in another encoding says encoding=..."


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
                raise Unusable("unreadable", TRUNCATED)
            rest = stream.unused_data.lstrip(b"\0")  # padding, which gzip itself skips
    except zlib.error as error:
        raise Unusable("unreadable", f"no gzip file: {error}") from error
    return text


def inflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """A gzip file's text, from its bytes in parts, in pieces of some megabytes.

    Raises:
        Unusable: the compression is broken or ends too early.
    """
    stream, begun = zlib.decompressobj(wbits=31), False
    try:
        for rest in parts:
            while rest := rest.lstrip(b"\0") if stream.eof else rest:  # padding, which gzip itself skips
                if stream.eof:  # another member
                    stream = zlib.decompressobj(wbits=31)
                begun = True
                yield stream.decompress(rest, _PIECE)
                rest = stream.unused_data if stream.eof else stream.unconsumed_tail
    except zlib.error as error:
        raise Unusable("unreadable", f"no gzip file: {error}") from error
    if begun and not stream.eof:
        raise Unusable("unreadable", TRUNCATED)


def charset_of(encoding: str, text: bytes) -> str:
    """How a text of a feed is encoded: of UTF-16 its mark says which; without one it is as Windows writes it."""
    if encoding != "utf-16":
        return encoding
    return "utf-16-be" if text.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"


def records_of(text: bytes, *, encoding: str, multiline: bool, json: bool) -> list[Record]:
    """The records of a text in their order, the header of a CSV among them, blank ones left out.

    Args:
        encoding: The feed's.
        multiline: Whether a record may have several lines; else a line is a record.
    """
    lines = lines_of(text, charset_of(encoding, text))
    if multiline:
        lines = _documents_of(lines) if json else _quoted_together(lines)
    elif not json:
        lines = [
            line if line.fault or '"' not in line.text or is_terminated(line.text) else Record(line.text, NOT_CLOSED)
            for line in lines
        ]
    return [line for line in lines if line.text.strip(BLANKS)]


BLANKS = "".join(map(chr, range(33)))


def lines_of(text: bytes, charset: str) -> list[Record]:
    """The lines of a text, each with what is wrong with it; the last is empty if the text ends with a line end."""
    text = without_mark(text, charset)
    try:
        return [Record(line) for line in _split(text.decode(charset))]
    except UnicodeDecodeError:
        return lines_with_faults(text, charset)


def without_mark(text: bytes, charset: str) -> bytes:
    """A text without the mark at its beginning that says how it is encoded."""
    return text.removeprefix("\ufeff".encode(charset)) if charset.startswith("utf") else text


def _split(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def lines_with_faults(text: bytes, charset: str) -> list[Record]:
    """The lines of a text without a mark, of which some are not in its encoding."""
    fault = not_valid(charset)
    if charset.startswith("utf-16"):
        whole = text[: len(text) // 2 * 2].decode(charset, errors="surrogatepass")
        lines = [line.encode(charset, errors="surrogatepass") for line in _split(whole)]
        lines[-1] += text[len(text) // 2 * 2 :]
    else:
        lines = _LINE_ENDS.split(text)
    found = []
    for line in lines:
        try:
            found.append(Record(line.decode(charset)))
        except UnicodeDecodeError:
            found.append(Record(_shown(line, charset), fault))
    return found


def _shown(line: bytes, charset: str) -> str:
    """Bytes that are no text, so that a person can read them."""
    if charset.startswith("utf-16"):
        return line.decode("latin-1").replace("\0", "")
    return line.decode(charset, errors="backslashreplace")


def _quoted_together(lines: Sequence[Record]) -> list[Record]:
    """CSV records: a line goes on in the next one while a quote is open."""
    records: list[Record] = []
    held: list[Record] = []
    for line in lines:
        # Within quotes a line is as one that begins with a quote.
        is_open = not is_terminated(f'"{line.text}' if held else line.text)
        held.append(line)
        if not is_open:
            records.append(joined(held, None))
            held = []
    return [*records, joined(held, NEVER_CLOSED)] if held else records


def joined(lines: Sequence[Record], fault: str | None, too_long: str = NEVER_CLOSED) -> Record:
    if len(lines) > LONGEST_RECORD:
        lines, fault = lines[:LONGEST_RECORD], too_long
    faults = [line.fault for line in lines if line.fault]
    return Record("\n".join(line.text for line in lines), faults[0] if faults else fault)


def _documents_of(lines: Sequence[Record]) -> list[Record]:
    """JSON documents: a line goes on in the next one while a bracket is open. Of a list each element is one."""
    lines, in_list, ends = _without_brackets([line for line in lines if line.text.strip(BLANKS)])
    records: list[Record] = []
    held: list[Record] = []
    depth = 0
    for line in lines:
        held.append(line)
        depth = max(0, depth + opened(line.text))
        if not depth:
            records.append(joined(held, None, NO_END))
            held = []
    if held:
        records.append(joined(held, NO_END, NO_END))
    if not in_list:
        return records
    if not ends and records:
        records[-1] = Record(records[-1].text, NO_END)
    return [Record(in_a_list(r.text), r.fault) for r in records if r.text.strip(BLANKS).strip(",")]


def in_a_list(text: str) -> str:
    """A piece of a list, which may be several elements, as a list of its own."""
    return f"[{text.strip(BLANKS).removeprefix(',').removesuffix(',')}]"


def _without_brackets(lines: list[Record]) -> tuple[list[Record], bool, bool]:
    """Lines without the brackets of a list around all of them; whether there is such a list, and whether it ends."""
    if not lines or not is_list(lines[0].text):
        return lines, False, True
    lines = [Record(lines[0].text.replace("[", "", 1), lines[0].fault), *lines[1:]]
    last = lines[-1].text.rstrip(BLANKS)
    return [*lines[:-1], Record(last.removesuffix("]"), lines[-1].fault)], True, last.endswith("]")


def is_list(text: str) -> bool:
    """Whether a JSON text begins a list."""
    return text.lstrip(BLANKS).startswith("[")


def is_over_lines(key: str, text: bytes, charset: str) -> bool:
    """Whether a JSON file is written over several lines: its first line is an opening bracket and nothing else.

    No row is such a line, so what follows belongs to it; unless the file's name says that a line is a row.
    """
    if key.removesuffix(".gz").endswith(".jsonl"):
        return False
    first = next((line.text.strip(BLANKS) for line in lines_of(text, charset) if line.text.strip(BLANKS)), "")
    return first in ("[", "{")


def opened(line: str) -> int:
    """How many more brackets a line opens than it closes."""
    bare = _IN_QUOTES.sub("", line)
    return sum(bare.count(c) for c in "{[") - sum(bare.count(c) for c in "}]")


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
