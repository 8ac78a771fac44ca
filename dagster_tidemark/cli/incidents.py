"""`tidemark incidents`, `acknowledge`, `mute` and `alert test`: show late data, and control the messages about it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagster_tidemark.cli.commands import LEFT_OUT, fail, name_left_out
from dagster_tidemark.settings import load_settings

if TYPE_CHECKING:
    from dagster_tidemark.incidents.incident import Book, Incident
    from dagster_tidemark.incidents.store import IncidentStore

_SPAN = re.compile(r"(\d+)(m|h|d)")
_WATCH_SECONDS = 10.0
_MOST_OF_A_UNIT = 10_000
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_Because = Annotated[str, typer.Option("--because", help="The reason, for the other readers.", show_default=False)]
_For = Annotated[str | None, typer.Option("--for", help="Duration: 30m, 4h or 2d.", show_default=False)]
_Until = Annotated[str | None, typer.Option("--until", help="Until when: 2026-11-30T08:00+01:00.", show_default=False)]
alert_commands = typer.Typer(help="Channels for messages about late data.", no_args_is_help=True)


def incidents(
    id_: Annotated[
        str | None, typer.Argument(metavar="ID", help="Show one incident with its timeline.", show_default=False)
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Show closed incidents too, newest first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Watch until Ctrl-C; report if the daemon, the code server or a sensor is down."),
    ] = False,
) -> None:
    """Show the open incidents: each root cause that makes data late, with the assets that it concerns."""
    if watch:
        _watch()
        return
    from dagster_tidemark.cli.incident_view import channel_lines, lines, timeline
    from dagster_tidemark.dagster_internals.event_time import now

    with _opened() as store:
        book = store.read()
        closed = store.closed() if history or id_ else ()
    found = [*book.incidents, *closed] if history or id_ else list(book.open)
    if id_:
        found = [each for each in found if each.id == id_]
        if not found:
            fail(f"there is no incident {id_}: `tidemark incidents --history` lists them", code=2)
    if as_json:
        typer.echo(json.dumps(_document(book, found, with_timeline=bool(id_)), indent=2))
        return
    if id_:
        typer.echo("\n".join(timeline(found[0], now())))
        return
    typer.echo("\n".join([*lines(found, now()), *channel_lines(book, now())]))


def acknowledge(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of the incident, as shown by `tidemark incidents`.")],
    because: _Because,
    for_: _For = None,
    until: _Until = None,
) -> None:
    """Acknowledge an incident: a person works on it. Channels get no messages about it until the end."""
    from dagster_tidemark.dagster_internals.event_time import now
    from dagster_tidemark.incidents.incident import Acknowledgement
    from dagster_tidemark.incidents.lifecycle import acknowledged

    if not because.strip():
        fail("an acknowledgement needs a reason: --because", code=2)
    at, end = now(), end_of(now(), for_, until)
    with _opened() as store:
        if id_ not in {each.id for each in store.read().open}:
            fail(f"there is no open incident {id_}: `tidemark incidents` lists them", code=2)
        store.change(lambda book: acknowledged(book, id_, Acknowledgement(at, end, because)))
    typer.echo(f"{id_} is acknowledged until {_shown(end)}")


def mute(
    what: Annotated[
        str, typer.Argument(help="An incident, the asset or source at fault, or a pattern of assets: 'marts/*'.")
    ],
    because: Annotated[
        str | None, typer.Option("--because", help="The reason, for the other readers.", show_default=False)
    ] = None,
    for_: _For = None,
    until: _Until = None,
    end: Annotated[bool, typer.Option("--end", help="End the mute now.")] = False,
) -> None:
    """Send nothing about an incident or some assets until a time. Incidents are still recorded."""
    from dagster_tidemark.dagster_internals.event_time import now
    from dagster_tidemark.incidents.incident import Mute
    from dagster_tidemark.incidents.lifecycle import muted, unmuted

    if end:
        with _opened() as store:
            known = [mute.what for mute in store.read().mutes]
            if what not in known:
                fail(f"{what} is not muted; muted are: {', '.join(known) or 'none'}", code=2)
            store.change(lambda book: unmuted(book, what))
        typer.echo(f"{what} is no longer muted")
        return
    if not because or not because.strip():
        fail("a mute needs a reason: --because", code=2)
    at, until_ = now(), end_of(now(), for_, until)
    with _opened() as store:
        store.change(lambda book: muted(book, Mute(what, at, until_, because)))
    typer.echo(f"{what} is muted until {_shown(until_)}")


def _watch() -> None:
    """Check the daemon, the code server and the sensors every ten seconds, and send messages, until Ctrl-C.

    This process does not depend on Dagster's daemon.
    """
    import time

    from dagster_tidemark import location
    from dagster_tidemark.cli.storage import StorageUnreachable
    from dagster_tidemark.dagster_internals.event_time import now
    from dagster_tidemark.incidents.look import Watch
    from dagster_tidemark.incidents.sender import Sender
    from dagster_tidemark.local.platform.instance_lock import take_environment

    settings = take_environment(load_settings())
    graph = location.asset_graph(settings)
    channels = location.channels(settings)
    if not channels:
        fail("the code location declares no channel: give build_definitions or extend notify=[...]", code=2)
    watch = Watch(graph, settings, [channel.route for channel in channels])
    typer.echo(f"watching; {', '.join(channel.label for channel in channels)}")
    while True:
        try:
            with _opened() as store:
                known = {each.id for each in store.read().incidents}
                book = watch.look(store.instance, now())
                Sender.started(store, channels, settings, now).send(seconds=_WATCH_SECONDS)
            for each in book.open:
                if each.id not in known:
                    typer.echo(f"opened {each.id}: {each.cause.said}")
        except StorageUnreachable as error:
            typer.echo(f"tidemark: {error}; no incident can be reported until it answers", err=True)
        except KeyboardInterrupt:
            return
        try:
            time.sleep(_WATCH_SECONDS)
        except KeyboardInterrupt:
            return


@contextmanager
def _opened() -> "Iterator[IncidentStore]":
    """Open the incident store of the running platform, or of the instance that the environment names."""
    from dagster_tidemark.cli.storage import opened_instance
    from dagster_tidemark.incidents.store import IncidentStore
    from dagster_tidemark.local.platform.instance_lock import take_environment

    settings = take_environment(load_settings())
    with opened_instance() as instance:
        yield IncidentStore(instance, settings.code_location)


def end_of(now: float, for_: str | None, until: str | None) -> float:
    """Return the end of an acknowledgement, a mute or a pause in Unix seconds."""
    if (for_ is None) == (until is None):
        fail("give either --for (30m, 4h, 2d) or --until (2026-11-30T08:00+01:00)", code=2)
    if for_ is not None:
        found = _SPAN.fullmatch(for_)
        if found is None:
            fail(f"--for {for_}: expected a number with m, h or d, such as 4h", code=2)
        if not 0 < int(found[1]) <= _MOST_OF_A_UNIT:
            fail(f"--for {for_}: expected a number from 1 to {_MOST_OF_A_UNIT}", code=2)
        return now + timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds()
    try:
        end = datetime.fromisoformat(until or "")
    except ValueError:
        fail(f"--until {until}: expected a time such as 2026-11-30T08:00+01:00", code=2)
    if end.tzinfo is None:
        fail(f"--until {until}: a time zone is missing; write 2026-11-30T08:00+01:00 or ...Z", code=2)
    if end.timestamp() <= now:
        fail(f"--until {until}: this time has passed", code=2)
    return end.timestamp()


def _shown(at: float) -> str:
    from dagster_tidemark.planner.wording import moment

    return moment(at)


def _document(book: "Book", found: "list[Incident]", *, with_timeline: bool) -> dict[str, Any]:
    from dagster_tidemark.incidents.channels.webhook import described

    return {
        "incidents": [
            described(each) | ({"timeline": [asdict(step) for step in each.timeline]} if with_timeline else {})
            for each in found
        ],
        "channels": {name: asdict(state) for name, state in book.channels.items()},
        "waiting_messages": len(book.outbox),
        "mutes": [asdict(mute) for mute in book.mutes],
    }


@alert_commands.callback()
def _alert_group() -> None:
    """Make `test` a subcommand: without this callback Typer would run the only command without a name."""


@alert_commands.command("test")
def alert_test(
    channel: Annotated[str | None, typer.Argument(help="Only this channel, by its name.", show_default=False)] = None,
) -> None:
    """Send a test message by each channel; exits with 1 if a channel does not take it."""
    import time

    from dagster_tidemark import location
    from dagster_tidemark.incidents.sender import sent_by, uncovered

    settings = load_settings()
    with location.without_broken_parts():
        graph, known = location.asset_graph(settings), location.channels(settings)
    is_broken = name_left_out(settings)
    if not known:
        fail("the code location declares no channel: give build_definitions or extend notify=[...]", code=2)
    wanted = [each for each in known if channel in (None, each.label)]
    if not wanted:
        fail(f"there is no channel {channel!r}; known channels: {', '.join(each.label for each in known)}", code=2)
    failed = []
    for each in wanted:
        error = sent_by(each, settings, time.time())
        typer.echo(f"{each.label}: {error or 'sent'}")
        failed += [each.label] if error else []
    if lacking := uncovered(graph, known):
        typer.echo(f"no channel gets incidents about: {', '.join(lacking)}")
    if failed:
        fail(f"the test message was not accepted by {', '.join(failed)}", code=1)
    if is_broken:
        fail(LEFT_OUT, code=2)
