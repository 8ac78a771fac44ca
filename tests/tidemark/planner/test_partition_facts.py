"""Facts about partitions are kept in little memory, and read as they were written."""

import pytest

from dagster_tidemark.planner.event_records import Change
from dagster_tidemark.planner.partition_facts import PartitionRecord

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize("version", [None, "", "v1", HASH, HASH.upper(), HASH[:-1] + " ", HASH + "00", "é" * 64])
def test_version_is_read_as_it_was_written(version: str | None) -> None:
    assert PartitionRecord(version=version).version == version


@pytest.mark.parametrize("changes", [(), (Change(1, 2.0),), (Change(1, 2.0), Change(3, None, "run"))])
def test_changes_are_read_as_they_were_written(changes: tuple[Change, ...]) -> None:
    assert PartitionRecord(changes).changes == changes
