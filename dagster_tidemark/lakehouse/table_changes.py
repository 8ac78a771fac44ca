"""Differences between a declared table and the table in the catalog, and the changes that Iceberg can make.

Belongs here: the comparison as plain data, and the rules. Runs (`catalog`, `append`) and `tidemark plan` call the same
function. So if `plan` accepts a deploy, runs do not refuse it. Does not belong here: reading the catalog
(`stored_tables`), and altering a table.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from dagster_tidemark.lakehouse.table import SchemaDiffers, Table, as_ddl, quoted

NOT_DECLARED = "not declared: "
"""Prefix of the comment on a column that a load has added from its files (`NewColumns.ADD`)."""

RETIRED = "no longer declared"
"""Prefix of the comment that a run writes on a column that is no longer declared."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class TableChangeKind(StrEnum):
    """Kind of a change to a column, or to the table."""

    ADDED = "added"
    DROPPED = "dropped"
    RENAMED = "renamed"
    WIDENED = "widened"
    RETYPED = "retyped"
    PARTITIONING = "partitioning"
    ROW_KEY = "row key"
    REPLACED = "generation"


@dataclass(frozen=True)
class Stored:
    """Table as it is in the catalog.

    Args:
        columns: Column name to Spark SQL type, in order.
        required: Columns that refuse null.
        from_files: Undeclared columns that a load has added.
        retired: Columns that are no longer declared, and that a run has marked with a comment. They are not a
            difference.
        widened: Columns that a preview has widened. A narrower declared type is not a difference.
        written: Columns that the table had when its newest snapshot was written.
        partitioned_by: The partition columns; None if they were not read.
        row_key: The row key of the last write; None if the table does not record it.
        generation: Number of the table among all tables that have had this name.
    """

    columns: Mapping[str, str]
    required: Collection[str] = ()
    from_files: Collection[str] = ()
    retired: Collection[str] = ()
    widened: Collection[str] = ()
    written: Mapping[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] | None = None
    row_key: tuple[str, ...] | None = None
    generation: int = 1

    @classmethod
    def of_json(cls, held: Mapping[str, Any]) -> "Stored":
        """Return the table from the members of a JSON object."""
        plain: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in held.items()}
        return cls(**plain)


@dataclass(frozen=True)
class TableChange:
    """Difference between a declaration and the table in the catalog.

    Args:
        column: The column's name in the table, or the declared name of a new column. Empty for a change of the table.
        before: The column's type in the table, or the table's present value; empty if the column is new.
        after: The declared type, name or value; empty if the column is no longer declared.
        refused: The reason why Iceberg cannot make the change, with the remedy; empty if it can.
    """

    kind: TableChangeKind
    column: str
    before: str = ""
    after: str = ""
    refused: str = ""

    @property
    def new_column(self) -> str:
        """Name of the column to add to the table; empty if this change adds no column."""
        return (
            self.column
            if self.kind is TableChangeKind.ADDED
            else self.after
            if self.kind is TableChangeKind.RENAMED
            else ""
        )

    @property
    def lost_column(self) -> str:
        """Name of the column that is no longer declared; empty if this change drops no column."""
        return self.column if self.kind in (TableChangeKind.DROPPED, TableChangeKind.RENAMED) else ""

    def __str__(self) -> str:
        match self.kind:
            case TableChangeKind.ADDED:
                return f"added {self.column} {self.after}"
            case TableChangeKind.DROPPED:
                return f"dropped {self.column} {self.before}"
            case TableChangeKind.RENAMED:
                return f"renamed {self.column} -> {self.after} ({self.before})"
            case TableChangeKind.PARTITIONING | TableChangeKind.ROW_KEY | TableChangeKind.REPLACED:
                return f"{self.kind} {self.before or 'none'} -> {self.after or 'none'}"
        return f"{self.kind} {self.column} {self.before} -> {self.after}"


