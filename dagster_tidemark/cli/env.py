"""`tidemark env`: print the environment variables that connect other programs to the deployment."""

import json
import shlex
from typing import Annotated

import typer

from dagster_tidemark.secret_values import is_secret
from dagster_tidemark.settings import LOCAL_KEY, Settings, load_settings


def env(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of shell lines.")] = False,
    secrets: Annotated[bool, typer.Option("--secrets", help="Print passwords, tokens and keys too.")] = False,
) -> None:
    """Print the variables of the running platform, or of production, for `eval "$(tidemark env)"`.

    Variables with secrets are left out and named on stderr. The laptop's own keys are no secrets.
    """
    environment = _environment(load_settings(may_be_unfit=True))
    hidden = [name for name, value in environment.items() if value != LOCAL_KEY and is_secret(name, value)]
    if not secrets:
        environment = {name: value for name, value in environment.items() if name not in hidden}
        if hidden:
            typer.echo(f"tidemark: left out, because they hold secrets: {', '.join(hidden)}; see --secrets", err=True)
    if as_json:
        typer.echo(json.dumps(environment, indent=2))
        return
    for name, value in environment.items():
        typer.echo(f"export {name}={_quoted(value)}")


def _environment(settings: Settings) -> dict[str, str]:
    """Return the variables of the running platform; in production those of the settings and declarations."""
    from dagster_tidemark.local.platform.instance_lock import running_environment

    if settings.environment == "local":
        return running_environment(settings)
    from dagster_tidemark import location
    from dagster_tidemark.environment import declared_variables

    with location.without_broken_parts():
        location.streams(settings)  # its declarations read variables
    return settings.exports() | declared_variables()


def _quoted(value: str) -> str:
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{quoted}'"
