"""Values of incidents: root causes, late assets, incidents, messages, and the book that holds them.

Plain data, stored as JSON. All times are Unix seconds. Does not belong here: how they change (`incidents.lifecycle`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

BOOK_VERSION = 1


class CauseKind(StrEnum):
    """Kind of a root cause, in the words of messages."""

    MISSING = "missing data"
    """A source has no data for a window. The pipeline is not at fault."""
    INCOMPLETE = "incomplete data"
    """The data of a window came, and is empty, repeated or less than declared."""
    FAILING = "failing asset"
    CHECK = "blocking check"
    SLOW = "slow run"
    QUEUE = "run queue"
    PLATFORM = "platform"
    """A service, a sensor or the daemon that everything below it needs."""
    SET_ASIDE = "set aside"
    PAUSED = "paused"
    """A person has paused an asset or a stream."""
    NOT_REQUESTED = "not requested"
    """A run that no sensor requests, or that did not start after its request."""
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True)
class RootCause:
    """A root cause at one moment.

    Args:
        subject: The source, asset, check or service at fault. Kind and subject identify the cause.
        asset: The asset for links and routes; empty if the cause is not an asset.
        said: The cause in words. It must not hold an age: each changed text is stored again.
        since: Time of the newest evidence of the cause; 0 if none has a time.
        remedy: Next step for a person.
        repairs_itself: True if the platform retries by itself. Otherwise it waits for data or for a person.
        next_try: Time of the next attempt, if it is known.
    """

    kind: CauseKind
    subject: str
    said: str
    since: float
    asset: str = ""
    remedy: str = ""
    repairs_itself: bool = False
    next_try: float | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}: {self.subject}"


@dataclass(frozen=True)
class LateAsset:
    """An asset with a contract that is late or will be late.

    Args:
        partitions: Some of its late partitions, the earliest deadline first.
        count: Number of its late partitions.
        arrived_at: Arrival of the oldest data that it does not contain; None if none is known.
        deadline: Earliest deadline that is or will be missed; None if no sensor judges the asset.
        is_late: True if the deadline has passed.
        recovered_at: Time since which it is no longer late; None while it is late.
    """

    asset: str
    partitions: tuple[str, ...] = ()
    count: int = 1
    arrived_at: float | None = None
    deadline: float | None = None
    is_late: bool = False
    owners: tuple[str, ...] = ()
    group: str = ""
    recovered_at: float | None = None


@dataclass(frozen=True)
class Trouble:
    """A root cause with the assets that it makes late, at one moment."""

    cause: RootCause
    late: tuple[LateAsset, ...] = ()


@dataclass(frozen=True)
class TimelineStep:
    """A step in the timeline of an incident."""

    at: float
    what: str
    said: str = ""


@dataclass(frozen=True)
class Acknowledgement:
    """A person's note to work on an incident until a time."""

    at: float
    until: float
    because: str


@dataclass(frozen=True)
class Told:
    """The last message about an incident that was written for a channel.

    Args:
        number: Number of messages written for the channel.
        assets: The assets that the channel knows of.
        is_late: True if the channel knows that a deadline has passed.
        acknowledged_at: Time of the acknowledgement that the channel knows of.
        is_closed: True if the channel knows that the incident is closed.
    """

    at: float
    number: int
    assets: tuple[str, ...] = ()
    is_late: bool = False
    acknowledged_at: float | None = None
    is_closed: bool = False