def changes_of(table: Table, stored: Stored, *, may_have_more: bool = False) -> list[TableChange]:
    """Return the differences between a declaration and the table in the catalog.

    A dropped column and an added column with the same type and position count as one renamed column.

    Args:
        may_have_more: True if the table's feed adds undeclared columns. Then undeclared text columns are not a
            difference.
    """
    found = stored.columns
    added = {c: kind for c, kind in table.columns.items() if c not in found}
    dropped = {c: kind for c, kind in found.items() if c not in table.columns and c not in stored.retired}
    if may_have_more:
        dropped = {c: kind for c, kind in dropped.items() if kind != "string" or _same_but_for_case(c, table.columns)}
    renamed = _renamed(table, stored, added, dropped)
    changes = []
    for old, new in renamed.items():
        refused = _other_case(stored, new) or _not_droppable(table, stored, old)
        changes.append(TableChange(TableChangeKind.RENAMED, old, found[old], new, refused))
    for column in (c for c in added if c not in renamed.values()):
        refused = _other_case(stored, column)
        if not refused and stored.written.get(column, "") == added[column]:
            refused = _dropped_by_hand(table, column)
        changes.append(TableChange(TableChangeKind.ADDED, column, "", added[column], refused))
    for column in (c for c in dropped if c not in renamed):
        changes.append(
            TableChange(TableChangeKind.DROPPED, column, found[column], "", _not_droppable(table, stored, column))
        )
    for column, kind in table.columns.items():
        if column in found and found[column] != kind and not is_narrower(table, stored, column):
            changes.append(_retyped(table, stored, column, found[column], kind))
    changes += _of_the_table(table, stored)
    if table.generation > stored.generation:  # a new, empty table can have any columns
        changes = [replace(change, refused="") for change in changes]
    if table.generation != stored.generation:
        changes.append(_replaced_by(table, stored))
    return changes


def is_narrower(table: Table, stored: Stored, column: str) -> bool:
    """Return True if a column is wider than declared because a preview has widened it."""
    declared, kind = table.columns.get(column, ""), stored.columns.get(column, "")
    return column in stored.widened and widens(declared, kind)


def require_possible(table: Table, changes: Iterable[TableChange]) -> None:
    """Raise SchemaDiffers if Iceberg cannot alter a table as declared.

    Raises:
        SchemaDiffers: a change is refused; the message names each column and the remedy.
    """
    refused = [change for change in changes if change.refused]
    if refused:
        has = {c.column or str(c.kind): c.before for c in refused}
        says = {c.column or str(c.kind): c.after or None for c in refused}
        why = ". ".join(dict.fromkeys(change.refused for change in refused))
        raise SchemaDiffers(f"{table.identifier} has {has}, its declaration has {says}; {why}")


def comments_after(table: Table, stored: Stored, changes: Iterable[TableChange]) -> dict[str, str]:
    """Return the new comments of columns that are no longer declared, and of columns that are declared again."""
    comments = {c.lost_column: f"{RETIRED}: null in new rows" for c in changes if c.lost_column}
    return comments | {c: table.comment_on(c) for c in stored.retired if c in table.columns}


def widens(before: str, after: str) -> bool:
    """Return True if Iceberg can widen a type to another: int to bigint, float to double, decimals to more digits."""
    if (before, after) in (("int", "bigint"), ("float", "double")):
        return True
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    return bool(old and new) and old[2] == new[2] and int(old[1]) < int(new[1])  # type: ignore[index]


def _renamed(table: Table, stored: Stored, added: Mapping[str, str], dropped: Mapping[str, str]) -> dict[str, str]:
    """Return the renamed columns: old name to new name. They are recognized by type and position."""
    found = {old: new for old in dropped for new in added if old.lower() == new.lower()}
    both = [c for c in table.columns if c in stored.columns]

    def place(column: str, among: Collection[str]) -> str | None:
        """Return the nearest earlier column that the table and the declaration share."""
        before = list(among)[: list(among).index(column)]
        return next((c for c in reversed(before) if c in both), None)

    for old in (c for c in dropped if c not in found):
        fitting = [
            new
            for new in added
            if new not in found.values()
            and (added[new] == dropped[old] or widens(dropped[old], added[new]))
            and place(new, table.columns) == place(old, stored.columns)
        ]
        rivals = [
            c
            for c in dropped
            if c not in found and dropped[c] == dropped[old] and place(c, stored.columns) == place(old, stored.columns)
        ]
        if len(fitting) == 1 == len(rivals):
            found[old] = fitting[0]
    return found


