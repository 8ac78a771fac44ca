"""`tidemark init`: write a new project whose `make dev` works without changes."""

from pathlib import Path
from typing import Annotated

import typer


def init(
    directory: Annotated[Path, typer.Argument(help="New or empty folder. The package gets its name.")],
    example: Annotated[str, typer.Option(help="Write a complete example project: grocer.")] = "",
) -> None:
    """Write a new project: one feed with a sample file, one table, one test and a Makefile.

    Exits with 2, and writes nothing, if the folder is not empty or its name is no valid package name.
    """
    from dagster_tidemark.scaffold.new_project import EXAMPLES, write_project

    if example and example not in EXAMPLES:
        raise typer.BadParameter(f"expected {', '.join(EXAMPLES)}, not {example!r}", param_hint="--example")
    written = write_project(directory, example)
    typer.echo(f"{directory}: wrote {len(written)} files; README.md describes them")
    typer.echo("in this folder, `make dev` starts the platform, and `make test` runs the tests")
    typer.echo("`tidemark new feed` and `tidemark new table` add modules")
