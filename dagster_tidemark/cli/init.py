"""`tidemark init`: a new project whose `make dev` works at once."""

from pathlib import Path
from typing import Annotated

import typer


def init(
    directory: Annotated[Path, typer.Argument(help="A new or an empty folder; its name becomes the package's.")],
    example: Annotated[str, typer.Option(help="Write a whole example instead: grocer.")] = "",
) -> None:
    """Write a new project: one feed with a sample file, one table, one test and a Makefile.

    Exits with 2, and writes nothing, if the folder is not empty or its name cannot be the name of a package.
    """
    from dagster_tidemark.scaffold.new_project import EXAMPLES, write_project

    if example and example not in EXAMPLES:
        raise typer.BadParameter(f"{example!r} is none of {', '.join(EXAMPLES)}", param_hint="--example")
    written = write_project(directory, example)
    typer.echo(f"{directory}: {len(written)} files; README.md says what they are")
    typer.echo("`make dev` there starts the platform, `make test` the tests")
    typer.echo("`tidemark new feed` and `tidemark new table` write the next modules")
