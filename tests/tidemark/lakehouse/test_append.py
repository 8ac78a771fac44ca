"""Commits through pyiceberg, by writers who know what the table held. No Spark, no server."""

import random
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Snapshot

from dagster_tidemark.lakehouse import snapshot_expiry
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, equal, open_lake, rows_of
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.table import SchemaDiffers, Table
from tests.conftest import make_settings
from tests.sampling import sample

TABLE = Table("raw.pings", {"id": "string"}, ("id",))
Writer = Callable[..., Appendable]


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Another writer of the same table, with a connection of its own, maybe with another declaration of it."""
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    return lambda table=TABLE: Appendable(open_lake(settings), table)


def row(table: Appendable, id: str, **marks: str) -> TableCommit:
    return TableCommit(rows_of(table.schema, [{"id": id}]), marks=marks)


@pytest.mark.parametrize("first", [True, False])
def test_append_is_committed_only_while_the_table_head_is_unchanged(writer: Writer, first: bool) -> None:
    one, other = writer(), writer()
    if not first:
        one.commit(row(one, "before"))
        other.refresh()
    other.commit(row(other, "a", number="1"))
    seen = one.head
    with pytest.raises(CommitConflict):
        one.commit(row(one, "b"))
    with pytest.raises(CommitConflict):
        one.commit(TableCommit(marks={"sent": "0"}))
    assert one.head == seen, "it has to look again, or it would not know what others have done"
    assert one.refresh()
    one.commit(TableCommit(marks={"sent": "1"}))
    other.refresh()
    assert (other.mark("number"), other.mark("sent")) == ("1", "1")
    assert "b" not in other.rows()["id"].to_pylist()


def test_writer_detects_commits_of_others_after_snapshots_expire(writer: Writer) -> None:
    one, other = writer(), writer()
    for n in range(12):
        one.commit(row(one, f"a{n}"))
    other.refresh()
    other.commit(row(other, "b"))
    seen = one.head
    assert one.expire(keep=3) == 9
    assert one.head == seen
    with pytest.raises(CommitConflict):
        one.commit(row(one, "c"))
    assert one.refresh()
    added = one.appended_since(seen)
    assert added is not None and added["id"].to_pylist() == ["b"]
    assert one.rows().num_rows == 13


def test_append_commit_copies_the_snapshot_list_at_most_once(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    one = writer()
    for n in range(5):
        one.commit(row(one, f"a{n}"))
    copied: list[Snapshot] = []
    monkeypatch.setattr(Snapshot, "__deepcopy__", lambda self, memo: copied.append(self) or self)
    seen = list(one._loaded.metadata.snapshots)
    one.commit(row(one, "b"))
    assert len(copied) <= len(seen) + 1, "once, by the catalog, and not some twenty times"
    one.refresh()
    assert one._loaded.metadata.snapshots[:-1] == seen


def test_snapshots_a_reader_still_needs_are_not_expired(writer: Writer) -> None:
    one = writer()
    heads = [one.commit(row(one, f"a{n}")) for n in range(10)]
    needed = heads[4]
    assert needed is not None
    assert one.expire(keep=2, not_since=[needed]) == 4
    one.refresh()
    added = one.appended_since(needed)
    assert added is not None and sorted(added["id"].to_pylist()) == [f"a{n}" for n in range(5, 10)]
    assert one.appended_since(heads[2]) is None


def test_writers_with_and_without_a_new_column_append_to_one_table(writer: Writer) -> None:
    wider = replace(TABLE, columns={**TABLE.columns, "weight": "double"})
    before = writer()
    before.commit(row(before, "a"))
    after = writer(wider)
    seen = after.head
    after.commit(TableCommit(rows_of(after.schema, [{"id": "b", "weight": 2.5}])))
    assert before.refresh()
    before.commit(row(before, "c"))
    assert writer(wider).head == before.head, "nothing is left to add"
    after.refresh()
    assert sorted(after.rows().to_pylist(), key=itemgetter("id")) == [
        {"id": "a", "weight": None},
        {"id": "b", "weight": 2.5},
        {"id": "c", "weight": None},
    ]
    added = after.appended_since(seen)
    assert added is not None and sorted(added["id"].to_pylist()) == ["b", "c"]


def test_appender_refuses_a_column_of_changed_type_or_dropped_by_hand(writer: Writer) -> None:
    wider = replace(TABLE, columns={**TABLE.columns, "weight": "double"})
    first = writer(wider)
    first.commit(TableCommit(rows_of(first.schema, [{"id": "a", "weight": 2.5}])))
    with pytest.raises(SchemaDiffers, match=r"raw.pings has \{'weight': 'double'\}, its declaration has .*bigint"):
        writer(replace(TABLE, columns={**TABLE.columns, "weight": "bigint"}))
    with first._loaded.update_schema() as update:
        update.delete_column("weight")
    with pytest.raises(SchemaDiffers, match="the declared column weight was dropped by hand"):
        writer(wider)
    assert writer(replace(TABLE, columns={**TABLE.columns, "size": "int"})).rows()["id"].to_pylist() == ["a"]


@pytest.mark.parametrize("seed", sample(range(6), 0, 1))
def test_expired_snapshots_delete_exactly_the_files_no_other_snapshot_needs(
    writer: Writer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the files on disk, with merged manifests, deleted rows and a branch."""
    rng, table = random.Random(seed), writer()
    with table._loaded.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "3"})
    table.refresh()
    left = list[str]()
    for n in range(14):
        gone = left.pop(rng.randrange(n // 3)) if rng.random() < 0.3 and len(left) > n // 3 > 0 else None
        table.commit(replace(row(table, f"a{n}"), instead_of=None if gone is None else equal("id", gone)))
        left.append(f"a{n}")
        if n == 5:
            table._loaded.manage_snapshots().create_branch(table.head or 0, "other").commit()
    table.refresh()
    there = [snapshot.snapshot_id for snapshot in table._ancestors()]
    before = {each: sorted(table.rows(snapshot_id=each)["id"].to_pylist()) for each in there}
    expired = {each for each in there[1:] if rng.random() < 0.6}
    read: list[str] = []
    files_of = snapshot_expiry._files_of
    monkeypatch.setattr(snapshot_expiry, "_files_of", lambda each, io: read.append(each) or files_of(each, io))
    known = {path for each in table._loaded.metadata.snapshots for path in files_of(each, table._loaded.io)}
    snapshot_expiry.expire(table._loaded, expired)
    assert len(read) <= 3 * len(expired) + 1
    table.refresh()
    stay = list(table._loaded.metadata.snapshots)
    assert {each.snapshot_id for each in stay} == set(there) - expired | {table._loaded.refs()["other"].snapshot_id}
    for each in stay:
        assert sorted(table.rows(snapshot_id=each.snapshot_id)["id"].to_pylist()) == before[each.snapshot_id]
    needed = {path for each in stay for path in files_of(each, table._loaded.io)}
    assert {path for path in known if Path(path.removeprefix("file://")).exists()} == needed


def test_snapshot_expiry_reads_only_the_manifests_it_expires(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    table, read = writer(), list[str]()
    for n in range(30):
        table.commit(row(table, f"a{n}"))
    files_of = snapshot_expiry._files_of
    monkeypatch.setattr(snapshot_expiry, "_files_of", lambda each, io: read.append(each) or files_of(each, io))
    assert table.expire(keep=25, batch=5) == 5
    assert len(read) == 7


def test_parent_of_a_rewrite_keeps_its_files_through_later_expiries(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rewrite shares a manifest with its parent, and a later commit drops it: the parent still needs it."""
    table = writer()
    for n in range(4):
        table.commit(row(table, f"a{n}"))
    there = [snapshot.snapshot_id for snapshot in table._ancestors()]
    rewrite, parent = there[0], there[1]
    monkeypatch.setattr(snapshot_expiry, "_is_rewrite", lambda each: each.snapshot_id == rewrite)
    for n in range(4, 8):
        table.commit(row(table, f"a{n}"))
        assert table.expire(keep=1) == (3 if n == 4 else 1)
    with table._loaded.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    table.refresh()
    for n in range(8, 11):
        table.commit(row(table, f"a{n}"))
        assert table.expire(keep=1) == 1
    assert {each.snapshot_id for each in table._loaded.metadata.snapshots} == {parent, table.head}
    assert sorted(table.rows(snapshot_id=parent)["id"].to_pylist()) == ["a0", "a1", "a2"]
    assert len(table.rows()) == 11
