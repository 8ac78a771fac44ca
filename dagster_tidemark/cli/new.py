"""`tidemark new feed` and `tidemark new table`: first modules, which the code location finds without changes."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import fail, name_left_out
from dagster_tidemark.settings import Settings, load_settings

if TYPE_CHECKING:
    from dagster_tidemark.scaffold.sample import Sample

commands = typer.Typer(help="Write the module of a new feed or table.", no_args_is_help=True)


@commands.command()
def feed(
    name: Annotated[str, typer.Argument(help="Of the feed, its table core/NAME and its folder in the bucket.")],
    sample: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="A file as it will land.")],
    by: Annotated[
        str, typer.Option(help="How it is cut into partitions: hour, day, month, or none (one object).")
    ] = "day",
    key: Annotated[
        str,
        typer.Option(help="Columns that identify a row, with commas between; by default an id that is seen as one."),
    ] = "",
    no_key: Annotated[
        bool, typer.Option("--no-key", help="No columns identify a row: its file and its place in it do.")
    ] = False,
    encoding: Annotated[str, typer.Option(help="How its files are encoded: utf-8, utf-16, latin-1, ...")] = "utf-8",
    multiline: Annotated[bool, typer.Option("--multiline", help="A record may have several lines.")] = False,
) -> None:
    """Write a feed's module from a sample file: columns, types and key are inferred, to be read and mended.

    Exits with 2, and writes nothing, if no feed can take the sample or its key is not clear.
    """
    from dagster_tidemark import location
    from dagster_tidemark.scaffold.feed_module import OFFERED, feed_module, require_loads
    from dagster_tidemark.scaffold.python_text import require_name
    from dagster_tidemark.scaffold.sample import read_sample
    from dagster_tidemark.sources.layout import folders_in_words
    from dagster_tidemark.sources.times import FOLDERS, Grain

    settings = load_settings()
    if by not in OFFERED:
        fail(
            f"--by {by}: give one of {', '.join(OFFERED)}; regions and others are written by hand, see docs/feeds.md",
            code=2,
        )
    if key and no_key:
        fail("--key and --no-key: give one of the two", code=2)
    require_name(name, "feed")
    with location.without_broken_parts():
        location.feeds(settings)  # this also registers the user's file formats
    named = _columns(key)
    seen = read_sample(sample, feed=name, key=named, encoding=encoding, multiline=multiline)
    if not named and not no_key and not seen.key:
        fail(
            f"{sample.name}: what identifies a row cannot be told: {seen.evidence}; say --key COLUMN[,COLUMN] "
            f"(of {', '.join(seen.columns)}), or --no-key: file and place identify a row",
            code=2,
        )
    seen = dataclasses.replace(seen, key=()) if no_key else seen
    text = feed_module(name, Grain(by), seen, key=named, package=settings.code_location)
    target = _package(settings) / "feeds" / f"{name}.py"
    if not (settings.root / target).exists():
        declared = require_loads(text, str(target))
        if taken := location.taken_by(settings, *declared):
            fail(f"{taken}: give the new feed another name", code=2)
    path = _write(settings.root, target, text)
    typer.echo(f"{path}: {len(seen.columns)} columns from {seen.rows} rows; read it, then reload the code location")
    for line in [*seen.left_out, *seen.notes]:
        typer.echo(f"{sample.name}: {line}")
    typer.echo(f"row key: {_about_key(seen, named)}")
    bucket = f"s3://{settings.landing_bucket}"
    if by == "none":
        typer.echo(f"the file that lands as {name}/latest{seen.suffix} in {bucket} becomes the rows of core/{name}")
    else:
        below = f"{name}/{folders_in_words(FOLDERS[Grain(by)])}/"
        typer.echo(f"files that land below {below} in {bucket} become rows of core/{name}")


def _about_key(seen: "Sample", named: tuple[str, ...]) -> str:
    if named:
        count = f"; {seen.repeated} of the sample's rows have the key of another and take its place"
        return f"{', '.join(named)}{count if seen.repeated else ''}"
    if seen.key:
        return f"{', '.join(seen.key)}, guessed: {seen.evidence}"
    return "none; a row is identified by its file and its place in it"


@commands.command()
def table(
    name: Annotated[str, typer.Argument(help="Of the table: it becomes marts/NAME.")],
    source: Annotated[str, typer.Option("--from", help="The table it is computed from, such as core/orders.")],
    by: Annotated[str, typer.Option(help="How it is cut into partitions: hour, day, week, month, or none.")] = "day",
    key: Annotated[str, typer.Option(help="Columns of the input that name a row, with commas between.")] = "",
) -> None:
    """Write a table's schema, transform and asset, which count the input's rows: a place to begin."""
    from dagster_tidemark import location
    from dagster_tidemark.scaffold.table_modules import BY, table_modules

    settings = load_settings()
    if by not in BY:
        fail(
            f"--by {by}: give one of {', '.join(BY)}; regions and others are written by hand, see docs/tables.md",
            code=2,
        )
    with location.without_broken_parts():
        tables = location.tables(settings)
    name_left_out(settings)
    read = source.replace("/", ".")
    if read not in tables:
        fail(f"--from {source}: no such table; there are {', '.join(sorted(tables)).replace('.', '/')}", code=2)
    texts = table_modules(name, tables[read], by, _columns(key), package=settings.code_location)
    package = _package(settings)
    if there := [path for path in texts if (settings.root / package / path).exists()]:
        fail(f"{package / there[0]} is there already", code=2)
    for path, text in texts.items():
        typer.echo(_write(settings.root, package / path, text))
    typer.echo(f"write what marts/{name} is to hold into the transform, then reload the code location")


def _columns(option: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in option.split(",") if part.strip())


def _package(settings: Settings) -> Path:
    return Path(settings.code_location.replace(".", "/"))


def _write(project: Path, path: Path, text: str) -> Path:
    target = project / path
    if target.exists():
        fail(f"{path} is there already", code=2)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return path
