"""Which alert stands for which episode, once more is known: plain data in, changes out.

Before and after, standing alerts and episodes correspond one to one, and an alert tells when its episode started. An
episode that overlaps one for which an alert stands keeps that alert. Of several alerts that would stand for one episode
the one that was raised first stays; of several episodes that one alert could stand for the first has it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

_SPACE = uuid.UUID("6f1f5f0e-6a5b-4d8e-9b0c-0c1d7c5f6a41")


@dataclass(frozen=True)
class Episode:
    """Something that lasted, from the first message that says so to the last.

    Args:
        facts: What an alert tells of it.
    """

    started_at: datetime
    last_at: datetime
    facts: Mapping[str, Any] = field(default_factory=dict)

    def overlaps(self, other: Episode) -> bool:
        """Whether the two share a moment."""
        return self.started_at <= other.last_at and other.started_at <= self.last_at


@dataclass(frozen=True)
class Alert:
    """An alert that stands.

    Args:
        started_at: When its episode started.
        raised_in: The number of the commit that raised it; None: the one that is being made.
        facts: What it told when it was raised.
    """

    alert_id: str
    started_at: datetime
    raised_at: datetime | None = None
    raised_in: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> tuple[bool, int, datetime, str]:
        """Of two alerts the one of the smaller place was raised first."""
        return (self.raised_in is None, self.raised_in or 0, self.started_at, self.alert_id)


@dataclass(frozen=True)
class Changes:
    """What becomes of the alerts of one key.

    Args:
        moved: They stand on, for an episode that started at another time.
    """

    raised: tuple[Alert, ...] = ()
    moved: tuple[Alert, ...] = ()
    retracted: tuple[Alert, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.raised or self.moved or self.retracted)

    def applied(self, standing: Iterable[Alert]) -> list[Alert]:
        """The alerts that stand afterwards."""
        gone = {alert.alert_id for alert in (*self.retracted, *self.moved)}
        return [*(alert for alert in standing if alert.alert_id not in gone), *self.moved, *self.raised]


def reconcile(
    rule: str, key: str, standing: Sequence[Alert], *, before: Sequence[Episode], after: Sequence[Episode]
) -> Changes:
    """What becomes of the alerts of one key.

    Args:
        standing: The alerts of the stretch that the episodes are of.
        before: The episodes that the alerts stand for. Of an alert without one here the moment it started counts.
        after: The episodes as they are known now, in their order.
    """
    by_start = {episode.started_at: episode for episode in before}
    extents = {
        alert.alert_id: by_start.get(alert.started_at, Episode(alert.started_at, alert.started_at))
        for alert in standing
    }
    left = sorted(standing, key=lambda alert: alert.place)
    raised, moved, kept = list[Alert](), list[Alert](), set[str]()
    for episode in after:
        found = next(
            (a for a in left if a.alert_id not in kept and episode.overlaps(extents[a.alert_id])),
            None,
        )
        if found is None:
            raised.append(Alert(new_id(rule, key, episode.started_at), episode.started_at, facts=episode.facts))
            continue
        kept.add(found.alert_id)
        if found.started_at != episode.started_at:
            moved.append(replace(found, started_at=episode.started_at))
    return Changes(tuple(raised), tuple(moved), tuple(a for a in left if a.alert_id not in kept))


def new_id(rule: str, key: str, started_at: datetime, times: int = 0) -> str:
    """The id of an alert: the same for whoever raises it.

    Args:
        times: How many alerts of this rule, key and start there were before.
    """
    return str(uuid.uuid5(_SPACE, f"{rule}\n{key}\n{started_at.isoformat()}\n{times}"))
