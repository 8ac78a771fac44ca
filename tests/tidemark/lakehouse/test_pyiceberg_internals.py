"""Contract of pyiceberg's private parts, on a catalog in memory."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from dagster_tidemark.lakehouse.pyiceberg_internals import commit_without_retries, require_head, share_copies

ROWS = pa.table({"n": pa.array([1], pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[InMemoryCatalog]:
    made = InMemoryCatalog("lake", warehouse=f"file://{tmp_path}")
    made.create_namespace("a")
    made.create_table("a.b", ROWS.schema)
    yield made
    made.engine.dispose()


def moved(catalog: InMemoryCatalog) -> Table:
    """Return the table as it was before another writer's commit."""
    seen = catalog.load_table("a.b")
    catalog.load_table("a.b").append(ROWS)
    return seen


def test_pyiceberg_head_requirement_is_checked_without_rows(catalog: InMemoryCatalog) -> None:
    for head in (None, 1):
        seen = moved(catalog)
        commit_without_retries(seen)
        with pytest.raises(CommitFailedException), seen.transaction() as transaction:
            require_head(transaction, head)
            transaction.set_properties({"mark": "1"})
    seen = catalog.load_table("a.b")
    assert seen.metadata.current_snapshot_id is not None
    with seen.transaction() as transaction:
        require_head(transaction, seen.metadata.current_snapshot_id)
        transaction.set_properties({"mark": "2"})
    assert catalog.load_table("a.b").properties["mark"] == "2"


def test_pyiceberg_append_on_an_outdated_head_fails(catalog: InMemoryCatalog) -> None:
    seen = moved(catalog)
    commit_without_retries(seen)
    with pytest.raises(CommitFailedException):
        seen.append(ROWS)
    stored = catalog.load_table("a.b")
    assert stored.scan().to_arrow().num_rows == 1
    assert "commit.retry.num-retries" not in stored.properties, "the other writers' policy is left alone"


def test_pyiceberg_metadata_copies_share_snapshots_and_can_still_commit(catalog: InMemoryCatalog) -> None:
    catalog.load_table("a.b").append(ROWS)
    seen = catalog.load_table("a.b")
    share_copies(seen)
    copied = deepcopy(seen.metadata)
    assert copied.snapshots[0] is seen.metadata.snapshots[0]
    assert copied.snapshots is not seen.metadata.snapshots
    seen.append(ROWS)
    stored = catalog.load_table("a.b")
    assert len(stored.metadata.snapshots) == 2 and len(stored.metadata.snapshot_log) == 2
    assert isinstance(stored.metadata.snapshots, list)
