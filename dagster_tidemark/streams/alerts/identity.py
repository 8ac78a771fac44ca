"""The assignment of alerts to episodes after new messages: plain data in, changes out.

Each standing alert has one episode, each episode has one standing alert, and the alert records the start of its
episode. After new messages, an episode keeps the alert of the earlier episode that it overlaps. If several alerts
match one episode, the alert that was raised first stays. If one alert matches several episodes, the first episode
gets the alert.
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
    """A condition that lasted from one message to another, both included.

    Args:
        facts: The values that an alert reports.
    """

    started_at: datetime
    last_at: datetime
    facts: Mapping[str, Any] = field(default_factory=dict)

    def overlaps(self, other: Episode) -> bool:
        """Return True if the two episodes overlap in time."""
        return self.started_at <= other.last_at and other.started_at <= self.last_at


@dataclass(frozen=True)
class Alert:
    """A standing alert: raised, and not retracted.

    Args:
        started_at: The start of the alert's episode.
        raised_in: The number of the commit that raised it; None if that commit is not made yet.
        facts: The values that the alert reported when it was raised.
    """

    alert_id: str
    started_at: datetime
    raised_at: datetime | None = None
    raised_in: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> tuple[bool, int, datetime, str]:
        """Sort key: the alert that was raised first has the smallest key."""
        return (self.raised_in is None, self.raised_in or 0, self.started_at, self.alert_id)


@dataclass(frozen=True)
class AlertChanges:
    """Changes of the alerts of one key.

    Args:
        moved: Alerts that stay, but whose episode now starts at another time. They contain the new start.
    """

    raised: tuple[Alert, ...] = ()
    moved: tuple[Alert, ...] = ()
    retracted: tuple[Alert, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.raised or self.moved or self.retracted)

    def applied(self, standing: Iterable[Alert]) -> list[Alert]:
        """Return the standing alerts after these changes."""
        gone = {alert.alert_id for alert in (*self.retracted, *self.moved)}
        return [*(alert for alert in standing if alert.alert_id not in gone), *self.moved, *self.raised]


def reconcile(
    rule: str, key: str, standing: Sequence[Alert], *, before: Sequence[Episode], after: Sequence[Episode]
) -> AlertChanges:
    """Return the changes of the alerts of one key.

    Args:
        standing: The standing alerts of the period that contains the episodes.
        before: The alerts' episodes before the change. An alert without one counts as an episode of a single moment.
        after: The current episodes, in time order.
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
    return AlertChanges(tuple(raised), tuple(moved), tuple(a for a in left if a.alert_id not in kept))


def new_id(rule: str, key: str, started_at: datetime, times: int = 0) -> str:
    """Return the id of an alert. Every run computes the same id.

    Args:
        times: The number of earlier alerts with this rule, key and start.
    """
    return str(uuid.uuid5(_SPACE, f"{rule}\n{key}\n{started_at.isoformat()}\n{times}"))
