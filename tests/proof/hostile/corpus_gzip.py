"""Feed `orders` as gzip: members, truncation, damage, and files that are no gzip."""

import gzip
import zlib
from datetime import datetime

from tests.proof.hostile.corpus_material import (
    BOM,
    EMPTY,
    MEGABYTE,
    NO_ROWS,
    ONE_MALFORMED,
    SURE,
    UNREADABLE,
    Table,
    archive,
    damaged,
    fixed,
    packed,
)
from tests.proof.hostile.corpus_model import (
    ALL,
    HEADER,
    FileCase,
    csv,
    join,
    keeps,
    lines,
    one,
    parquet,
)


def members(start: datetime, at: int) -> bytes:
    """The good CSV file as two gzip members, split at a byte."""
    content = csv(start)
    return gzip.compress(content[:at], mtime=0) + gzip.compress(content[at:], mtime=0)


def named(start: datetime) -> bytes:
    """A gzip member with file name and comment in its header, as the command line tool writes it."""
    content = packed(start)
    return content[:3] + b"\x18" + content[4:10] + b"orders of monday.csv\0a comment\0" + content[10:]


GZIP_FILES: Table = (
    ("gzip_good", packed, ALL, SURE),
    ("gzip_with_name_and_comment", named, ALL, SURE),
    ("gzip_with_bom_and_crlf", lambda s: gzip.compress(BOM + join(lines(s), "\r\n"), mtime=0), ALL, SURE),
    ("gzip_two_members_split_in_a_row", lambda s: members(s, len(HEADER) + 20), ALL, SURE),
    ("gzip_two_members_split_after_the_header", lambda s: members(s, len(HEADER) + 1), ALL, SURE),
    (
        "gzip_two_members_each_with_header",
        lambda s: packed(s) + gzip.compress(csv(s, (4,)), mtime=0),
        keeps(1, 2, 3, 4, bad_type=1),
        SURE,
    ),
    (
        "gzip_latin1_byte_in_a_line",
        lambda s: gzip.compress(csv(s) + b"4,1,M\xfcller,24,34,2,19.99,0.1,x\n", mtime=0),
        ONE_MALFORMED,
        SURE,
    ),
    ("gzip_empty_member_in_front", lambda s: gzip.compress(b"", mtime=0) + packed(s), ALL, SURE),
    ("gzip_empty_member_behind", lambda s: packed(s) + gzip.compress(b"", mtime=0), ALL, SURE),
    ("gzip_of_nothing", fixed(gzip.compress(b"", mtime=0)), EMPTY, SURE),
    ("gzip_of_blank_lines", fixed(gzip.compress(b"\n" * 100_000, mtime=0)), EMPTY, SURE),
    ("gzip_of_the_header", fixed(gzip.compress(HEADER.encode(), mtime=0)), NO_ROWS, SURE),
    ("gzip_no_byte", fixed(b""), EMPTY, SURE),
    ("gzip_truncated_in_the_data", lambda s: packed(s)[: len(packed(s)) // 2], UNREADABLE, SURE),
    ("gzip_truncated_in_the_trailer", lambda s: packed(s)[:-5], UNREADABLE, SURE),
    ("gzip_without_trailer", lambda s: packed(s)[:-8], UNREADABLE, SURE),
    ("gzip_header_only", lambda s: packed(s)[:10], UNREADABLE, SURE),
    ("gzip_one_byte", fixed(b"\x1f"), UNREADABLE, SURE),
    ("gzip_second_member_truncated", lambda s: members(s, len(HEADER) + 1)[:-9], UNREADABLE, SURE),
    ("gzip_wrong_checksum", lambda s: damaged(packed(s), -8), UNREADABLE, SURE),
    ("gzip_wrong_length", lambda s: damaged(packed(s), -4), UNREADABLE, SURE),
    ("gzip_damaged_data", lambda s: damaged(packed(s), 14, 8), UNREADABLE, SURE),
    (
        "gzip_zero_padding_behind",
        lambda s: packed(s) + b"\0" * 512,
        ALL,
        "tape padding: the gzip tool ignores zeros behind the last member",
    ),
    (
        "gzip_garbage_behind",
        lambda s: packed(s) + b"<!-- uploaded by batch 7 -->",
        UNREADABLE,
        "the gzip tool warns and keeps the data; chosen: broken gzip",
    ),
    ("gzip_of_gzip", lambda s: gzip.compress(packed(s), mtime=0), UNREADABLE, SURE),
    ("gzip_of_parquet", lambda s: gzip.compress(parquet(s), mtime=0), UNREADABLE, SURE),
    ("gzip_is_plain_csv", csv, UNREADABLE, SURE),
    ("gzip_is_zip", fixed(archive("orders.csv")), UNREADABLE, SURE),
    ("gzip_is_a_zlib_stream", lambda s: zlib.compress(csv(s)), UNREADABLE, SURE),
    (
        "gzip_bomb_of_a_long_line",
        lambda s: gzip.compress(csv(s) + b"x" * (20 * MEGABYTE) + b"\n", mtime=0),
        ONE_MALFORMED,
        SURE,
    ),
)


GZIP_CASES: tuple[FileCase, ...] = tuple(
    one(name, "file.csv.gz", content, outcome, unsure) for name, content, outcome, unsure in GZIP_FILES
)
