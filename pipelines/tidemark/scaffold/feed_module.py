"""The text of a feed's module, from what a sample says."""

import json
import re

from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.scaffold.sample import Sample
from pipelines.tidemark.sources.feed import Grain

_COLUMN = {Grain.HOUR: "timestamp", Grain.DAY: "date", Grain.MONTH: "date"}
_DEFINITION = {Grain.HOUR: "HOURS", Grain.DAY: "DAYS", Grain.MONTH: "MONTHS"}


class NoModule(Terminal):
    """A feed or table that cannot be written as asked. The message says why."""


def feed_module(name: str, grain: Grain, sample: Sample, *, key: tuple[str, ...] = (), package: str) -> str:
    """The Python text of `<package>/feeds/<name>.py`.

    Args:
        key: Columns that name a row; by default those that the sample suggests.
        package: The code location's package, of whose `partitions` the definition is taken.

    Raises:
        NoModule: the name is no identifier, or a column of the key is not in the sample.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NoModule(f"a feed's name is of a-z, 0-9 and _, unlike {name!r}: it names a module, a table and an asset")
    if missing := [column for column in key if column not in sample.columns]:
        raise NoModule(f"the sample has no column {', '.join(missing)}; it has {', '.join(sample.columns)}")
    rows_by = key or sample.key or tuple(sample.columns)
    by = None if grain is Grain.NONE else str(grain)
    row_key = tuple(dict.fromkeys(([by] if by else []) + list(rows_by)))
    columns = ([f'{{"{by}": "{_COLUMN[grain]}"}}'] if by and by not in sample.columns else []) + ["LANDING", "LINEAGE"]
    lands_at = f"{name}/latest{sample.suffix}" if by is None else f"{name}/"
    words = name.replace("_", " ")
    uncertain = "" if key or sample.key else "  # no few columns tell the sample's rows apart: say which do"
    lines = [
        f'"""{words.capitalize()}: the files below {lands_at}, and the table they become."""',
        "",
        *([f"from {package}.partitions import {_DEFINITION[grain]}"] if by else []),
        f"from {package}.tidemark import LINEAGE, Feed, Grain, Table, feed_assets",
        "",
        "LANDING = {",
        *(f"    {_quoted(column)}: {_quoted(kind)}," for column, kind in sample.columns.items()),
        "}",
        "",
        "TABLE = Table(",
        f'    name="core.{name}",',
        f"    columns={' | '.join(columns)},",
        *([f'    partitioned_by="{by}",'] if by else []),
        f"    row_key={_tuple(row_key)},{uncertain}",
        f'    comment="A row of {words}",',
        ")",
        "",
        "FEED = Feed(",
        f'    name="{name}",',
        f'    prefix="{lands_at}",',
        f"    grain=Grain.{grain.name},",
        "    columns=LANDING,",
        f"    required={_tuple(tuple(c for c in rows_by if c in sample.columns))},",
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


def _tuple(names: tuple[str, ...]) -> str:
    inner = ", ".join(map(_quoted, names))
    return f"({inner},)" if len(names) == 1 else f"({inner})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
