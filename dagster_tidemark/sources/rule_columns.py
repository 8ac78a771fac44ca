"""The check of the columns in a feed's rules, without Spark. A rule with an unknown column would fail every run.

sqlglot parses the rules. It does not know all of Spark's syntax: a rule that it cannot parse is not checked here.
"""

from collections.abc import Collection

from dagster_tidemark.sources.feed import RESERVED, Feed

_WITHOUT_BRACKETS = {"current_time", "localtimestamp"}  # functions of Spark that sqlglot takes for columns


def require_known_columns(feed: Feed, partition_columns: Collection[str]) -> None:
    """Check that the rules of a feed name only columns that its rows have.

    Args:
        partition_columns: The columns that rows get from the partition of their file.

    Raises:
        ValueError: a rule names another column. The message names feed, rule, column and the known columns.
    """
    if feed.adds_columns:  # its rows may have any column of its files
        return
    known = [*feed.columns, *partition_columns]
    every = {name.lower() for name in (*known, *RESERVED)} | _WITHOUT_BRACKETS
    for reason, rule in feed.rules.items():
        if unknown := [c for c in columns_of(rule) if c.lower() not in every and not c.startswith("_")]:
            raise ValueError(
                f"feed {feed.name}: rule {reason!r} reads {', '.join(map(repr, unknown))}, which is not declared; "
                f"read one of the columns {', '.join(known)}, or declare the column"
            )


def columns_of(condition: str) -> list[str]:
    """Return the names of the columns that a SQL condition reads, each once; an empty list if it cannot be parsed."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        parsed = parse_one(condition, dialect="spark")
    except SqlglotError:
        return []
    found = [column.parts[0].name for column in parsed.find_all(exp.Column)]
    return sorted({name for name in found if name})
