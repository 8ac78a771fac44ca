"""Commits through pyiceberg, by writers who know what the table held. No Spark, no server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.tidemark.lakehouse.append import Appendable, Change, HeadMoved, open_lake, rows_of
from pipelines.tidemark.lakehouse.tables import Table
from tests.conftest import make_settings

TABLE = Table("raw.pings", {"id": "string"}, ("id",))
Writer = Callable[[], Appendable]


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Another writer of the same table, with a connection of its own."""
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    return lambda: Appendable(open_lake(settings), TABLE)


def row(table: Appendable, id: str, **marks: str) -> Change:
    return Change(rows_of(table.schema, [{"id": id}]), marks=marks)


@pytest.mark.parametrize("first", [True, False])
def test_rows_and_marks_go_in_only_while_the_head_is_the_one_that_was_seen(writer: Writer, first: bool) -> None:
    one, other = writer(), writer()
    if not first:
        one.commit(row(one, "before"))
        other.refresh()
    other.commit(row(other, "a", number="1"))
    seen = one.head
    with pytest.raises(HeadMoved):
        one.commit(row(one, "b"))
    with pytest.raises(HeadMoved):
        one.commit(Change(marks={"sent": "0"}))
    assert one.head == seen, "it has to look again, or it would not know what others have done"
    assert one.refresh()
    one.commit(Change(marks={"sent": "1"}))
    other.refresh()
    assert (other.mark("number"), other.mark("sent")) == ("1", "1")
    assert "b" not in other.rows()["id"].to_pylist()


def test_old_snapshots_expire_and_a_writer_still_notices_what_others_have_committed(writer: Writer) -> None:
    one, other = writer(), writer()
    for n in range(12):
        one.commit(row(one, f"a{n}"))
    other.refresh()
    other.commit(row(other, "b"))
    seen = one.head
    assert one.expire(keep=3) == 9
    assert one.head == seen
    with pytest.raises(HeadMoved):
        one.commit(row(one, "c"))
    assert one.refresh()
    added = one.appended_since(seen)
    assert added is not None and added["id"].to_pylist() == ["b"]
    assert one.rows().num_rows == 13


def test_what_somebody_still_has_to_read_since_is_kept(writer: Writer) -> None:
    one = writer()
    heads = [one.commit(row(one, f"a{n}")) for n in range(10)]
    needed = heads[4]
    assert needed is not None
    assert one.expire(keep=2, not_since=[needed]) == 4
    one.refresh()
    added = one.appended_since(needed)
    assert added is not None and sorted(added["id"].to_pylist()) == [f"a{n}" for n in range(5, 10)]
    assert one.appended_since(heads[2]) is None
