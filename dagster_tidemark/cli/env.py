"""`tidemark env`: print the environment variables that connect other programs to the running platform."""

import json
import shlex
from typing import Annotated

import typer

from dagster_tidemark.settings import load_settings


def env(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of shell lines.")] = False,
) -> None:
    """Print the environment variables of the running platform, for `eval "$(tidemark env)"`."""
    from dagster_tidemark.local.platform.instance_lock import running_environment

    environment = running_environment(load_settings())
    if as_json:
        typer.echo(json.dumps(environment, indent=2))
        return
    for name, value in environment.items():
        typer.echo(f"export {name}={_quoted(value)}")


def _quoted(value: str) -> str:
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{quoted}'"
