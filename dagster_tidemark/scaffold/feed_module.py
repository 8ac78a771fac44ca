"""Generates the Python text of a feed's module from the columns of a sample."""

import textwrap
from types import ModuleType

from dagster_tidemark.discovery import in_words
from dagster_tidemark.lakehouse.loading.spec import require_loadable
from dagster_tidemark.lakehouse.table import SOURCE_ROW, Table
from dagster_tidemark.scaffold.python_text import NoModule, fitted, literal, require_name
from dagster_tidemark.scaffold.sample import Sample
from dagster_tidemark.sources.feed import Feed, require_readable
from dagster_tidemark.sources.text_formats import TextFormat
from dagster_tidemark.sources.times import TYPES, Grain

_DEFINITION = {
    Grain.QUARTER_HOUR: "QUARTER_HOURS",
    Grain.HOUR: "HOURS",
    Grain.DAY: "DAYS",
    Grain.WEEK: "WEEKS",
    Grain.MONTH: "MONTHS",
}
OFFERED = (*_DEFINITION, Grain.NONE)
"""The grains that `tidemark new feed` can write; users declare other grains by hand."""


def feed_module(name: str, grain: Grain, sample: Sample, *, key: tuple[str, ...] = (), package: str) -> str:
    """Return the Python text of `<package>/feeds/<name>.py`.

    Args:
        key: Columns that identify a row; by default the columns that the sample suggests. If there are none, a row is
            identified by its file and its position in the file.
        package: The code location's package. The module imports the partitions definition from `<package>.partitions`.

    Raises:
        NoModule: the name is not an identifier, or a key column is missing or empty in the sample or is a double.
    """
    require_name(name, "feed")
    _require_key(key, sample)
    columns_of_key = key or sample.key
    by = None if grain is Grain.NONE else _free(str(grain), sample)
    row_key = [*([by] if by else []), *(columns_of_key or ("source_file", *SOURCE_ROW))]
    own = [] if columns_of_key else ["SOURCE_ROW"]
    columns = ([f'{{"{by}": "{TYPES[grain]}"}}'] if by else []) + ["LANDING", *own, "LINEAGE"]
    lands_at = f"{name}/latest{sample.suffix}" if by is None else f"{name}/"
    words = name.replace("_", " ")
    lies_at = f"the object {lands_at}" if by is None else f"the files below {lands_at}"
    form = [type(sample.settings.format).__name__] if sample.settings.format else []
    imported = sorted({"LINEAGE", "Feed", "Grain", "Table", "feed_assets", *own, *form}, key=_in_import)
    lines = [
        f'"""{words.capitalize()}: {lies_at}, and the table {"it becomes" if by is None else "they become"}."""',
        "",
        f"from dagster_tidemark import {', '.join(imported)}",
        "",
        *([f"from {package}.partitions import {_DEFINITION[grain]}", ""] if by else []),
        "LANDING = {",
        *(f"    {literal(column)}: {literal(kind)}," for column, kind in sample.columns.items()),
        "}",
        "",
        "TABLE = Table(",
        f'    name="core.{name}",',
        *fitted("columns=", [" | ".join(columns)], ","),
        *([f'    partitioned_by="{by}",'] if by else []),
        *(_about_key(key, sample)),
        *fitted("row_key=(", [*map(literal, row_key)], "),"),
        f'    comment="A record of {words}",  # in your words: what is one row?',
        ")",
        "",
        "FEED = Feed(",
        f'    name="{name}",',
        f'    prefix="{lands_at}",',
        f"    grain=Grain.{grain.name},",
        "    columns=LANDING,",
        *(fitted("required=(", [literal(c) for c in columns_of_key], "),") if columns_of_key else []),
        "    exact=True,  # a value that its type would round or cut goes to quarantine",
        *_settings(sample),
        ")",
        "",
        "ASSETS = feed_assets(",
        "    FEED,",
        "    TABLE,",
        *([f"    partitions_def={_DEFINITION[grain]},"] if by else []),
        '    tags={"tidemark/pace": "asap"},  # or fresh=timedelta(...); without either it runs when a reader needs it',
        ")",
        "",
    ]
    return "\n".join(lines)


def _settings(sample: Sample) -> list[str]:
    """Return the lines with the feed's settings that were found in the sample."""
    lines = []
    for setting, value in sample.settings.options.items():
        if isinstance(value, TextFormat):
            shown = [f"{name}={_python(option)}" for name, option in value.options.items()]
            lines += fitted(f"format={type(value).__name__}(", shown, "),", call=True)
        elif isinstance(value, dict):
            shown = [f"{literal(name)}: {_python(each)}" for name, each in value.items()]
            lines += fitted(f"{setting}={{", shown, "},")
        else:
            lines.append(f"    {setting}={_python(value)},")
    return lines


def _python(value: object) -> str:
    """Return a value as `ruff format` writes it."""
    match value:
        case str():
            return literal(value)
        case tuple():
            return f"({', '.join(map(_python, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return f"{{{', '.join(f'{literal(name)}: {_python(each)}' for name, each in value.items())}}}"
    return repr(value)


def _in_import(name: str) -> tuple[bool, bool, str]:
    """Return the sort key of an imported name: constants come first, then classes, then functions."""
    return not name.isupper(), name.islower(), name


def require_loads(text: str, path: str) -> tuple[Feed, Table]:
    """Execute the text of a feed's module before it is written, as the code location will import it.

    Raises:
        NoModule: the module cannot be imported or loaded. The message gives the reason.
    """
    module = ModuleType("written")
    try:
        exec(compile(text, path, "exec"), vars(module))
        require_readable(module.FEED)
        require_loadable(module.FEED, module.TABLE)
    except Exception as error:  # the module may raise any error
        raise NoModule(f"{path} would not load: {in_words(error)}") from error
    return module.FEED, module.TABLE


def _require_key(key: tuple[str, ...], sample: Sample) -> None:
    if missing := [column for column in key if column not in sample.columns]:
        raise NoModule(f"the sample has no column {', '.join(missing)}; it has {', '.join(sample.columns)}")
    if twice := sorted({column for column in key if key.count(column) > 1}):
        raise NoModule(f"the key has {', '.join(twice)} twice")
    if empty := [f"{column} ({sample.empty[column]} rows)" for column in key if sample.empty.get(column)]:
        raise NoModule(
            f"key columns need a value in every row, but these lack some in the sample: {', '.join(empty)}; "
            "choose others, or give --no-key"
        )
    if inexact := [column for column in key if sample.columns[column] == "double"]:
        raise NoModule(f"{', '.join(inexact)} is a double, which is not exact: choose other columns, or give --no-key")


def _about_key(key: tuple[str, ...], sample: Sample) -> list[str]:
    """Return the comment lines above a row key; none if the user named the key."""
    if key:
        return []
    if not sample.key:
        said = (
            "A row is identified by its file and its position in it, so a file that lands under two names is loaded "
            "twice. If columns identify a row, name them here."
        )
    else:
        said = f"Guessed: {sample.evidence}. Rows with the same key replace each other: check that this is right."
    return [f"    # {line}" for line in textwrap.wrap(said, 110)]


def _free(name: str, sample: Sample) -> str:
    """Return a name for the partition column that no column of the files has.

    The value of the partition column comes from a file's path.
    """
    taken = {column.lower() for column in sample.columns}
    while name.lower() in taken:
        name = f"file_{name}"
    return name
