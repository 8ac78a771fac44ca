"""`tidemark init`, `new feed` and `new table`: write projects and modules that load without further changes."""

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
    name: Annotated[str, typer.Argument(help="Name of the feed, its table core/NAME and its folder.")],
    sample: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Sample file, as the files will land.")],
    by: Annotated[
        str, typer.Option(help="Partitions: quarter-hour, hour, day, week, month, or none (one object).")
    ] = "day",
    key: Annotated[
        str,
        typer.Option(help="Comma-separated columns that identify a row. Default: inferred from the sample."),
    ] = "",
    no_key: Annotated[
        bool, typer.Option("--no-key", help="Identify a row by its file and its position in the file, not by columns.")
    ] = False,
    encoding: Annotated[
        str, typer.Option(help="Encoding of the files: utf-8, utf-16, latin-1, ... Default: inferred from the sample.")
    ] = "",
    multiline: Annotated[bool, typer.Option("--multiline", help="Records may span several lines.")] = False,
    separator: Annotated[str, typer.Option(help="CSV: character between two values; `tab` for a tab.")] = "",
    header: Annotated[str, typer.Option(help="CSV: text that the header line begins with, or `none`.")] = "",
    names: Annotated[str, typer.Option(help="CSV without a header: comma-separated names of all columns.")] = "",
    skip_lines: Annotated[int, typer.Option(help="Text: number of lines to skip at the beginning of a file.")] = 0,
    quote: Annotated[str, typer.Option(help="CSV: character around values, or `none` if quotes have no meaning.")] = "",
    escape: Annotated[str, typer.Option(help="CSV: character that removes the meaning of the next one.")] = "",
    comment: Annotated[str, typer.Option(help="CSV: character that comment lines begin with.")] = "",
    trailing_separator: Annotated[
        bool, typer.Option("--trailing-separator", help="CSV: each line ends with a separator.")
    ] = False,
    decimal: Annotated[str, typer.Option(help="CSV: decimal mark of numbers.")] = "",
    thousands: Annotated[str, typer.Option(help="CSV: mark between groups of three digits.")] = "",
    null: Annotated[list[str] | None, typer.Option(help="Text that means a missing value; may be repeated.")] = None,
    typed_null: Annotated[
        list[str] | None, typer.Option(help="The same, but only among numbers and times; may be repeated.")
    ] = None,
    time: Annotated[
        list[str] | None, typer.Option(help="COLUMN=PATTERN, such as booked_on=dd.MM.yy; may be repeated.")
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="Zone of times that are written without one, such as Europe/Berlin. Default: UTC.")
    ] = "",
    places: Annotated[
        str, typer.Option(help="Text of fixed width: NAME=FIRST:WIDTH of each column, such as id=1:6,name=7:20.")
    ] = "",
    rows: Annotated[str, typer.Option(help="JSON: place of the array whose elements are the rows.")] = "",
) -> None:
    """Write a feed's module from a sample file. Columns, types and key are inferred: review and correct them.

    Exits with 2, and writes nothing, if no feed can read the sample or the key cannot be inferred.
    """
    from dagster_tidemark import location
    from dagster_tidemark.scaffold.feed_module import OFFERED, feed_module, require_loads
    from dagster_tidemark.scaffold.python_text import require_name
    from dagster_tidemark.scaffold.sample import read_sample
    from dagster_tidemark.sources.layout import folders_in_words
    from dagster_tidemark.sources.times import FOLDERS, Grain

    settings = load_settings()
    by = by.replace("-", "_")
    if by not in OFFERED:
        offered = ", ".join(OFFERED).replace("_", "-")
        fail(
            f"--by {by}: expected one of {offered}; for other partitions, write the module by hand (docs/feeds.md)",
            code=2,
        )
    if key and no_key:
        fail("--key and --no-key exclude each other: give one of them", code=2)
    require_name(name, "feed")
    with location.without_broken_parts():
        location.feeds(settings)  # this also registers the user's file formats
    named = _columns(key)
    options: dict[str, object] = {
        "separator": {"tab": "\t"}.get(separator, separator),
        "header": False if header == "none" or names else header,
        "fields": _columns(names),
        "skip_lines": skip_lines,
        "escape": escape,
        "comment": comment,
        "trailing_separator": trailing_separator,
        "decimal": decimal,
        "thousands": thousands,
        "nulls": tuple(null or ()),
        "typed_nulls": tuple(typed_null or ()),
        "times": dict(part.rpartition("=")[::2] for part in time or ()),
        "timezone": timezone,
        "rows": rows,
        "columns": _places(places),
    }
    options = {key: value for key, value in options.items() if value or (key, value) == ("header", False)}
    if quote:
        options["quote"] = None if quote == "none" else quote
    seen = read_sample(sample, feed=name, key=named, encoding=encoding or None, multiline=multiline, options=options)
    if not named and not no_key and not seen.key:
        fail(
            f"{sample.name}: the row key cannot be inferred: {seen.evidence}; give --key COLUMN[,COLUMN] "
            f"(of {', '.join(seen.columns)}), or --no-key to identify a row by its file and position",
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
    typer.echo(f"{path}: {len(seen.columns)} columns from {seen.rows} rows; review it, then reload the code location")
    for line in seen.form:
        typer.echo(f"found: {line}")
    for line in [*seen.left_out, *seen.notes]:
        typer.echo(f"{sample.name}: {line}")
    typer.echo(f"row key: {_about_key(seen, named)}")
    bucket = f"s3://{settings.landing_bucket}"
    if by == "none":
        typer.echo(f"the file {bucket}/{name}/latest{seen.suffix} is loaded into core/{name}")
    else:
        below = f"{name}/{folders_in_words(FOLDERS[Grain(by)])}/"
        typer.echo(f"files below {bucket}/{below} are loaded into core/{name}")


def _places(given: str) -> dict[str, tuple[int, int]]:
    """Return the places of columns in text of fixed width."""
    found = {}
    for part in _columns(given):
        name, _, place = part.partition("=")
        first, _, width = place.partition(":")
        if not (name and first.isdecimal() and width.isdecimal()):
            fail(f"--places {part}: expected NAME=FIRST:WIDTH, such as id=1:6", code=2)
        found[name] = int(first), int(width)
    return found


def _about_key(seen: "Sample", named: tuple[str, ...]) -> str:
    if named:
        count = f"; {seen.repeated} rows of the sample repeat the key of an earlier row and replace it"
        return f"{', '.join(named)}{count if seen.repeated else ''}"
    if seen.key:
        return f"{', '.join(seen.key)}, guessed: {seen.evidence}"
    return "none; a row is identified by its file and its position in it"


@commands.command()
def table(
    name: Annotated[str, typer.Argument(help="Name of the table marts/NAME.")],
    source: Annotated[str, typer.Option("--from", help="Input table, such as core/orders.")],
    by: Annotated[str, typer.Option(help="Partitions: hour, day, week, month, or none.")] = "day",
    key: Annotated[str, typer.Option(help="Comma-separated input columns that identify a row.")] = "",
) -> None:
    """Write a table's schema, transform and asset. The transform counts the input's rows, as a starting point."""
    from dagster_tidemark import location
    from dagster_tidemark.scaffold.table_modules import BY, table_modules

    settings = load_settings()
    if by not in BY:
        fail(
            f"--by {by}: expected one of {', '.join(BY)}; for other partitions, write the modules by hand "
            "(docs/tables.md)",
            code=2,
        )
    with location.without_broken_parts():
        tables = location.tables(settings)
    name_left_out(settings)
    read = source.replace("/", ".")
    if read not in tables:
        known = ", ".join(sorted(tables)).replace(".", "/")
        fail(f"--from {source}: there is no such table; known tables: {known}", code=2)
    texts = table_modules(name, tables[read], by, _columns(key), package=settings.code_location)
    package = _package(settings)
    if there := [path for path in texts if (settings.root / package / path).exists()]:
        fail(f"{package / there[0]} already exists", code=2)
    for path, text in texts.items():
        typer.echo(_write(settings.root, package / path, text))
    typer.echo(f"edit the transform of marts/{name}, then reload the code location")


def _columns(option: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in option.split(",") if part.strip())


def _package(settings: Settings) -> Path:
    return Path(settings.code_location.replace(".", "/"))


def _write(project: Path, path: Path, text: str) -> Path:
    target = project / path
    if target.exists():
        fail(f"{path} already exists", code=2)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return path


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
