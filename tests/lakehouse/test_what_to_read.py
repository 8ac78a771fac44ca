"""Which partitions a load reads is decided as plain data, before anything is read."""

from datetime import UTC, datetime

import pytest

from pipelines.lakehouse.files import SourceFile
from pipelines.lakehouse.load import KnownFile, partitions_to_read

HOUR = "2026-10-01-07:00"
A = SourceFile("a.csv", "v1", datetime(2026, 10, 1, tzinfo=UTC), HOUR)
B = SourceFile("b.csv", "v1", datetime(2026, 10, 1, tzinfo=UTC), HOUR)
KNOWN_A = KnownFile("a.csv", "v1", "1", is_quarantined=False)
QUARANTINED_B = KnownFile("b.csv", "v1", "1", is_quarantined=True)


@pytest.mark.parametrize(
    ("listed", "known", "is_read"),
    [
        ([A], [KNOWN_A], False),
        ([A, B], [KNOWN_A, QUARANTINED_B], False),
        ([A], [KNOWN_A, KNOWN_A._replace(is_quarantined=True)], False),  # some of its rows were turned away
        ([], [], False),
        ([A, B], [KNOWN_A], True),
        ([A], [KNOWN_A._replace(version="v0")], True),
        ([A], [KNOWN_A._replace(loaded_by="0")], True),
        ([A], [KNOWN_A, QUARANTINED_B], True),
        ([], [KNOWN_A], True),
    ],
)
def test_a_partition_is_read_unless_its_files_are_exactly_the_known_ones(
    listed: list[SourceFile], known: list[KnownFile], is_read: bool
) -> None:
    assert partitions_to_read({HOUR: listed}, {HOUR: known}, code_version="1") == ([HOUR] if is_read else [])
