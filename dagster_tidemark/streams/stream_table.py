"""The table of a stream, for the run that fills it. Rows are added once, in one commit with the topics' positions.

Belongs here: the search for messages that the table already holds, and conflicts with commits of other writers. Does
not belong here: the sources of messages, and the reactions to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And

from dagster_tidemark.lakehouse.append import (
    Appendable,
    TableCommit,
    at_least,
    at_most,
    begins_with,
    below,
    is_null,
    one_of,
    rows_of,
)
from dagster_tidemark.lakehouse.commits import SourceAdvanced, until_committed
from dagster_tidemark.sources.received_messages import Inlet

_MOST_IDS = 200_000  # in memory: 50 MB
_AT_ONCE = 150  # values of one expression; pyiceberg skips no files above 200 values


class KeptIds:
    """Ids of queue messages that are in the table. Messages of topics are known by their offsets.

    Up to 200,000 ids are in memory: those of all messages sent after a certain time. An older message is looked up in
    the files that contain its sending time.
    """

    def __init__(self, table: Appendable) -> None:
        self._table = table
        self._since = _NOTHING_KNOWN
        self._ids: dict[str, datetime] = {}

    def knows(self, ids: Mapping[str, datetime]) -> set[str]:
        """Return the ids that are in the table. `ids` maps ids of messages to their sending times."""
        old = {each: at for each, at in ids.items() if at < self._since and each not in self._ids}
        if old and (found := self._older(min(old.values()))) is not None:
            self._since = min(old.values())
            self.add(found)
            old = {}
        return {each for each in ids if each in self._ids} | self._looked_up(old)

    def add(self, rows: pa.Table) -> None:
        """Record queue messages that were added to the table."""
        added = zip(rows["message_id"].to_pylist(), rows["sent_at"].to_pylist(), strict=True)
        self._ids |= {each: at for each, at in added if at >= self._since}
        if len(self._ids) > _MOST_IDS:
            # Keep the ids after the median time: of messages with the same time, all or none must be kept.
            self._since = sorted(self._ids.values())[-(_MOST_IDS // 2)] + timedelta.resolution
            self._ids = {each: at for each, at in self._ids.items() if at >= self._since}

    def forget(self) -> None:
        """Forget all ids: the table may have been replaced."""
        self._since, self._ids = _NOTHING_KNOWN, {}

    def _older(self, at: datetime) -> pa.Table | None:
        """Return the ids of messages sent between a time and `_since`; None if they are too many for memory."""
        where = And(is_null("topic_id"), at_least("sent_at", at), below("sent_at", self._since))
        if self._table.planned_rows(where) + len(self._ids) > _MOST_IDS // 2:
            return None
        return self._table.rows(where, _ID)

    def _looked_up(self, ids: Mapping[str, datetime]) -> set[str]:
        found: set[str] = set()
        by_time = sorted(ids, key=lambda each: ids[each])
        for start in range(0, len(by_time), _AT_ONCE):
            some = by_time[start : start + _AT_ONCE]
            times = And(at_least("sent_at", ids[some[0]]), at_most("sent_at", ids[some[-1]]))
            where = And(is_null("topic_id"), times, one_of("message_id", some))
            found.update(self._table.rows(where, _ID)["message_id"].to_pylist())
        return found


_ID = ("message_id", "sent_at")
_NOTHING_KNOWN = datetime.max.replace(tzinfo=UTC)


class Positions:
    """The position of each topic: the newest one recorded in a snapshot of the table, else derived from the rows.

    A position stays known after the snapshots that record it have expired. A run therefore searches the rows at most
    once for each topic.

    Args:
        table: The stream's table. No other code may use this object.
        inlets: The run's inlets.
    """

    def __init__(self, table: Appendable, inlets: Iterable[Inlet]) -> None:
        self._table = table
        self._inlets = {name: inlet for inlet in inlets if (name := inlet.property_name()) is not None}
        self._known: dict[str, tuple[int | None, str | None]] = {}
        """The table's head at the last look-up, and the value found then, by the name of the property."""

    def of(self, name: str) -> str | None:
        """Return the value of a topic's position property; None if the table has no record of the topic."""
        if name not in self._known:
            found = self._table.newest(name)
            if found is None and name in self._inlets:
                found = self._by_rows(self._inlets[name])
        else:
            since, value = self._known[name]
            found = self._table.newest(name, after=since) or value
        self._known[name] = self._table.head, found
        return found

    def carried(self) -> dict[str, str]:
        """Return all known positions. Each commit repeats them, so that a quiet topic's position does not expire."""
        return {name: value for name in self._known if (value := self.of(name)) is not None}

    def forget(self) -> None:
        """Forget all positions: the table may have been replaced."""
        self._known.clear()

    def _by_rows(self, inlet: Inlet) -> str | None:
        rows = highest_offsets(self._table, inlet.name, inlet.topic_id())
        return inlet.resume_after(*rows) if rows else None


