"""Random deploys that change columns: what `plan` accepts is written and read as declared, the rest is refused.

The oracle keeps rows and columns in dictionaries and writes the rules out as pairs; it shares nothing with
`lakehouse.table_changes`. The tables are real ones of Iceberg, written by pyiceberg.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.stored_tables import stored_tables
from dagster_tidemark.lakehouse.table import SchemaDiffers, Table
from dagster_tidemark.lakehouse.table_changes import changes_of
from tests.conftest import make_settings
from tests.proof.conftest import Report

FIRST = int(os.environ.get("RANDOM_FIRST", "1"))
DEPLOYS = int(os.environ.get("RANDOM_DEPLOYS", "1000"))
A_TABLE = 10  # deploys of one table
VALUES: Mapping[str, Any] = {
    "int": 7, "bigint": 2**40, "float": 0.5, "double": 0.25, "string": "x", "boolean": True,
    "decimal(5,2)": Decimal("1.25"), "decimal(9,2)": Decimal("12345.25"), "decimal(9,3)": Decimal("1.125"),
}  # fmt: skip
WIDER = {("int", "bigint"), ("float", "double"), ("decimal(5,2)", "decimal(9,2)")}
NAMES = [*"abcde", "A", "B"]


@dataclass
class Lake:
    """The expected columns and rows of a table."""

    columns: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def refuses(self, declared: Mapping[str, str]) -> bool:
        """Return True if the table cannot get the declared columns without losing data."""
        for name, kind in declared.items():
            if name in self.columns:
                if self.columns[name] != kind and (self.columns[name], kind) not in WIDER:
                    return True
            elif any(name.lower() == other.lower() for other in self.columns):
                return True
        return False


def edited(columns: Mapping[str, str], random: Random) -> dict[str, str]:
    """Return a declaration with one to three edits: a column added, dropped, renamed or retyped, or another order."""
    found = dict(columns)
    for _ in range(random.randint(1, 3)):
        what = random.choice(["add", "drop", "rename", "retype", "order"])
        name = random.choice(list(found))
        match what:
            case "add":
                found.setdefault(random.choice(NAMES), random.choice(list(VALUES)))
            case "drop" if len(found) > 1 and name != "id":
                del found[name]
            case "rename" if name != "id":
                new = random.choice(NAMES)
                if new not in found:
                    found = {new if each == name else each: kind for each, kind in found.items()}
            case "retype" if name != "id":
                wider = [after for before, after in WIDER if before == found[name]]
                found[name] = random.choice([*wider, random.choice(list(VALUES))])
            case "order":
                found = dict(random.sample(list(found.items()), len(found)))
    lower = Counter(name.lower() for name in found)
    return {name: kind for name, kind in found.items() if lower[name.lower()] == 1}


@pytest.mark.timeout(3000)
def test_accepted_column_changes_are_readable_and_refused_ones_change_nothing(report: Report, tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    lake, random = open_lake(settings), Random(FIRST)
    seen: Counter[str] = Counter()
    wrong = []
    for number in range(DEPLOYS):
        if number % A_TABLE == 0:
            expected = Lake({"id": "bigint"})
            table = Table(f"proof.t{number}", {"id": "bigint"}, ("id",))
            Appendable(lake, table)
        declared = edited(table.columns, random)
        after = replace(table, columns=declared)
        changes = changes_of(after, stored_tables(settings, [after])[after.name])
        seen.update(str(change.kind) for change in changes)
        is_refused = any(change.refused for change in changes)
        if is_refused is not expected.refuses(declared):
            wrong.append(f"{number}: refused {is_refused}: {expected.columns} -> {declared}: {list(map(str, changes))}")
            continue
        row = {name: VALUES[kind] for name, kind in declared.items()} | {"id": number}
        try:
            writer = Appendable(lake, after)
            writer.commit(TableCommit(rows_of(writer.schema, [row])))
        except SchemaDiffers:
            seen["refused"] += 1
            wrong += [] if is_refused else [f"{number}: a run refuses what plan accepts: {declared}"]
            continue
        if is_refused:
            wrong.append(f"{number}: a run does what plan refuses: {declared}")
        expected.columns |= declared
        expected.rows.append(row)
        table = after
        held = {found["id"]: found for found in writer.rows().to_pylist()}
        for each in expected.rows:
            for name in declared:
                if held[each["id"]][name] != each.get(name):
                    wrong.append(f"{number}: {name} of {each['id']}: {held[each['id']][name]} for {each.get(name)}")
    report(
        "column-deploys",
        {
            "what": "random edits of a declaration's columns, ten a table, each planned and then written and read",
            "deploys": DEPLOYS,
            "seen": dict(sorted(seen.items())),
            "wrong": wrong,
        },
    )
    assert wrong == []
    assert all(seen[kind] for kind in ("added", "dropped", "renamed", "widened", "retyped", "refused"))
