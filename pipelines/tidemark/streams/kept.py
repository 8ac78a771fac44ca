"""A stream's table as the run that fills it sees it: rows are added once, positions with them, in one commit.

Belongs here: what is in the table already, and a commit that another writer has overtaken. Does not belong here: where
messages come from, and what follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.tidemark.lakehouse.append import Appendable, Change, HeadMoved, at_least, rows_of

_TRIES = 20
_REMEMBERED = timedelta(hours=1)
_MANY = 200_000


class KeptIds:
    """Which messages are in the table, of those that were sent since a time: the only ones that can come again now.

    A message that comes again was sent when it was sent first. So of the table only that part is read in which the
    oldest message at hand was sent, and files say of themselves between which times their rows were sent.
    """

    def __init__(self, table: Appendable) -> None:
        self._table = table
        self._since: datetime | None = None
        self._ids: dict[str, datetime] = {}

    def knows(self, ids: Mapping[str, datetime]) -> set[str]:
        """Of these messages and when each was sent, those that are there already."""
        if ids and (self._since is None or min(ids.values()) < self._since):
            self._read(min(ids.values()))
        return {each for each in ids if each in self._ids}

    def add(self, rows: pa.Table) -> None:
        """These have been added to the table, by whomever."""
        self._ids |= dict(zip(rows["message_id"].to_pylist(), rows["sent_at"].to_pylist(), strict=True))
        if len(self._ids) > _MANY and self._since is not None:
            self._since = max(self._since, max(self._ids.values()) - _REMEMBERED)
            self._ids = {each: at for each, at in self._ids.items() if at >= self._since}

    def forget(self) -> None:
        """What is known may be of a table that is no more."""
        self._since, self._ids = None, {}

    def _read(self, since: datetime) -> None:
        self._since = since
        where = at_least("sent_at", since)
        self.add(self._table.rows(where, ("message_id", "sent_at")))


class KeptMessages:
    """The table of a stream.

    Args:
        table: Used by this alone.
    """

    def __init__(self, table: Appendable) -> None:
        self.table = table
        self.others = False
        """Whether somebody else has committed since this was last set to False."""
        self._ids = KeptIds(table)

    def look(self) -> None:
        """See what others have committed."""
        before = self.table.head
        if not self.table.refresh():
            return
        self.others = True
        added = self.table.appended_since(before, ("message_id", "sent_at"))
        if before is None or added is None:
            self._ids.forget()
        else:
            self._ids.add(added)

    def add(
        self,
        rows: Sequence[Mapping[str, Any]],
        reached: Mapping[str, str],
        resumed: Mapping[str, str | None],
        marks: Mapping[str, str],
    ) -> int:
        """Add the rows of messages that are not there yet, and how far their source was read.

        Args:
            reached: Snapshot properties.
            resumed: What they were when the source was asked.
            marks: Properties of the table; not worth a commit by themselves.

        Returns:
            How many were added.

        Raises:
            Overtaken: somebody else has read the source further meanwhile; nothing was written.
            HeadMoved: others have committed each time.
        """
        for _ in range(_TRIES):
            now = {name: self.table.newest(name) for name in reached}
            if now not in (dict(resumed), dict(reached)):
                raise Overtaken(f"{self.table.table.name}: another run has read on meanwhile")
            new = self._new(rows) if now != reached or not reached else []
            if not new and now == reached:
                return 0
            try:
                self.table.commit(Change(rows_of(self.table.schema, new), properties=reached, marks=marks))
            except HeadMoved:
                self.look()
                continue
            self._ids.add(rows_of(self.table.schema, new))
            return len(new)
        raise HeadMoved(f"{self.table.table.name}: others have committed {_TRIES} times in a row")

    def _new(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        ids = {row["message_id"]: row["sent_at"] for row in rows}
        known = self._ids.knows(ids)
        return list({row["message_id"]: row for row in rows if row["message_id"] not in known}.values())


class Overtaken(HeadMoved):
    """Another run has read the same source further. What it has read is its own; go on from there."""


def oldest_by(rows: pa.Table, column: str) -> dict[Any, datetime]:
    """By the value of a column when the first of its messages was sent."""
    if not rows.num_rows:
        return {}
    grouped = rows.group_by(column).aggregate([("sent_at", "min")])
    return dict(zip(grouped[column].to_pylist(), grouped["sent_at_min"].to_pylist(), strict=True))


def highest_offsets(table: Appendable, source: str) -> tuple[str, dict[int, int]] | None:
    """The newest topic id that has rows, and by partition its highest offset; None where no row is of this source.

    Args:
        source: The name of the inlet, `kafka:<topic>`.
    """
    rows = table.rows(columns=("message_source", "topic_id", "topic_partition", "topic_offset", "sent_at"))
    rows = rows.filter(pc.starts_with(rows["message_source"], f"{source}/"))
    if not rows.num_rows:
        return None
    newest = rows.take([pc.index(rows["sent_at"], pc.max(rows["sent_at"])).as_py()])["topic_id"][0]
    of_it = rows.filter(pc.equal(rows["topic_id"], newest))
    highest = of_it.group_by("topic_partition").aggregate([("topic_offset", "max")])
    found = zip(highest["topic_partition"].to_pylist(), highest["topic_offset_max"].to_pylist(), strict=True)
    return newest.as_py(), dict(found)
