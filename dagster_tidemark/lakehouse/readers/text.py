"""The exact rule for lines of text files, line by line.

Belongs here: compression, encodings, line ends, brackets, and messages of faulty lines. Does not belong here: values
of CSV (`parsing.csv_dialect`), many lines at once (`parsing`), and records of several lines (`parsing.records`).
"""

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import AnyStr, NamedTuple

from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.sources.file_endings import GZIP, is_compressed

LONGEST_RECORD = 10_000
"""Largest number of lines in a record. In a longer record a quote or bracket is never closed; the rest is dropped."""

NO_ROW = "the line is no row of this file"
NO_OBJECT = f"{NO_ROW}: expected a JSON object"
NOT_CLOSED = "unterminated quote: it is not closed in its line; a feed with line breaks in quotes says multiline=True"
CONTINUES = "the line continues a value of an earlier line, whose quote is open; let the feed say multiline=True"
NEVER_CLOSED = f"unterminated quote: it is not closed before the file ends, nor within {LONGEST_RECORD} lines"
TRUNCATED = "the gzip file is truncated: it ends before its end marker"
HALF_A_CHARACTER = "not valid Unicode: a \\u escape is half of a character"
NO_END = f"unterminated JSON: it does not end before the file does, nor within {LONGEST_RECORD} lines"

BLANKS = "".join(map(chr, range(33)))

_PIECE = 4 << 20
_LINES = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_LINES_OF_BYTES = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")
_UTF8_LETTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")
_LIKELY_IN_UTF8 = re.compile("[\u0100-\u017f\u0800-\U0010ffff]|[^\x00-\x7f]{2}")
"""Latin letters, letters of three or four bytes in UTF-8, and two letters without a letter of ASCII between them."""
_IN_QUOTES = re.compile(r'"(?:[^"\\]|\\.)*+"?')


class TextRecord(NamedTuple):
    """Text of a record, and its fault. It has several lines if a quote or bracket is open at a line's end."""

    text: str
    fault: str | None = None


def encoding_name(charset: str) -> str:
    """Return the name of an encoding for messages."""
    return "UTF-8" if charset == "utf-8" else charset


def not_valid(charset: str) -> str:
    """Return the fault of a line that is invalid in the encoding of its feed."""
    name = encoding_name(charset)
    return f"not valid {name}: such bytes are shown as \\xNN; a feed in another encoding says encoding=..."


def is_utf8_instead(charset: str) -> str:
    """Return the fault of a line in UTF-8 in a feed with another encoding, which would change its letters."""
    return f"its text is UTF-8, not {charset}: write such files in one encoding, and let the feed say encoding=..."


def encoding_faults(charset: str) -> tuple[str, str]:
    """Return the faults of lines in another encoding than that of their feed."""
    return not_valid(charset), is_utf8_instead(charset)


def text_of(key: str, content: bytes, *, limit: int | None = None, whole: bool = True) -> bytes:
    """Return the text of a file, decompressed if its name ends in `.gz`.

    Args:
        limit: Largest number of bytes to return. None to return the whole text.
        whole: True if `content` is the whole file. If False, compressed bytes may end early.

    Raises:
        Unusable: the compression is broken or ends too early.
    """
    if not is_compressed(key):
        return content[:limit]
    text = b""
    try:
        for piece in inflated([content]):
            text += piece
            if limit is not None and len(text) >= limit:
                return text[:limit]
    except Unusable as error:
        if whole or str(error) != TRUNCATED:
            raise
    return text


def inflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress a gzip file, which comes in parts, into pieces of some megabytes.

    Raises:
        Unusable: the compression is broken or ends too early.
    """
    stream, has_begun = zlib.decompressobj(wbits=31), False
    try:
        for rest in parts:
            while rest := rest.lstrip(b"\0") if stream.eof else rest:  # padding, which gzip itself skips
                if stream.eof:  # the next member of the gzip file begins
                    stream = zlib.decompressobj(wbits=31)
                has_begun = True
                yield stream.decompress(rest, _PIECE)
                rest = stream.unused_data if stream.eof else stream.unconsumed_tail
    except zlib.error as error:
        raise Unusable("unreadable", f"no gzip file: {error}") from error
    if has_begun and not stream.eof:
        raise Unusable("unreadable", TRUNCATED)


def charset_of(encoding: str, text: bytes) -> str:
    """Return the encoding of a text.

    The byte order mark of UTF-8 counts whatever encoding is declared. UTF-16 without a mark is little-endian.
    """
    if text.startswith(codecs.BOM_UTF8):
        return "utf-8"
    if encoding != "utf-16":
        return encoding
    return "utf-16-be" if text.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"


def lines_of(text: bytes, charset: str) -> list[TextRecord]:
    """Return the lines of a text. If the text ends with a line end, the last line is empty."""
    text = without_mark(text, charset)
    decoded = decoded_by(text, charset)
    return lines_with_faults(text, charset) if decoded is None else [TextRecord(line) for line in _split(decoded)]


def decoded_by(text: bytes, charset: str) -> str | None:
    """Return a decoded text; None if a line is invalid in this encoding, or may be UTF-8 instead."""
    if _is_single_byte(charset) and _UTF8_LETTER.search(text):
        return None
    try:
        return text.decode(charset)
    except UnicodeDecodeError:
        return None


def _is_single_byte(charset: str) -> bool:
    """Return True if an encoding has one byte for each character, so that it accepts nearly any bytes."""
    letters = bytes(range(128, 256)).decode(charset, errors="replace")
    return not charset.startswith("utf") and len(letters) == 128 and letters.count("\ufffd") < 64


def _is_utf8(line: bytes, charset: str) -> bool:
    """Return True if a line is UTF-8, although its feed declares an encoding in which it has other letters.

    Few lines of other encodings are valid UTF-8. The bytes of `É’` and `ß…` in cp1252 are, by chance: each is a single
    rare letter that cp1252 lacks.
    """
    if line.isascii() or not _is_single_byte(charset):
        return False
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return False
    return bool(_LIKELY_IN_UTF8.search(text)) or not text.encode(charset, errors="ignore").isascii()


def without_mark(text: bytes, charset: str) -> bytes:
    """Return a text without the byte order mark at its beginning."""
    return text.removeprefix("\ufeff".encode(charset)) if charset.startswith("utf") else text


def _split(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def lines_with_faults(text: bytes, charset: str, *, keep_ends: bool = False) -> list[TextRecord]:
    """Return the lines of a text with invalid lines. The text has no byte order mark.

    Args:
        keep_ends: True to keep line ends. Then no empty line follows the last line end.
    """
    fault = not_valid(charset)
    if charset.startswith("utf-16"):
        whole = text[: len(text) // 2 * 2].decode(charset, errors="surrogatepass")
        lines = [line.encode(charset, errors="surrogatepass") for line in _parts(_LINES, whole, keep_ends=keep_ends)]
        lines[-1] += text[len(text) // 2 * 2 :]
    else:
        lines = _parts(_LINES_OF_BYTES, text, keep_ends=keep_ends)
    found = []
    for line in lines:
        try:
            if _is_utf8(line, charset):
                found.append(TextRecord(line.decode(), is_utf8_instead(charset)))
            else:
                found.append(TextRecord(line.decode(charset)))
        except UnicodeDecodeError:
            found.append(TextRecord(_shown(line, charset), fault))
    return found


def _parts(lines: re.Pattern[AnyStr], text: AnyStr, *, keep_ends: bool) -> list[AnyStr]:
    found = []
    for line in lines.finditer(text):
        found.append(line[0] if keep_ends else line[1])
        if not line[2]:  # the last line
            break
    return found[:-1] if keep_ends and len(found) > 1 and not found[-1] else found


def _shown(line: bytes, charset: str) -> str:
    """Return invalid text in a readable form."""
    if charset.startswith("utf-16"):
        return line.decode("latin-1").replace("\0", "")
    return line.decode(charset, errors="backslashreplace")


def is_list(text: str) -> bool:
    """Return True if a JSON text begins a list."""
    return text.lstrip(BLANKS).startswith("[")


def in_a_list(text: str) -> str:
    """Put brackets around the elements of a list."""
    return f"[{text.strip(BLANKS).removeprefix(',').removesuffix(',')}]"


def is_over_lines(key: str, text: bytes, charset: str) -> bool:
    """Return True if a JSON file has documents of several lines.

    Its first line is only an opening bracket, or it begins a list that continues in the next line, as PostgreSQL's
    `json_agg` writes it. In a `.jsonl` file, each line is always a row.
    """
    if key.lower().removesuffix(GZIP).endswith(".jsonl"):
        return False
    lines = [line.text.strip(BLANKS) for line in lines_of(text, charset)]
    at = next((n for n, line in enumerate(lines) if line), 0)
    is_complete = at < len(lines) - 1  # the text may end inside of a long line
    return lines[at] in ("[", "{") or (is_complete and lines[at].startswith("[") and opened(lines[at]) > 0)


def opened(line: str) -> int:
    """Return the number of brackets that a line opens, minus the number that it closes."""
    bare = _IN_QUOTES.sub("", line)
    return sum(bare.count(c) for c in "{[") - sum(bare.count(c) for c in "}]")
