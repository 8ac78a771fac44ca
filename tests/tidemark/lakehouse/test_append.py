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
