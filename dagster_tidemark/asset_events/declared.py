"""Declarations of asset events: the queue that a location receives from, and its listeners."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase

from dagster_tidemark.asset_events.event import AssetEvent
from dagster_tidemark.errors import Terminal
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.notification_queue import MessageSink
from dagster_tidemark.streams.transport import declared_queue

_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,80}")


class EventsRefused(Terminal):
    """A declaration of asset events is invalid."""


@dataclass(frozen=True)
class AssetEvents:
    """An SQS queue with events of external assets, such as tables of other deployments.

    Args:
        queue: Name of the queue; see `from_env`. FIFO queues are not supported.
        assets: Keys of the external assets that senders may report. Events of other assets go to the dead-letter queue.
    """

    queue: str
    assets: Sequence[str]

    def __post_init__(self) -> None:
        _require_queue("AssetEvents", self.queue)
        if isinstance(self.assets, str) or not self.assets:
            raise EventsRefused(f"AssetEvents({self.queue}): expected a list of asset keys, found {self.assets!r}")


@dataclass(frozen=True)
class Listener:
    """A function that gets each materialization of some assets, at least once; see `listener`."""

    name: str
    assets: tuple[str, ...]
    function: Callable[[AssetEvent], object]
    give_up_after: timedelta

    def hears(self, assets: Collection[str]) -> list[str]:
        """Return the assets that this listener is about."""
        return sorted(asset for asset in assets if any(fnmatchcase(asset, pattern) for pattern in self.assets))


def listener(
    *, assets: Sequence[str], name: str | None = None, give_up_after: timedelta = timedelta(days=1)
) -> Callable[[Callable[[AssetEvent], object]], Listener]:
    """Return a decorator: the function is called with each materialization of some assets, in the order of the log.

    A call is repeated after a crash or an exception, so the function must accept an event twice (`AssetEvent.id`). If
    it raises, only this event waits: it is tried again after growing pauses, and given up with an error in the log of
    the sensor after `give_up_after`. If it takes longer than 30 s, it is called with the next events in the meantime. A
    new or renamed listener begins with the events after its first tick.

    Args:
        assets: Keys of assets; `*` stands for any characters: `marts/*`.
        name: Name of the sensor `listener_<name>`; by default the function's name.

    Raises:
        EventsRefused: the name is no Python identifier, `assets` is no list of texts, `give_up_after` no time span, or
            the function cannot be called with an event.
    """
    if isinstance(assets, str) or not assets or not all(isinstance(each, str) for each in assets):
        raise EventsRefused(
            f"listener: expected a list of asset keys as assets, such as ['core/orders'], found {assets!r}"
        )
    if not isinstance(give_up_after, timedelta):
        raise EventsRefused(
            f"listener: give_up_after={give_up_after!r}: expected a timedelta, such as timedelta(hours=6)"
        )

    def _of(function: Callable[[AssetEvent], object]) -> Listener:
        chosen = name or str(getattr(function, "__name__", type(function).__name__))
        if not chosen.isidentifier():
            raise EventsRefused(f"listener {chosen!r}: expected a Python identifier as name; set name=")
        if why := _uncallable(function):
            raise EventsRefused(f"listener {chosen}: {why}")
        return Listener(chosen, tuple(assets), function, give_up_after)

    return _of


@dataclass
class PublishTo:
    """The function of a listener that sends events to the queue of another deployment (`AssetEvents`).

    `to_finance = listener(assets=["core/orders"], name="to_finance")(PublishTo("finance-asset-events"))`

    Args:
        queue: Name of the queue; see `from_env`.
        names: Keys that the assets have in the other deployment, where they differ.
        connect: Opens the queue; by default with the AWS settings of the code location.
    """

    queue: str
    names: Mapping[str, str] = field(default_factory=dict)
    connect: Callable[[str], MessageSink] | None = None
    _opened: MessageSink | None = field(default=None, repr=False, init=False)

    def __post_init__(self) -> None:
        _require_queue("PublishTo", self.queue)

    def __call__(self, event: AssetEvent) -> None:
        """Send one event.

        Raises:
            QueueUnavailable: the queue may not have received it.
            ClientError: there is no such queue, or access is denied.
            EventsRefused: it is called outside a code location, and has no `connect`.
        """
        if self._opened is None:
            if self.connect is None:
                raise EventsRefused(f"PublishTo({self.queue}): it is no listener of a code location; set connect=")
            self._opened = self.connect(self.queue)
        try:
            self._opened.send([replace(event, asset=self.names.get(event.asset, event.asset)).body()])
        except BaseException:  # a client in an unknown state is not used again
            self._opened = None
            raise


def connected(listener: Listener, settings: Settings) -> Listener:
    """Return the listener of a code location. A `PublishTo` without `connect` gets the location's queues."""
    function = listener.function
    if isinstance(function, PublishTo) and function.connect is None:
        return replace(listener, function=replace(function, connect=lambda queue: declared_queue(queue, settings)))
    return listener


def require_declared(
    events: AssetEvents | None, listeners: Sequence[Listener], is_external: Mapping[str, bool]
) -> None:
    """Raise unless the declarations fit the assets of a code location.

    Args:
        is_external: The key of each asset, with True if it is not built here.

    Raises:
        EventsRefused: a reported asset does not exist or is built here, a listener is about no asset, or two listeners
            have the same name.
    """
    for asset in events.assets if events is not None else ():
        if asset not in is_external:
            raise EventsRefused(f"AssetEvents({asset}): there is no such asset; declare it with dg.AssetSpec")
        if not is_external[asset]:
            raise EventsRefused(
                f"AssetEvents({asset}): this code location builds the asset, and only external assets (dg.AssetSpec) "
                "can be reported"
            )
    named = set[str]()
    for each in listeners:
        if each.name in named:
            raise EventsRefused(f"listener {each.name} is declared twice; set name=")
        if not each.hears(is_external):
            raise EventsRefused(f"listener {each.name}: no asset matches {', '.join(each.assets)}; correct assets=")
        named.add(each.name)


def _uncallable(function: Callable[[AssetEvent], object]) -> str:
    """Return why a function cannot be called with an event; empty if it can."""
    if not callable(function):
        return f"expected a function, found {function!r}"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return "expected a plain function: calls of `async` functions and generators do nothing"
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        return f"expected a function of one argument, the event: {error}"
    except ValueError:  # some functions in C have no signature
        return ""
    return ""


def _require_queue(what: str, queue: object) -> None:
    if not isinstance(queue, str) or not _QUEUE.fullmatch(queue):
        raise EventsRefused(f"{what}: queue={queue!r}: expected 1 to 80 of a-z, A-Z, 0-9, _ and - (no FIFO queue)")
