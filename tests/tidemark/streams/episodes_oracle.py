"""When alerts have to stand, and which of them go on, worked out from bare facts.

By the rule's words, over all readings of a device at once, with no state that goes from one reading to the next. Does
not belong here: anything imported from `pipelines`: an oracle that shares code with what it judges repeats its errors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

Span = tuple[datetime, datetime]
"""First and last reading of an episode."""


def episodes(degrees: Mapping[datetime, float]) -> list[Span]:
    """The episodes of a device that are worth an alert, from all that it has read."""
    times = sorted(degrees)
    ends_before = {
        later for earlier, later in pairwise(times) if later - earlier > timedelta(minutes=15) or degrees[later] < 6.0
    }
    # A piece between two ends may begin with readings that start nothing: cool ones, and warm ones that are not above.
    ends_before |= {later for earlier, later in pairwise(times) if degrees[earlier] < 6.0}
    pieces: list[list[datetime]] = []
    for time in times:
        if time in ends_before or not pieces:
            pieces.append([])
        pieces[-1].append(time)
    found = []
    for piece in pieces:
        above = [time for time in piece if degrees[time] > 8.0]
        if above and piece[-1] - above[0] >= timedelta(minutes=10):
            found.append((above[0], piece[-1]))
    return found


@dataclass(frozen=True)
class Standing:
    """An alert that stands.

    Args:
        raised_in: A number: what has a smaller one was raised earlier.
    """

    alert_id: str
    started_at: datetime
    raised_at: int


def overlapping(
    standing: Sequence[Standing], known: Iterable[Span], after: Iterable[Span]
) -> dict[datetime, list[Standing]]:
    """By the start of each episode of now the alerts whose episode of before shares a moment with it.

    Args:
        standing: The alerts of a device before.
        known: The episodes of before. Of an alert without one the moment counts in which it started.
    """
    lasted = {start: (start, last) for start, last in known}
    extent = {a.alert_id: lasted.get(a.started_at, (a.started_at, a.started_at)) for a in standing}
    return {
        start: [a for a in standing if extent[a.alert_id][0] <= last and start <= extent[a.alert_id][1]]
        for start, last in after
    }


def faults_of_ids(
    standing: Sequence[Standing], overlaps: Mapping[datetime, Sequence[Standing]], now: Mapping[datetime, str]
) -> list[str]:
    """What is wrong about which alerts go on.

    Args:
        standing: The alerts of a device before.
        overlaps: From `overlapping`.
        now: By the start of its episode the id of each alert that stands.
    """
    episode_of = {alert_id: start for start, alert_id in now.items()}
    were = {a.alert_id: a for a in standing}
    faults = []
    for start, could in sorted(overlaps.items()):
        has, ids = now[start], {a.alert_id for a in could}
        if has in were and has not in ids:
            faults.append(f"{start}: {has} goes on for an episode that it does not overlap")
        if has not in were and any(episode_of.get(each, start) >= start for each in ids):
            faults.append(f"{start}: raised anew though an alert that overlaps it is not needed earlier")
        first = min((a.raised_at for a in could), default=None)
        if first is not None and not any(a.raised_at == first and a.alert_id in episode_of for a in could):
            faults.append(f"{start}: the alert that was raised first is retracted")
    for alert in standing:
        mine = [start for start, could in sorted(overlaps.items()) if alert in could]
        stands_for = episode_of.get(alert.alert_id)
        if stands_for is not None and not mine:
            faults.append(f"{alert} goes on though it overlaps nothing")
        if stands_for is not None and mine and stands_for != mine[0]:
            taken_by = were.get(now[mine[0]])
            if taken_by is None or taken_by.raised_at > alert.raised_at:
                faults.append(f"{alert} does not go on for the first episode that it overlaps")
    return faults
