"""Lifecycle of incidents: each opens once for a root cause, grows, and closes once. Each change gets a message.

Pure: the functions take a book and return the next one. A book holds incidents and messages, so that storing it stores
both. Does not belong here: root causes (`incidents.causes`), and sending (`incidents.sender`).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from dagster_tidemark.incidents.incident import (
    Acknowledgement,
    Book,
    CauseKind,
    Incident,
    IncidentMessage,
    LateAsset,
    MessageKind,
    Mute,
    RootCause,
    TimelineStep,
    Told,
    Trouble,
    incident_id,
)
from dagster_tidemark.incidents.routing import Route, muted_by
from dagster_tidemark.planner.wording import moment, names

CLEAR_SECONDS = 60.0
"""An incident closes when its cause has made nothing late for this long. A shorter pause is the same incident."""
CHANGE_SECONDS = 600.0
"""Shortest time between two messages `changed` about an incident."""
_STEPS = 100
_OF_ARRIVALS = (CauseKind.MISSING, CauseKind.INCOMPLETE)
_CATCHING_UP = (CauseKind.SLOW, CauseKind.QUEUE, CauseKind.NOT_REQUESTED)
"""Causes that may be after-effects of an ended cause: the work that piled up."""
_FAILING_READERS = (CauseKind.PLATFORM, CauseKind.CHECK, CauseKind.FAILING)
"""Causes that let runs of readers fail. A run that stops at an asset or a check counts as failed for readers in it."""


def reviewed(
    book: Book,
    troubles: Iterable[Trouble],
    routes: Sequence[Route],
    now: float,
    *,
    location: str,
    may_close: bool = True,
    unread: Collection[str] = (),
) -> Book:
    """Return the book, updated by the present troubles.

    Args:
        troubles: The root causes at present, with the contracts that each makes late.
        routes: The channels.
        may_close: False if the troubles are incomplete: then no incident closes.
        unread: Sources whose arrivals cannot be computed. Incidents about them do not close.
    """
    current, ended = _attributed(book, list(troubles), now)
    blind = {
        each.asset for trouble in current.values() if trouble.cause.kind is CauseKind.PLATFORM for each in trouble.late
    }
    incidents: list[Incident] = []
    for incident in book.incidents:
        trouble = current.pop(incident.cause.key, None) if incident.is_open else None
        if trouble is not None:
            is_gone = incident.cause.key in ended
            incidents.append(_continued(incident, trouble, now, is_gone=is_gone, may_recover=may_close))
        elif incident.is_open and incident.cause.kind in _OF_ARRIVALS and incident.cause.asset in unread:
            incidents.append(incident)
        elif incident.is_open and may_close and blind.isdisjoint(each.asset for each in incident.still_late):
            incidents.append(_cleared(incident, now))
        else:  # closed, or not judged while the platform is down
            incidents.append(incident)
    incidents += [_opened(location, trouble, now) for trouble in current.values()]
    closing = {incident.id for incident in book.open}
    incidents = [
        each if each.is_open or each.id not in closing else replace(each, still_late_by=_late_by(each, incidents))
        for each in incidents
    ]
    return _told(replace(book, incidents=tuple(incidents)), routes, now)


def acknowledged(book: Book, id_: str, note: Acknowledgement) -> Book:
    """Return the book with an acknowledged incident. An unknown id changes nothing."""

    def _noted(incident: Incident) -> Incident:
        return _stepped(replace(incident, acknowledged=note), note.at, "acknowledged", note.because)

    return replace(book, incidents=tuple(_noted(each) if each.id == id_ else each for each in book.incidents))


def muted(book: Book, mute: Mute) -> Book:
    """Return the book with a mute. It replaces an earlier mute of the same incident or assets."""
    kept = (each for each in book.mutes if each.what != mute.what)
    return replace(book, mutes=(*kept, mute))


def unmuted(book: Book, what: str) -> Book:
    """Return the book without a mute."""
    return replace(book, mutes=tuple(mute for mute in book.mutes if mute.what != what))


def _attributed(book: Book, troubles: Sequence[Trouble], now: float) -> tuple[dict[str, Trouble], set[str]]:
    """Return the troubles by cause, and the ended causes whose assets are still late.

    After a failing table is repaired, its readers are late until they are built as well. After a service was down or a
    check failed, failed runs and piled-up data remain. Such assets stay with the ended cause's incident, unless a run
    fails again.
    """
    found = {trouble.cause.key: trouble for trouble in troubles}
    ended = {incident.cause.key for incident in book.open if incident.cause.key not in found}
    for incident in book.open:
        named = {each.asset for each in incident.assets if now - (each.recovered_at or now) < CLEAR_SECONDS}
        for key, trouble in list(found.items()):
            theirs = tuple(late for late in trouble.late if late.asset in named)
            is_other = book.of(key) is None and _follows(trouble.cause, incident, has_ended=incident.cause.key in ended)
            if not theirs or not is_other:
                continue
            before = found.get(incident.cause.key, Trouble(incident.cause))
            known = {late.asset for late in before.late}
            more = (late for late in theirs if late.asset not in known)
            found[incident.cause.key] = replace(before, late=(*before.late, *more))
            rest = tuple(late for late in trouble.late if late.asset not in named)
            if rest:
                found[key] = replace(trouble, late=rest)
            else:
                del found[key]
    return found, ended


def _follows(cause: RootCause, incident: Incident, *, has_ended: bool) -> bool:
    """Return True if a cause without an incident may be an effect of an incident."""
    if cause.kind in _CATCHING_UP:
        return True
    if not has_ended or incident.cause.kind not in _FAILING_READERS:
        return False
    if incident.cause.kind is CauseKind.FAILING and cause.asset not in {each.asset for each in incident.assets}:
        return False
    if cause.kind is not CauseKind.FAILING:  # the outage that the incident is about
        return incident.cause.kind is cause.kind is CauseKind.PLATFORM and cause.repairs_itself
    # A run that failed after the service was back, after the check passed, or after the input was built failed for
    # another reason.
    return incident.cause_ended_at is None or cause.since <= incident.cause_ended_at


def _opened(location: str, trouble: Trouble, now: float) -> Incident:
    id_ = incident_id(location, trouble.cause.key, now)
    step = TimelineStep(now, "opened", f"{trouble.cause.said}; {_counted(trouble.late)}")
    return Incident(id_, trouble.cause, now, _merged((), trouble.late, now), timeline=(step,))


def _continued(incident: Incident, trouble: Trouble, now: float, *, is_gone: bool, may_recover: bool) -> Incident:
    """Return an incident with the present troubles of its cause.

    Args:
        is_gone: True if the cause has ended, and only the work that piled up is late.
    """
    before = {each.asset for each in incident.assets}
    grown = replace(
        incident,
        cause=trouble.cause,
        assets=_merged(incident.assets, trouble.late, now, may_recover=may_recover),
        clear_since=None,
        cause_ended_at=(incident.cause_ended_at or now) if is_gone else None,
    )
    if new := [each.asset for each in trouble.late if each.asset not in before]:
        grown = _stepped(grown, now, "grew", names(new))
    if grown.is_late and not incident.is_late:
        grown = _stepped(grown, now, "late", names(each.asset for each in grown.assets if each.is_late))
    return grown


def _cleared(incident: Incident, now: float) -> Incident:
    since = min(now, incident.clear_since) if incident.clear_since is not None else now  # the clock may be set back
    ended_at = incident.cause_ended_at or now
    assets = tuple(replace(each, recovered_at=each.recovered_at or now) for each in incident.assets)
    cleared = replace(incident, clear_since=since, cause_ended_at=ended_at, assets=assets)
    if now - since < CLEAR_SECONDS:
        return cleared
    return _stepped(replace(cleared, closed_at=now), now, "closed", f"it has made nothing late since {moment(since)}")


def _late_by(closed: Incident, incidents: Iterable[Incident]) -> dict[str, str]:
    """Return the assets of a closed incident that an open one makes late, each with its id."""
    named = {each.asset for each in closed.assets}
    late = ((each.asset, other.id) for other in incidents if other.is_open for each in other.still_late if each.is_late)
    return {asset: id_ for asset, id_ in late if asset in named}


def _merged(
    known: Sequence[LateAsset], late: Sequence[LateAsset], now: float, *, may_recover: bool = True
) -> tuple[LateAsset, ...]:
    """Return all assets so far. An asset that was late once stays marked as such."""
    current = {each.asset: each for each in late}
    merged: dict[str, LateAsset] = {}
    for each in known:
        newer = current.pop(each.asset, None)
        if newer is not None:
            merged[each.asset] = replace(newer, is_late=newer.is_late or each.is_late)
        else:
            gone = each.recovered_at or (now if may_recover else None)
            merged[each.asset] = replace(each, recovered_at=gone)
    return tuple((merged | current).values())


def _stepped(incident: Incident, at: float, what: str, said: str = "") -> Incident:
    timeline = (*incident.timeline, TimelineStep(at, what, said))
    if len(timeline) > _STEPS:  # the first and the newest steps matter most
        timeline = (*timeline[:10], *timeline[-(_STEPS - 10) :])
    return replace(incident, timeline=timeline)


def _counted(late: Sequence[LateAsset]) -> str:
    return f"{len(late)} asset{'' if len(late) == 1 else 's'} late or soon late"


# Messages.


def _told(book: Book, routes: Sequence[Route], now: float) -> Book:
    """Write a message for each channel that does not know the present state of an incident."""
    incidents: list[Incident] = []
    outbox = list(book.outbox)
    for incident in book.incidents:
        for route in routes:
            kind = _due(incident, route, book.mutes, now)
            if kind is None:
                continue
            before = incident.told.get(route.name)
            number = before.number + 1 if before else 1
            told = dict(incident.told)
            told[route.name] = Told(
                now,
                number,
                tuple(each.asset for each in incident.assets),
                incident.is_late,
                incident.acknowledged.at if incident.acknowledged else None,
                is_closed=not incident.is_open,
            )
            incident = _stepped(replace(incident, told=told), now, f"message {kind}", route.name)
            # Closing messages wait for the end of the quiet hours, like all others.
            not_before = route.silent_until(now) or 0.0
            id_ = f"{incident.id}-{sum(each.number for each in told.values())}"
            outbox.append(IncidentMessage(id_, kind, route.name, now, incident, next_try=not_before))
        incidents.append(incident)
    mutes = tuple(mute for mute in book.mutes if now < mute.until)
    return replace(book, incidents=tuple(incidents), outbox=tuple(outbox), mutes=mutes)


def _due(incident: Incident, route: Route, mutes: Sequence[Mute], now: float) -> MessageKind | None:
    """Return the kind of message that a channel must get about an incident, or None."""
    told = incident.told.get(route.name)
    if not incident.is_open:
        return None if told is None or told.is_closed else MessageKind.CLOSED
    if told is None:
        if not route.takes(incident) or incident.clear_since is not None:
            return None
        waits = route.silent_until(now) is not None or muted_by(incident, mutes, now) is not None
        return None if waits else MessageKind.OPENED
    note = incident.acknowledged
    if note is not None and told.acknowledged_at != note.at:
        return MessageKind.ACKNOWLEDGED
    if (note is not None and now < note.until) or muted_by(incident, mutes, now) or route.silent_until(now):
        return None
    news = {each.asset for each in incident.still_late} - set(told.assets)
    is_news = bool(news) or (incident.is_late and not told.is_late)
    is_soon = 0 <= now - told.at < CHANGE_SECONDS  # after the clock was set back, the last message is in the future
    return MessageKind.CHANGED if is_news and not is_soon else None
