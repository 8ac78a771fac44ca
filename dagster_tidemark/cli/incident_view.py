"""Formats incidents and channels for a terminal."""

from collections.abc import Sequence

from dagster_tidemark.incidents.incident import Book, Incident, MessageKind
from dagster_tidemark.incidents.sender import dead, undelivered
from dagster_tidemark.incidents.wording import next_by_itself, title
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.wording import moment, names


def lines(found: Sequence[Incident], now: float) -> list[str]:
    """Return each incident in a few lines."""
    if not found:
        return ["no incident is open"]
    return [line for incident in found for line in _brief(incident, now)]


def _brief(incident: Incident, now: float) -> list[str]:
    kind = MessageKind.OPENED if incident.is_open else MessageKind.CLOSED
    lasted = span((incident.closed_at or now) - incident.opened_at)
    said = [
        f"{incident.id} {title(incident, kind)}",
        f"  since {moment(incident.opened_at)}, {'open for' if incident.is_open else 'lasted'} {lasted}",
    ]
    late = incident.still_late if incident.is_open else incident.assets
    if late:
        said.append(f"  concerns {names(each.asset for each in late)}")
    if incident.is_open:
        said.append(f"  next: {next_by_itself(incident)}")
        if incident.cause.remedy:
            said.append(f"  to do: {incident.cause.remedy}")
        told = ", ".join(incident.told) or "no channel"
        said.append(f"  reported to: {told}")
    if incident.acknowledged is not None and incident.is_open:
        note = incident.acknowledged
        said.append(f"  acknowledged until {moment(note.until)}: {note.because}")
    return said


def timeline(incident: Incident, now: float) -> list[str]:
    """Return the lines of an incident with its assets and its history."""
    assets = [
        f"  {each.asset} {', '.join(each.partitions)}: "
        + (f"promised for {moment(each.deadline)}" if each.deadline else "no sensor judges it")
        + (
            f", {'was late' if each.is_late else 'was in danger'} until {moment(each.recovered_at)}"
            if each.recovered_at
            else f", {'late' if each.is_late else 'late soon'}"
        )
        + (f" ({', '.join(each.owners)})" if each.owners else "")
        for each in incident.assets
    ]
    steps = [f"  {moment(step.at)} {step.what}{': ' if step.said else ''}{step.said}" for step in incident.timeline]
    return [*_brief(incident, now), "assets:", *assets, "timeline:", *steps]


def channel_lines(book: Book, now: float) -> list[str]:
    """Return a line for each mute and each dead channel, and a line about undelivered messages."""
    found = [
        f"muted until {moment(mute.until)}: {mute.what} ({mute.because})" for mute in book.mutes if now < mute.until
    ]
    found += dead_lines(book, now)
    given_up = sum(state.given_up for state in book.channels.values())
    if given_up:
        found.append(f"{given_up} messages were refused or could not be sent for a day")
    return found


def dead_lines(book: Book, now: float) -> list[str]:
    """Return a line for each dead channel, which has been unable to send for a minute, and one for waiting messages."""
    found = [
        f"channel {name} is dead since {moment(book.channels[name].failing_since or now)}: {why}"
        for name, why in dead(book, now).items()
    ]
    waiting = list(undelivered(book, now))
    if waiting:
        oldest = span(now - min(message.at for message in waiting))
        found.append(f"{len(waiting)} messages about incidents wait, the oldest for {oldest}")
    return found
