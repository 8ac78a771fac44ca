"""The interface of a channel, its errors, and an HTTP request with a time limit.

`FakeChannel` is for tests. HTTP uses the standard library: each protocol needs one POST, and answers are small.
"""

import inspect
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPMessage, InvalidURL
from typing import IO

import dagster as dg

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.incidents.incident import IncidentMessage
from dagster_tidemark.incidents.routing import ChannelRefused, QuietHours, Route
from dagster_tidemark.incidents.wording import IncidentReport, report
from dagster_tidemark.settings import Settings

TIMEOUT_SECONDS = 10.0
UNSET = "is not set"
_MOST_OF_AN_ANSWER = 65_536
_OF_THE_MESSAGE = (400, 413, 422)  # HTTP statuses that reject the message itself


class ChannelUnavailable(Transient):
    """A channel did not take a message. A later attempt may succeed.

    Args:
        retry_after: Seconds that the channel asks to wait; None if it does not ask.
        is_busy: True if the channel answers and only limits the rate.
    """

    def __init__(self, said: str, *, retry_after: float | None = None, is_busy: bool = False) -> None:
        super().__init__(said)
        self.retry_after, self.is_busy = retry_after, is_busy


class MessageRefused(Terminal):
    """A channel refused this message for good. A further attempt would be refused as well."""


@dataclass(frozen=True)
class Delivery:
    """A message on its way to a channel.

    Args:
        thread: Result of an earlier delivery of the incident to this channel; empty if there was none.
        now: Time of the attempt (Unix seconds).
    """

    message: IncidentMessage
    thread: str
    now: float
    settings: Settings

    @property
    def report(self) -> IncidentReport:
        return report(self.message, self.now, self.settings.ui_url)


@dataclass(frozen=True, kw_only=True)
class Channel(ABC):
    """A channel. Without filters it gets every incident; with filters, incidents that match at least one.

    Args:
        name: Name in `tidemark incidents` and in the store; unique in a code location.
        owners: Owners of assets: `team:core`, `ada@acme.com`.
        groups: Groups of assets.
        assets: Patterns of asset keys: `marts/*`.
        quiet: Hours without messages.
    """

    name: str = ""
    owners: Collection[str] = ()
    groups: Collection[str] = ()
    assets: Collection[str] = ()
    quiet: QuietHours | None = None

    @property
    @abstractmethod
    def kind(self) -> str:
        """Return the name of the protocol with the address, without secrets: `slack #data`."""

    @abstractmethod
    def send(self, delivery: Delivery) -> str:
        """Send a message once.

        Returns:
            The thread for the next message of the incident; empty if the channel has no threads.

        Raises:
            ChannelUnavailable: it was not sent; a later attempt may succeed.
            MessageRefused: it cannot be sent.
        """

    @property
    def secrets(self) -> tuple[dg.EnvVar | None, ...]:
        """The variables that hold its secrets."""
        return ()

    @property
    def label(self) -> str:
        """The name, or by default the kind."""
        return self.name or self.kind

    @property
    def route(self) -> Route:
        return Route(self.label, self.owners, self.groups, self.assets, self.quiet)

    def problem(self) -> str:
        """Return why it cannot send at all: a variable is not set. Empty if it can."""
        unset = [each.env_var_name for each in self.secrets if each is not None and not each.get_value()]
        return f"{', '.join(unset)} {UNSET}; set it for the code server" if unset else ""

    def redacted(self, said: str) -> str:
        """Return a text without the values of the channel's secrets."""
        for each in self.secrets:
            value = each.get_value() if each is not None else None
            if value:
                for shown in (value, repr(value)[1:-1], value.strip()):
                    said = said.replace(shown, "***") if shown else said
        return said


def require_secret(channel: str, argument: str, value: object) -> None:
    """Raise if a secret is not the name of an environment variable.

    Raises:
        ChannelRefused: it is something else.
    """
    if not isinstance(value, dg.EnvVar):
        raise ChannelRefused(
            f'{channel}({argument}=...): expected dg.EnvVar("NAME"), so that the secret is not in the code'
        )


def unsendable(*variables: dg.EnvVar) -> str:
    """Return which variables hold no address, key or token, because of a space or line break. Empty if all do.

    A line break at the end is common: files with secrets often have one.
    """
    odd = [
        each.env_var_name
        for each in variables
        if (value := each.get_value()) and (" " in value or not value.isprintable())
    ]
    return f"{', '.join(odd)} {UNSET} to one word: remove its spaces and line breaks for the code server" if odd else ""


