"""Error handling of commands: one line on stderr, and an exit code.

0: done. 1: an external service failed. 2: a setting, option or declaration is wrong. 3: no platform runs. 4: removals
of files were not accepted, a contract is breached, or a rehearsal rejects more than `quarantine_share`. 5: the
automation ignores an asset. 6: whole files are in quarantine. 7: code changed under the same code version, or a preview
left out changes that `plan` lists. 8: `plan` refuses the deploy, because a table cannot be made as declared or a reader
would fail. 9: the state of a contract is unknown. 10: a stream is behind. 11: a channel for messages about incidents is
dead.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import typer
from typer.core import TyperGroup

from dagster_tidemark import json_logs
from dagster_tidemark.dagster_range import DagsterUnsupported, explained
from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.project_folder import project_root

if TYPE_CHECKING:
    from dagster_tidemark.settings import Settings

LEFT_OUT = "a part of the code location is broken (see above); its declarations were left out"

_OF_OTHERS = {"botocore", "pyspark"}
"""Packages whose exceptions mean that an external service failed."""


class Commands(TyperGroup):
    """A group of commands that reports errors as one line and an exit code."""

    without_project: ClassVar = {"init", "jars", "spark-conf"}  # Spark's image has no project

    def invoke(self, ctx: Any) -> Any:
        try:
            words = [*ctx._protected_args, *ctx.args]
            _require_values(words)
            if "--help" not in words and self.without_project.isdisjoint(words[:1]):
                project_root()
            return super().invoke(ctx)
        except TidemarkError as error:
            fail(str(error), code=error.exit_code)
        except ImportError as error:
            if (said := explained(error)) is None:
                raise
            fail(said, code=DagsterUnsupported.exit_code)
        except Exception as error:  # such as an error of a library that is not imported here
            if type(error).__module__.partition(".")[0] not in _OF_OTHERS:
                raise
            fail(str(error).partition("\n")[0], code=1)


def _require_values(words: list[str]) -> None:
    """Refuse options with an empty value, such as `--group "$GROUP"` with an unset variable.

    Without an option a command may concern everything, so an empty value must not count as none.
    """
    for before, word in pairwise(["", *words]):
        name, equals, value = (before, "=", "") if word == "" and before.startswith("-") else word.partition("=")
        if name.startswith("-") and equals and not value:
            fail(f"{name}: expected a value, found an empty text; leave the option out for its default", code=2)


def name_left_out(settings: "Settings") -> bool:
    """List on stderr the broken parts of the code location, which the command has ignored.

    Returns:
        True if any part is broken. The command then exits with 2 instead of 0.
    """
    from dagster_tidemark import location

    broken = location.broken_parts(settings)
    for line in broken:
        typer.echo(f"tidemark: left out: {line}", err=True)
    return bool(broken)


def require_local(settings: "Settings", command: str) -> None:
    """End the command with 2 unless the deployment is a laptop."""
    if settings.environment != "local":
        fail(f"TIDEMARK_ENVIRONMENT={settings.environment}: expected local, which `{command}` needs", code=2)


def fail(message: str, *, code: int) -> NoReturn:
    """Print an error message and end the command with an exit code."""
    if json_logs.is_on():
        logging.getLogger(json_logs.COMMAND).error(message)
    else:
        typer.echo(f"tidemark: {message}", err=True)
    raise typer.Exit(code)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hide log lines below errors during the block, such as warnings about repeated attempts to connect."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
