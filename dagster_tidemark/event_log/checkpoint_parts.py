"""A checkpoint in parts, saved and loaded in slices: Dagster ends a sensor's tick after a minute.

The head records how far the event log was read when saving began. Each asset has separate parts for its rows. Rows may
be newer than the head: the events in between are read again after a restart, and an event that is read twice does no
harm. Parts of an asset alternate between two places, so an interrupted save leaves the former save whole.

Belongs here: parts, and their place in the instance's storage. Does not belong here: the format of a head and of a row
(`event_log.checkpoint`), and when a checkpoint is saved (`event_log.consumer`).
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.event_log import checkpoint
from dagster_tidemark.planner.history import History
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import HISTORY_PARTS

_ROWS = 20_000
"""Rows in a part. Writing or reading a part takes half a second."""

_PLACES = 2

Parts = dict[str, tuple[int, int, str]]
"""From an asset to the number of its parts, their place, and the id of the save that wrote them."""


class PartsLost(LookupError):
    """A part of a checkpoint is gone, or belongs to another save."""


@dataclass
class Saving:
    """A checkpoint that is being saved in steps.

    Args:
        key: The key of the code location's checkpoint.
        head: Content other than rows, as it was when saving began.
        parts: Parts of the former save.
        changed: Assets whose rows may differ from the former save. Other assets keep their parts.
    """

    history: History
    key: str
    head: dict[str, Any]
    parts: Parts
    changed: Collection[str]
    _id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _left: list[str] = field(init=False)
    _besides: dict[str, set[Partition]] = field(init=False)

    def __post_init__(self) -> None:
        nodes, history = self.history.graph.nodes, self.history
        self.parts = {asset: of for asset, of in self.parts.items() if asset in nodes}
        self._left = [asset for asset in nodes if asset in self.changed or asset not in self.parts]
        self._besides = {}
        # Some partitions have rows but no content, such as a failed first build or a wiped partition.
        for asset, partition in chain(history.facts.without_content(), history.failures):
            self._besides.setdefault(asset, set()).add(partition)

    def step(self, instance: DagsterInstance, stop: Callable[[], bool]) -> bool:
        """Save some assets. Return True if the checkpoint is complete."""
        while self._left:
            asset = self._left[-1]
            _, before, _ = self.parts.get(asset, (0, 0, ""))
            place, count = (before + 1) % _PLACES, 0
            for count, rows in enumerate(self._rows(asset), start=1):
                part = checkpoint.packed({"form": checkpoint.FORM_IN_PARTS, "save": self._id, "rows": rows})
                instance_store.save(instance, _key(self.key, place, asset, count), part)
            self.parts[asset] = (count, place, self._id)
            self._left.pop()
            if self._left and stop():
                return False
        head = self.head | {"form": checkpoint.FORM_IN_PARTS, "key": self.key, "parts": self.parts}
        instance_store.save(instance, self.key, checkpoint.packed(head))
        return True

    def _rows(self, asset: str) -> Iterator[list[Any]]:
        known = self.history.facts.with_content(asset) | self._besides.get(asset, set())
        targets = iter([(asset, partition) for partition in sorted(known, key=str)])
        while rows := [checkpoint.row_of(self.history, target) for target in islice(targets, _ROWS)]:
            yield rows


@dataclass
class Loading:
    """A checkpoint that is being loaded into a history in steps."""

    history: History
    state: dict[str, Any]
    read: int = 0
    _rows: Iterator[list[Any]] | None = None

    def step(self, instance: DagsterInstance, stop: Callable[[], bool]) -> bool:
        """Take some rows. Return True if all were taken.

        Raises:
            PartsLost: a part is gone, or belongs to another save.
            TypeError, ValueError: the rows have the fields of another version.
        """
        self._rows = self._rows or self._all(instance)
        known = set(self.state["assets"])
        for rows in self._rows:
            checkpoint.take_rows(self.history, rows, known)
            self.read += len(rows)
            if stop():
                return False
        return True

    def _all(self, instance: DagsterInstance) -> Iterator[list[Any]]:
        if "parts" not in self.state:  # a checkpoint of an earlier version is one text
            whole: Iterable[Any] = iter(self.state.pop("targets"))
            while rows := list(islice(whole, _ROWS)):
                yield rows
            return
        for asset, (count, place, save) in self.state["parts"].items():
            if asset not in self.history.graph.nodes:
                continue
            for number in range(1, count + 1):
                text = instance_store.saved(instance, _key(self.state["key"], place, asset, number))
                part = checkpoint.unpacked(text, checkpoint.FORM_IN_PARTS)
                if part is None or part["save"] != save:
                    raise PartsLost(f"part {number} of {asset}")
                yield part["rows"]


def _key(location: str, place: int, asset: str, number: int) -> str:
    return f"{HISTORY_PARTS}{location}/{place}/{asset}/{number}"