class StreamTable:
    """The table of a stream.

    Args:
        table: The table. No other code may use this object.
        inlets: The run's inlets, whose positions are in the table.
    """

    def __init__(self, table: Appendable, inlets: Iterable[Inlet] = ()) -> None:
        self.table = table
        self.positions = Positions(table, inlets)
        self.others = False
        """True if another writer has committed since this was last set to False."""
        self._ids = KeptIds(table)
        self._seen = table.head  # ids and positions are complete up to this head, even if the last `look` failed

    def look(self) -> None:
        """Read the commits of other writers."""
        self.table.refresh()
        if self.table.head == self._seen:
            return
        self.others = True
        if self._seen is None or not self.table.has(self._seen):
            self._ids.forget()
            self.positions.forget()
        elif (added := self.table.appended_since(self._seen, (*_ID, "topic_id"))) is not None:
            self._ids.add(added.filter(pc.is_null(added["topic_id"])))
        self._seen = self.table.head

    def add(
        self,
        rows: Sequence[Mapping[str, Any]],
        reached: Mapping[str, str],
        resumed: Mapping[str, str | None],
        marks: Mapping[str, str],
    ) -> int:
        """Add the rows of messages that the table lacks, and the new positions of their source.

        Args:
            reached: New positions, as snapshot properties.
            resumed: The values of these properties when the source was read.
            marks: Table properties to set in the same commit. They alone do not cause a commit.

        Returns:
            The number of added rows.

        Raises:
            SourceAdvanced: another run has read the source further in the meantime; nothing was written.
            CommitConflict: at each try, another writer has committed first.
        """

        def _added() -> int:
            now = {name: self.positions.of(name) for name in reached}
            if now not in (dict(resumed), dict(reached)):
                raise SourceAdvanced(
                    f"{self.table.table.name}: another run has read the source further in the meantime"
                )
            if reached and now == reached:
                return 0  # this run or another one has already committed these rows
            # Offsets are exact: no record after the position is in the table.
            new = _each_once(rows) if reached else self._new(rows)
            if not new and not reached:
                return 0
            made, properties = rows_of(self.table.schema, new), {**self.positions.carried(), **reached}
            self.table.commit(TableCommit(made, properties=properties, marks=marks))
            if not reached:
                self._ids.add(made)
            self._seen = self.table.head
            return len(new)

        return until_committed(_added, self.table.table.name, look_again=self.look)

    def _new(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        ids = {row["message_id"]: row["sent_at"] for row in rows}
        known = self._ids.knows(ids)
        return _each_once([row for row in rows if row["message_id"] not in known])


def _each_once(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({row["message_id"]: row for row in rows}.values())


def oldest_by(rows: pa.Table, column: str) -> dict[Any, datetime]:
    """Return the earliest sending time of the messages, by the value of a column."""
    if not rows.num_rows:
        return {}
    grouped = rows.group_by(column).aggregate([("sent_at", "min")])
    return dict(zip(grouped[column].to_pylist(), grouped["sent_at_min"].to_pylist(), strict=True))


def highest_offsets(table: Appendable, source: str, topic_id: str | None = None) -> tuple[str, dict[int, int]] | None:
    """Return a topic id with its highest offset by partition; None if the table has no row of this source.

    Args:
        source: The name of the inlet, `kafka:<topic>`.
        topic_id: The preferred id. If it has no rows, the id with the latest `sent_at` is used.
    """
    highest: dict[str, dict[int, int]] = {}
    newest: dict[str, datetime] = {}
    columns = ("message_source", "topic_id", "topic_partition", "topic_offset", "sent_at")
    for batch in table.batches(begins_with("message_source", f"{source}/"), columns):
        grouped = pa.Table.from_batches([batch]).group_by(["topic_id", "topic_partition"])
        for row in grouped.aggregate([("topic_offset", "max"), ("sent_at", "max")]).to_pylist():
            of_topic, partition, offset = row["topic_id"], row["topic_partition"], row["topic_offset_max"]
            offsets = highest.setdefault(of_topic, {})
            offsets[partition] = max(offset, offsets.get(partition, offset))
            newest[of_topic] = max(row["sent_at_max"], newest.get(of_topic, row["sent_at_max"]))
    if not highest:
        return None
    chosen = topic_id if topic_id is not None and topic_id in highest else max(newest, key=lambda each: newest[each])
    return chosen, highest[chosen]