def require_url(channel: str, url: str) -> None:
    """Raise if the `url` of a channel is not a web address.

    Raises:
        ChannelRefused: it is not.
    """
    if not url.startswith(("https://", "http://")):
        raise ChannelRefused(f"{channel}(url={url!r}): expected an address that begins with https://")


def distinct(channels: Sequence[Channel]) -> tuple[Channel, ...]:
    """Return the channels, with names that differ.

    Raises:
        ChannelRefused: two have the same name, or a value is not a channel.
    """
    seen = set[str]()
    for channel in channels:
        if not isinstance(channel, Channel):
            raise ChannelRefused(f"notify: expected channels such as Slack(...), found {type(channel).__name__}")
        if inspect.iscoroutinefunction(channel.send):
            raise ChannelRefused(f"notify: `send` of {channel.label!r} is async and would send nothing; write def send")
        if channel.label in seen:
            raise ChannelRefused(f"notify: two channels are named {channel.label!r}; give the second a name=")
        seen.add(channel.label)
    return tuple(channels)


@dataclass(frozen=True)
class HttpAnswer:
    """The answer to an HTTP request."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def retry_after(self) -> float | None:
        """The seconds until the time of the header Retry-After, a number or a date; None without one."""
        value = self._header("retry-after")
        if value.isascii() and value.isdigit():
            return float(value)
        until, now = _moment(value), _moment(self._header("date"))
        if until is None:
            return None
        return max(0.0, until - (time.time() if now is None else now))  # the clock of the server counts

    def _header(self, wanted: str) -> str:
        return next((value.strip() for name, value in self.headers.items() if name.lower() == wanted), "")


def _moment(date: str) -> float | None:
    """Return an HTTP date in Unix seconds; None if it is none."""
    try:
        at = parsedate_to_datetime(date)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect: a POST would become a GET, and the secret would go to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
    """Send an HTTP POST and return the answer, whatever its status.

    Raises:
        ChannelUnavailable: there was no answer. Its text does not hold the address or a header, which may be secret.
    """
    if not url.startswith(("https://", "http://")):
        raise ChannelUnavailable("expected an address that begins with https://; correct the url of the channel")
    try:
        return _posted(url, body, headers)
    except (InvalidURL, ValueError) as error:  # their texts hold the address or the header
        raise ChannelUnavailable(
            f"expected an address and secrets without spaces and line breaks; correct them ({type(error).__name__})"
        ) from None


def _posted(url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
    request = urllib.request.Request(url, body, {"User-Agent": "tidemark", **headers}, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SECONDS) as answer:
            return _answer(answer.status, answer.headers.items(), answer.read(_MOST_OF_AN_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, error.headers.items(), error.read(_MOST_OF_AN_ANSWER))
    except InvalidURL:
        raise
    except (OSError, HTTPException) as error:  # URLError is an OSError; its text holds no address
        reason = getattr(error, "reason", error)
        raise ChannelUnavailable(f"no answer: {reason or type(error).__name__}") from error


def _answer(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> HttpAnswer:
    return HttpAnswer(status, dict(headers), body.decode("utf-8", "replace"))


def raise_for(answer: HttpAnswer) -> None:
    """Raise unless an answer has a status of success.

    Raises:
        MessageRefused: the status says that the message is wrong.
        ChannelUnavailable: any other status.
    """
    if 200 <= answer.status < 300:
        return
    said = f"it answers with {answer.status}: {' '.join(answer.body.split())[:200]}".rstrip(": ")
    if answer.status in _OF_THE_MESSAGE:
        raise MessageRefused(said)
    raise ChannelUnavailable(said, retry_after=answer.retry_after, is_busy=answer.status == 429)


@dataclass(frozen=True, kw_only=True)
class FakeChannel(Channel):
    """A channel for tests: it keeps its deliveries, and raises what the test wants.

    Args:
        sent: Its deliveries so far.
        before: Called with each delivery first.
    """

    sent: list[Delivery] = field(default_factory=list)
    before: Callable[[Delivery], None] = lambda _: None

    @property
    def kind(self) -> str:
        return "fake"

    def send(self, delivery: Delivery) -> str:
        self.before(delivery)
        self.sent.append(delivery)
        return delivery.thread or f"thread of {delivery.message.incident.id}"
