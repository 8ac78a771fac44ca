"""The text of a feed's module, from what a sample says."""

from pipelines.tidemark.scaffold.python_text import NoModule, fitted, literal, require_name
from pipelines.tidemark.scaffold.sample import Sample
from pipelines.tidemark.sources.times import TYPES, Grain

_DEFINITION = {Grain.HOUR: "HOURS", Grain.DAY: "DAYS", Grain.MONTH: "MONTHS"}
OFFERED = (*_DEFINITION, Grain.NONE)
"""The grains that a feed can begin with; the others are declared by hand."""


def feed_module(name: str, grain: Grain, sample: Sample, *, key: tuple[str, ...] = (), package: str) -> str:
    """The Python text of `<package>/feeds/<name>.py`.

    Args:
        key: Columns that name a row; by default those that the sample suggests.
        package: The code location's package, of whose `partitions` the definition is taken.

    Raises:
        NoModule: the name is no identifier, or a column of the key is not in the sample.
    """
    require_name(name, "feed")
    if missing := [column for column in key if column not in sample.columns]:
        raise NoModule(f"the sample has no column {', '.join(missing)}; it has {', '.join(sample.columns)}")
    rows_by = key or sample.key or tuple(sample.columns)
    by = None if grain is Grain.NONE else _free(str(grain), sample)
    row_key = tuple(dict.fromkeys(([by] if by else []) + list(rows_by)))
    columns = ([f'{{"{by}": "{TYPES[grain]}"}}'] if by else []) + ["LANDING", "LINEAGE"]
    lands_at = f"{name}/latest{sample.suffix}" if by is None else f"{name}/"
    words = name.replace("_", " ")
    lies_at = f"the object {lands_at}" if by is None else f"the files below {lands_at}"
    uncertain = [] if key or sample.key else ["    # No few columns tell the sample's rows apart: say which do."]
    lines = [
        f'"""{words.capitalize()}: {lies_at}, and the table {"it becomes" if by is None else "they become"}."""',
        "",
        *([f"from {package}.partitions import {_DEFINITION[grain]}"] if by else []),
        f"from {package}.tidemark import LINEAGE, Feed, Grain, Table, feed_assets",
        "",
        "LANDING = {",
        *(f"    {literal(column)}: {literal(kind)}," for column, kind in sample.columns.items()),
        "}",
        "",
        "TABLE = Table(",
        f'    name="core.{name}",',
        f"    columns={' | '.join(columns)},",
        *([f'    partitioned_by="{by}",'] if by else []),
        *uncertain,
        *fitted("row_key=(", [*map(literal, row_key)], "),"),
        f'    comment="A record of {words}",  # in your words: what is one row?',
        ")",
        "",
        "FEED = Feed(",
        f'    name="{name}",',
        f'    prefix="{lands_at}",',
        f"    grain=Grain.{grain.name},",
        "    columns=LANDING,",
        *fitted("required=(", [literal(c) for c in rows_by], "),"),
        ")",
        "",
        "ASSETS = feed_assets(",
        "    FEED,",
        "    TABLE,",
        *([f"    partitions_def={_DEFINITION[grain]},"] if by else []),
        '    tags={"tidemark/pace": "asap"},  # or a freshness_policy; without either its readers pull it',
        ")",
        "",
    ]
    return "\n".join(lines)


def _free(name: str, sample: Sample) -> str:
    """A name for the partition that no column of the files has: it comes from where a file lies."""
    taken = {column.lower() for column in sample.columns}
    return next(each for each in (name, f"file_{name}", f"file_{name}_") if each not in taken)
