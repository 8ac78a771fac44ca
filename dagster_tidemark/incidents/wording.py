"""Messages in words: late assets, their lags, the cause, the owners, and the next step.

Pure. Every channel renders the same report. Does not belong here: the markup of a channel (`incidents.channels`).
"""

from dataclasses import dataclass
from urllib.parse import quote

from dagster_tidemark.incidents.incident import CauseKind, Incident, IncidentMessage, LateAsset, MessageKind
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.wording import moment, names

_LISTED = 12
_LONGEST_TITLE, _LONGEST_FACT = 400, 1_000  # characters
_DELAYED_SECONDS = 60.0
_LASTING = (CauseKind.PLATFORM, CauseKind.PAUSED, CauseKind.QUEUE)
"""Causes whose evidence has one time: their beginning."""


@dataclass(frozen=True)
class IncidentReport:
    """A message in words.

    Args:
        title: One line.
        facts: Names and values, in the order of their importance.
        link: Address of the asset in Dagster's UI; empty if none is known.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    link: str = ""

    @property
    def text(self) -> str:
        """The report as plain text."""
        lines = [self.title, *(f"{name}: {value}" for name, value in self.facts)]
        return "\n".join([*lines, self.link] if self.link else lines)


def report(message: IncidentMessage, now: float, ui_url: str = "") -> IncidentReport:
    """Return a message in words. `now` is the time of sending (Unix seconds)."""
    incident = message.incident
    facts = [*_about(incident, message.kind, message.at)]
    if now - message.at > _DELAYED_SECONDS:
        facts.append(("sent late", f"this message was written {span(now - message.at)} ago, at {moment(message.at)}"))
    shown = tuple((name, one_line(value, _LONGEST_FACT)) for name, value in facts)
    return IncidentReport(title(incident, message.kind), shown, link(incident, ui_url))


def one_line(text: str, longest: int) -> str:
    """Return a text as one line that every channel accepts: shortened, without control characters and surrogates.

    Errors of user code and names of files may hold any character.
    """
    valid = text[: 4 * longest].encode(errors="replace").decode()
    line = " ".join("".join(each if each.isprintable() else " " for each in valid).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def title(incident: Incident, kind: MessageKind = MessageKind.OPENED) -> str:
    """Return an incident in one line: the late assets, and why they are late."""
    if kind is MessageKind.CLOSED:
        return one_line(f"closed after {_lasted(incident)}: {_recovery(incident)}", _LONGEST_TITLE)
    prefix = {MessageKind.CHANGED: "changed: ", MessageKind.ACKNOWLEDGED: "acknowledged: "}.get(kind, "")
    return one_line(prefix + ": ".join(filter(None, (_extent(incident), _blame(incident)))), _LONGEST_TITLE)


def _extent(incident: Incident) -> str:
    late = [each for each in incident.still_late if each.is_late]
    soon = [each for each in incident.still_late if not each.is_late]
    parts = [f"{_some(late)} {_be(late)} late" if late else "", f"{_some(soon)} will be late" if soon else ""]
    return ", ".join(filter(None, parts))


def _recovery(incident: Incident) -> str:
    still = [each for each in incident.assets if each.asset in incident.still_late_by]
    late = [each for each in incident.assets if each.is_late and each.asset not in incident.still_late_by]
    said = [f"{_some(late)} {_be(late)} no longer late"] if late else []
    if still:
        others = names(dict.fromkeys(incident.still_late_by.values()))
        said.append(f"{_some(still)} {_be(still)} still late, see {others}")
    if said:
        return ", ".join(said)
    return "every deadline was met" if incident.assets else f"no more {incident.cause.kind}"


def _be(assets: list[LateAsset]) -> str:
    return "is" if len(assets) == 1 else "are"


def _lasted(incident: Incident) -> str:
    return span((incident.closed_at or incident.opened_at) - incident.opened_at)


def _blame(incident: Incident) -> str:
    cause = incident.cause
    said = f"data of {cause.subject} is missing" if cause.kind is CauseKind.MISSING else cause.said
    return said if incident.cause_ended_at is None else f"{said}, until {moment(incident.cause_ended_at)}"


def _about(incident: Incident, kind: MessageKind, at: float) -> list[tuple[str, str]]:
    cause = incident.cause
    number = ("incident", f"{incident.id}, opened at {moment(incident.opened_at)}")
    if kind is MessageKind.CLOSED:
        late = [each for each in incident.assets if each.is_late]
        was_late = _some(late) if late else "nothing" if incident.still_late_by else "nothing: every deadline was met"
        return [("cause was", cause.said), ("was late", was_late), number]
    late = [each for each in incident.still_late if each.is_late]
    soon = [each for each in incident.still_late if not each.is_late]
    facts = [("cause", cause.said)]
    if cause.kind in _LASTING and cause.since and moment(cause.since) not in cause.said:
        facts.append(("since", moment(cause.since)))
    facts += [("late", _late(each, at)) for each in late[:_LISTED]]
    facts += [("late soon", _late(each, at)) for each in soon[: max(0, _LISTED - len(late))]]
    if (rest := len(late) + len(soon) - _LISTED) > 0:
        facts.append(("and", f"{rest} more: tidemark incidents {incident.id}"))
    arrivals = [each.arrived_at for each in late if each.arrived_at is not None]
    if arrivals:
        facts.append(("data as of", moment(min(arrivals))))
    facts.append(("owners", ", ".join(incident.owners) or "none declared"))
    facts.append(("next", next_by_itself(incident)))
    if cause.remedy:
        facts.append(("to do", cause.remedy))
    if incident.acknowledged is not None:
        note = incident.acknowledged
        facts.append(("acknowledged", f"{note.because}, until {moment(note.until)}"))
    return [*facts, number]


def next_by_itself(incident: Incident) -> str:
    """Return the platform's next step without a person."""
    cause = incident.cause
    if cause.kind is CauseKind.MISSING:
        return "the late tables are built when the data arrives"
    if cause.kind is CauseKind.INCOMPLETE:
        return "the late tables are built again when complete data arrives"
    if incident.cause_ended_at is not None:
        return "the cause is gone; the late tables are being built"
    if cause.kind is CauseKind.QUEUE:
        return "the run starts when a slot is free"
    if cause.kind is CauseKind.PLATFORM and not cause.repairs_itself:
        return "nothing until this is repaired; then the late tables are built"
    if not cause.repairs_itself:
        return "nothing: it waits for a person"
    if cause.next_try is not None:
        return f"it is tried again at {moment(cause.next_try)}"
    if cause.kind is CauseKind.CHECK:
        return "the check is run again, with growing pauses; its readers are built after it has passed"
    return "the late tables are being built"


def _late(each: LateAsset, at: float) -> str:
    keys = f" {names(each.partitions)}" if each.partitions else ""
    more = f" and {each.count - len(each.partitions)} more" if each.count > len(each.partitions) > 0 else ""
    if each.deadline is None:
        return f"{each.asset}{keys}{more}, no sensor judges it"
    left = f"{span(at - each.deadline)} ago" if at > each.deadline else f"in {span(each.deadline - at)}"
    return f"{each.asset}{keys}{more}, due {left}, at {moment(each.deadline)}"


def _some(late: list[LateAsset]) -> str:
    return names(each.asset for each in late)


def link(incident: Incident, ui_url: str) -> str:
    """Return the address of the asset at fault, or of the first late asset, in Dagster's UI."""
    asset = incident.cause.asset or next((each.asset for each in incident.assets), "")
    return f"{ui_url.rstrip('/')}/assets/{quote(asset)}" if ui_url and asset else ""
