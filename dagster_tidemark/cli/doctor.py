"""`tidemark doctor`: check every part of the arrangement from here."""

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import without_warnings
from dagster_tidemark.settings import Settings, load_settings

if TYPE_CHECKING:
    from dagster_tidemark.doctor import Declared
    from dagster_tidemark.doctor.checks import CheckOutcome

_SECONDS_TO_CONNECT = "5"
_SHOWN = {"ok": "green", "failed": "red", "undecided": "yellow"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of lines.")] = False,
    seconds: Annotated[
        float,
        typer.Option(min=1, help="Time limit of the checks, which run at the same time, after the import of the code."),
    ] = 90,
) -> None:
    """Check settings, packages, Dagster, catalog, Spark, bucket, queues and topics. Leaves nothing behind.

    Prints one line for each check, with the remedy. Exits with 1 if a check failed or could not decide.
    """
    # A suspended PostgreSQL server accepts connections but never answers.
    os.environ.setdefault("PGCONNECT_TIMEOUT", _SECONDS_TO_CONNECT)
    settings = _settings()

    from dagster_tidemark.doctor import checks_of
    from dagster_tidemark.doctor.checks import end_now, outcomes, secrets_of

    with without_warnings():
        declared, unread = _declared(settings, seconds)
        found = [*unread, *outcomes(checks_of(settings, declared), seconds, secrets_of(settings))]
    if as_json:
        typer.echo(json.dumps([vars(each) for each in found], indent=2))
    else:
        for each in found:
            typer.echo(_line(each))
    code = int(any(each.verdict != "ok" for each in found))
    end_now(code)
    raise typer.Exit(code)


def _settings() -> Settings:
    """Return the settings of the running laptop platform, if one runs on this state folder; else of the environment."""
    from dagster_tidemark.local.platform.instance_lock import NothingRuns, running_environment

    settings = load_settings(may_be_unfit=True)
    if settings.environment == "local":
        try:
            os.environ.update(running_environment(settings))
        except NothingRuns:
            return settings
    return load_settings(may_be_unfit=True)


def _declared(settings: Settings, seconds: float) -> "tuple[Declared, list[CheckOutcome]]":
    """Return the queues and topics of the code location. If it cannot be read in time, return that outcome too."""
    from dagster_tidemark import location
    from dagster_tidemark.doctor import Declared
    from dagster_tidemark.doctor.checks import Check, CheckFailed, outcomes, secrets_of
    from dagster_tidemark.errors import TidemarkError
    from dagster_tidemark.streams.transport import queues_of, topics_of

    read: list[Declared] = []

    def ask() -> str:
        try:
            streams = location.streams(settings)
        except TidemarkError as error:
            raise CheckFailed(
                str(error), "correct the code location; its queues and topics were not checked"
            ) from error
        received = sorted({stream.queue for stream in streams if stream.queue})
        sent = [name for name in queues_of(streams) if name not in received]
        read.append(Declared(tuple(received), tuple(sent), tuple(topics_of(streams, settings))))
        return "read"

    remedy = "look for calls of services while its modules are imported; its queues and topics were not checked"
    [outcome] = outcomes([Check("code location", ask, remedy)], seconds, secrets_of(settings))
    return (read[0], []) if outcome.verdict == "ok" else (Declared(), [outcome])


def _line(outcome: "CheckOutcome") -> str:
    verdict = typer.style(f"{outcome.verdict:9}", fg=_SHOWN[outcome.verdict])
    remedy = f". Remedy: {outcome.remedy}" if outcome.remedy else ""
    return f"{verdict} {outcome.check}: {outcome.found}{remedy}"
