"""Messages in words: late assets, their lags, the cause, the owners, and the next step.

Pure. Every channel renders the same report. Does not belong here: the markup of a channel (`incidents.channels`).
"""

from dataclasses import dataclass
from urllib.parse import quote

from dagster_tidemark.incidents.incident import CauseKind, Incident, IncidentMessage, LateAsset, MessageKind
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.wording import moment, names

_LISTED = 12
_DELAYED_SECONDS = 60.0


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
    return IncidentReport(title(incident, message.kind), tuple(facts), link(incident, ui_url))


def title(incident: Incident, kind: MessageKind = MessageKind.OPENED) -> str:
    """Return an incident in one line."""
    what = {
        MessageKind.OPENED: _extent(incident),
        MessageKind.CHANGED: f"changed, {_extent(incident)}",
        MessageKind.ACKNOWLEDGED: f"acknowledged, {_extent(incident)}",
        MessageKind.CLOSED: "closed",
    }[kind]
    return f"{incident.id} {what}: {_blame(incident)}"


def _extent(incident: Incident) -> str:
    late = [each for each in incident.still_late if each.is_late]
    soon = len(incident.still_late) - len(late)
    parts = [f"{len(late)} late" if late else "", f"{soon} soon late" if soon else ""]
    return ", ".join(filter(None, parts)) or "open"


def _blame(incident: Incident) -> str:
    cause = incident.cause
    if cause.kind is CauseKind.MISSING:
        return f"data of {cause.subject} is missing"
    return cause.said


def _about(incident: Incident, kind: MessageKind, at: float) -> list[tuple[str, str]]:
    cause = incident.cause
    facts = [("cause", f"{cause.kind}: {cause.said}")]
    if kind is MessageKind.CLOSED:
        lasted = (incident.closed_at or at) - incident.opened_at
        late = [each for each in incident.assets if each.is_late]
        facts.append(("lasted", span(lasted)))
        facts.append(("was late", _some(late) if late else "nothing: every deadline was met"))
        return facts
    late = [each for each in incident.still_late if each.is_late]
    soon = [each for each in incident.still_late if not each.is_late]
    facts += [("late", _late(each, at)) for each in late[:_LISTED]]
    facts += [("soon late", _late(each, at)) for each in soon[: max(0, _LISTED - len(late))]]
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
    return facts


def next_by_itself(incident: Incident) -> str:
    """Return the platform's next step without a person."""
    cause = incident.cause
    if cause.kind is CauseKind.MISSING:
        return "it is built when the data arrives; nothing else helps"
    if cause.kind is CauseKind.INCOMPLETE:
        return "it is built again when the complete data arrives"
    if incident.cause_ended_at is not None:
        return "the cause is gone; the late assets are being built"
    if not cause.repairs_itself:
        return "nothing: it waits for a person"
    if cause.next_try is not None:
        return f"it is tried again at {moment(cause.next_try)}"
    return "it is being built"


def _late(each: LateAsset, at: float) -> str:
    keys = f" {names(each.partitions)}" if each.partitions else ""
    more = f" and {each.count - len(each.partitions)} more" if each.count > len(each.partitions) > 0 else ""
    if each.deadline is None:
        return f"{each.asset}{keys}{more}, no sensor judges it"
    if at > each.deadline:
        return f"{each.asset}{keys}{more} for {span(at - each.deadline)}, promised for {moment(each.deadline)}"
    return f"{each.asset}{keys}{more}, promised for {moment(each.deadline)}"


def _some(late: list[LateAsset]) -> str:
    return names(each.asset for each in late)


def link(incident: Incident, ui_url: str) -> str:
    """Return the address of the asset at fault, or of the first late asset, in Dagster's UI."""
    asset = incident.cause.asset or next((each.asset for each in incident.assets), "")
    return f"{ui_url.rstrip('/')}/assets/{quote(asset)}" if ui_url and asset else ""
