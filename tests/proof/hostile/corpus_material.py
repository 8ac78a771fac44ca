"""What many cases share: bytes that are no feed, short names of outcomes."""

import gzip
import io
import zipfile
import zlib
from datetime import datetime

from tests.proof.hostile.corpus_model import (
    Content,
    Outcome,
    csv,
    keeps,
    turned_away,
)

BOM = b"\xef\xbb\xbf"
UNREADABLE, EMPTY, OUTSIDE = turned_away("unreadable"), turned_away("empty"), turned_away("outside_layout")
MISSING_COLUMN, DUPLICATE_COLUMN = turned_away("missing_column"), turned_away("duplicate_column")
NO_ROWS = turned_away("no rows")
ONE_MALFORMED = keeps(1, 2, 3, malformed=1)
MEGABYTE = 1_000_000

Table = tuple[tuple[str, Content, Outcome, str], ...]


def fixed(content: bytes) -> Content:
    """The same bytes in every hour."""
    return lambda _: content


def archive(*names: str) -> bytes:
    """A zip archive, as a spreadsheet is one."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as target:
        for name in names:
            target.writestr(zipfile.ZipInfo(name), "<xml/>" * 50)
    return sink.getvalue()


XLSX = archive("[Content_Types].xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml")
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)) * 4
JUNK = zlib.compress(bytes(i * i % 251 for i in range(4000)))
HTML = "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n<body>nginx, try later</body></html>\n"
XML = '<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>\n'
SURE = ""


def damaged(content: bytes, place: int, length: int = 4) -> bytes:
    """The content with some of its bytes turned over; a negative place counts from the end."""
    place %= len(content)
    return content[:place] + bytes(byte ^ 0xFF for byte in content[place : place + length]) + content[place + length :]


def packed(start: datetime) -> bytes:
    """The good CSV file as gzip."""
    return gzip.compress(csv(start), mtime=0)