@dataclass(frozen=True)
class Incident:
    """One root cause from its opening to its closing.

    Args:
        assets: Every asset that it made late, or was about to make late.
        clear_since: Time since which the cause makes no asset late; None while an asset is late because of it.
        cause_ended_at: Time when the cause ended. Assets may be late for longer.
        still_late_by: Assets that were still late when it closed, each with the id of the open incident about them.
        told: The last message for each channel, by channel name.
        threads: Thread of the incident in each channel, by channel name.
    """

    id: str
    cause: RootCause
    opened_at: float
    assets: tuple[LateAsset, ...] = ()
    closed_at: float | None = None
    clear_since: float | None = None
    cause_ended_at: float | None = None
    acknowledged: Acknowledgement | None = None
    still_late_by: dict[str, str] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    threads: dict[str, str] = field(default_factory=dict)
    timeline: tuple[TimelineStep, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.closed_at is None

    @property
    def still_late(self) -> tuple[LateAsset, ...]:
        """The assets that are late or will be late, the earliest deadline first."""
        late = [asset for asset in self.assets if asset.recovered_at is None]
        return tuple(sorted(late, key=lambda asset: (asset.deadline or 0.0, asset.asset)))

    @property
    def is_late(self) -> bool:
        """True if a deadline has already passed."""
        return any(asset.is_late for asset in self.assets)

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners of its assets. The owners of the asset at fault come first."""
        ordered = sorted(self.assets, key=lambda asset: asset.asset != self.cause.asset)
        return tuple(dict.fromkeys(owner for asset in ordered for owner in asset.owners))


class MessageKind(StrEnum):
    """Kind of a message."""

    OPENED = "opened"
    CHANGED = "changed"
    ACKNOWLEDGED = "acknowledged"
    CLOSED = "closed"


@dataclass(frozen=True)
class IncidentMessage:
    """A message in the outbox.

    Args:
        id: Id of the message, equal for all attempts, so that receivers can drop repeats.
        incident: The incident as it was when the message was written.
        attempts: Number of attempts that began.
        next_try: Earliest time of an attempt: the end of the channel's quiet hours if it waits for them.
        error: Reason why the last attempt failed.
        pause_until: Earliest time of the next attempt, after a failure.
    """

    id: str
    kind: MessageKind
    channel: str
    at: float
    incident: Incident
    attempts: int = 0
    next_try: float = 0.0
    error: str = ""
    pause_until: float = 0.0


@dataclass(frozen=True)
class ChannelState:
    """State of a channel's deliveries.

    Args:
        failing_since: Time since which no message could be sent or was taken; None if the last one was sent.
        error: Reason of the last failure.
        pause_until: Earliest time of the next attempt, after a failure.
        given_up: Number of messages that were refused or could not be sent for a day.
    """

    failing_since: float | None = None
    error: str = ""
    pause_until: float = 0.0
    sent: int = 0
    last_sent_at: float | None = None
    given_up: int = 0


@dataclass(frozen=True)
class Mute:
    """A period without messages about an incident, an asset or a group of assets.

    Args:
        what: Id of an incident, subject of its cause, or a pattern of asset keys: `marts/*`.
    """

    what: str
    since: float
    until: float
    because: str


@dataclass(frozen=True)
class Lease:
    """The right to send messages. One process at a time holds it."""

    holder: str
    until: float


@dataclass(frozen=True)
class Outage:
    """A period without a tick of any sensor."""

    since: float
    until: float


class ArrivalState(StrEnum):
    """State of a window of a source with expected arrivals."""

    NOT_EXPECTED = "not expected"
    PENDING = "pending"
    ON_TIME = "on time"
    LATE = "late"
    MISSING = "missing"
    EMPTY = "empty"
    REPEATED = "repeated"
    FEWER = "fewer than usual"


@dataclass(frozen=True)
class ArrivalRow:
    """Windows of a source in the same state, for `tidemark status`.

    Args:
        partitions: Keys of some windows, the earliest due first.
        due_at: When the first is due (Unix seconds).
        arrived_at: When the data of the first arrived.
    """

    source: str
    state: ArrivalState
    partitions: tuple[str, ...]
    count: int
    due_at: float | None
    arrived_at: float | None
    said: str = ""


@dataclass(frozen=True)
class Book:
    """All open incidents of a code location, and the messages that are not sent yet.

    A closed incident stays until its messages are sent.

    Args:
        outage: The last period without a tick of any sensor, while it may still make assets late.
        expected_since: Time since which each source with expected arrivals is checked, by source.
        arrivals: States of the expected arrivals.
    """

    incidents: tuple[Incident, ...] = ()
    outbox: tuple[IncidentMessage, ...] = ()
    channels: dict[str, ChannelState] = field(default_factory=dict)
    mutes: tuple[Mute, ...] = ()
    lease: Lease | None = None
    outage: Outage | None = None
    expected_since: dict[str, float] = field(default_factory=dict)
    arrivals: tuple[ArrivalRow, ...] = ()
    version: int = BOOK_VERSION

    @property
    def open(self) -> tuple[Incident, ...]:
        return tuple(incident for incident in self.incidents if incident.is_open)

    def of(self, key: str) -> Incident | None:
        """Return the open incident of a cause, or None."""
        return next((each for each in self.open if each.cause.key == key), None)


def incident_id(location: str, key: str, opened_at: float) -> str:
    """Return a short id of an incident. It is the same for the same cause and time of opening."""
    return "i-" + sha256(f"{location}\n{key}\n{opened_at!r}".encode()).hexdigest()[:10]