def _same_but_for_case(column: str, columns: Collection[str]) -> bool:
    return column.lower() in {c.lower() for c in columns}


def _other_case(stored: Stored, new: str) -> str:
    old = next((c for c in stored.columns if c.lower() == new.lower()), None)  # also one that is no longer declared
    if old is None:
        return ""
    return f"Spark ignores case in names; declare it as {old!r}, or choose a name that differs in more than case"


def _dropped_by_hand(table: Table, column: str) -> str:
    columns = as_ddl({column: table.columns[column]})
    return (
        f"the declared column {column} was dropped by hand, and would be empty if it were added again. Remove it from "
        f"the declaration; or add it (ALTER TABLE {table.identifier} ADD COLUMNS ({columns})) and give the asset a "
        "new code_version, which loads it from the files that still exist"
    )


def _not_droppable(table: Table, stored: Stored, column: str) -> str:
    if column in stored.required:
        alter = f"ALTER TABLE {table.identifier} ALTER COLUMN {quoted(column)} DROP NOT NULL"
        return f"rows without it are refused, because the table requires it; allow null first ({alter})"
    if column in stored.from_files:
        return (
            "a feed has added it from its files. Keep it with new_columns=add in the feed; or declare it as string; "
            f"or drop it (ALTER TABLE {table.identifier} DROP COLUMN {quoted(column)})"
        )
    return ""


def _retyped(table: Table, stored: Stored, column: str, before: str, after: str) -> TableChange:
    if widens(before, after) and column not in table.stored_by:
        return TableChange(TableChangeKind.WIDENED, column, before, after)
    if column in stored.from_files:
        why = (
            f"a feed with new_columns=add has added it as string: declare {column} as string; or drop it (ALTER TABLE "
            f"{table.identifier} DROP COLUMN {column}) and give the asset a new code_version, which loads it again "
            "from the files that still exist"
        )
    elif column in table.stored_by:
        why = f"the table is partitioned by it; {_replaced(table)}"
    else:
        what = "the declared type is narrower" if widens(after, before) else "the types differ"
        why = f"{what}, and Iceberg can only widen a type (int to bigint, float to double, decimals to more digits)"
        why = f"{why}; give the column another name, declare {before}, or {_replaced(table)}"
    return TableChange(TableChangeKind.RETYPED, column, before, after, why)


def _of_the_table(table: Table, stored: Stored) -> Iterable[TableChange]:
    if stored.partitioned_by is not None and set(table.stored_by) - set(stored.partitioned_by):
        before, after = ", ".join(stored.partitioned_by), ", ".join(table.stored_by)
        why = f"its files are partitioned by {before or 'no column'}; {_replaced(table)}"
        yield TableChange(TableChangeKind.PARTITIONING, "", before, after, why)
    if stored.row_key is not None and set(stored.row_key) != set(table.row_key):
        yield TableChange(TableChangeKind.ROW_KEY, "", ", ".join(stored.row_key), ", ".join(table.row_key))


def _replaced_by(table: Table, stored: Stored) -> TableChange:
    before, after = str(stored.generation), str(table.generation)
    newer = "newer code has replaced the table; deploy that code, or declare its generation"
    return TableChange(
        TableChangeKind.REPLACED, "", before, after, newer if table.generation < stored.generation else ""
    )


def _replaced(table: Table) -> str:
    return (
        f"replace the table (declare generation={table.generation + 1} and a new code_version), or "
        "make it a new table (a new asset key)"
    )
