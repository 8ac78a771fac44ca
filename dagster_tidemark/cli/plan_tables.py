"""Differences between declared tables and the catalog's tables, which `tidemark plan` reports or refuses.

Readers that a difference affects are found by the names of columns in their code: in constants, attributes and SQL. The
code is not type-checked, so a mentioned name may be a column of another table. All names are in lower case, because SQL
does not distinguish cases. Belongs here: comparing the tables, their readers, and the messages. Does not belong here:
the changes that Iceberg supports (`lakehouse.table_changes`).
"""

import ast
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_tidemark import location
from dagster_tidemark.code_versions.assets import AssetCode
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Files, Project
from dagster_tidemark.code_versions.references import Attribute, Ref
from dagster_tidemark.engine.code_plan import CodePlan, TableDifference
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.table_changes import Stored, TableChange, TableChangeKind, changes_of
from dagster_tidemark.settings import Settings

_QUERIES = {".sql", ".j2", ".jinja", ".jinja2"}
_MOST_BYTES = 1_000_000  # larger files hold data
_MAKES = {"alias", "name", "toDF", "withColumn", "withColumnRenamed", "withColumns", "withColumnsRenamed"}
_AS = re.compile(r"\bas\s+`?(\w+)`?", re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """Words in a piece of code that may be names of columns, in lower case.

    Args:
        mentioned: All such words.
        made: Names that the code gives to columns that it computes from other columns.
    """

    mentioned: frozenset[str]
    made: frozenset[str]


def names_in(nodes: Iterable[ast.AST]) -> Names:
    """Return the names in a piece of code, except in docstrings."""
    mentioned: set[str] = set()
    made: set[str] = set()
    for top in nodes:
        prose = {id(n.value) for n in ast.walk(top) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
        for node in ast.walk(top):
            match node:
                case ast.Constant(value=str(text)) if id(node) not in prose:
                    mentioned |= set(re.findall(r"\w+", text))
                    made |= set(_AS.findall(text))
                case ast.Attribute(attr=name):
                    mentioned.add(name)
                case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _MAKES:
                    # F.sum("n").alias("n") needs an existing column n.
                    needs = _texts([value] if method in ("alias", "name") else node.args[1:])
                    made |= _given(node) - needs
                case ast.keyword(arg=str(name)):
                    mentioned.add(name)
    return Names(_lower(mentioned), _lower(made))


def names_in_text(text: str) -> Names:
    """Return the names in a text, such as SQL or YAML, with its comments."""
    return Names(_lower(re.findall(r"\w+", text)), _lower(_AS.findall(text)))


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _texts(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in (inner for top in nodes for inner in ast.walk(top)):
        match node:
            case ast.Constant(value=str(text)):
                found |= set(re.findall(r"\w+", text))
            case ast.Attribute(attr=name):
                found.add(name)
    return found


def _given(call: ast.Call) -> set[str]:
    """Return the constant texts among the arguments of a call, including keys and values of dictionaries."""
    found = set()
    for argument in call.args:
        parts = [*filter(None, argument.keys), *argument.values] if isinstance(argument, ast.Dict) else [argument]
        found |= {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return found


def table_differences(
    settings: Settings, definitions: dg.Definitions, plan: CodePlan, stored: Mapping[str, Stored]
) -> list[TableDifference]:
    """Return the differences of every declared table from the catalog's table, in the order of asset keys.

    Args:
        stored: The catalog's tables by name; see `stored_tables`.
    """
    tables = location.tables(settings)
    growing = {f"raw/{feed.name}" for feed in location.feeds(settings) if feed.adds_columns}
    graph = definitions.resolve_asset_graph()
    inputs = {
        node.key.to_user_string(): {parent.to_user_string() for parent in node.parent_keys}
        for node in graph.asset_nodes
    }
    rebuilt = {asset.key for asset in plan.assets if "code version" in asset.change}
    readers = _Readers(settings, tables, inputs, definitions.assets or ())
    found = []
    for name in sorted(tables.keys() & stored.keys()):
        asset = name.replace(".", "/")
        may_have_more = bool(inputs.get(asset, set()) & growing)
        if changes := changes_of(tables[name], stored[name], may_have_more=may_have_more):
            found.append(_difference(asset, changes, asset in rebuilt, readers))
    return found


def _difference(asset: str, changes: Sequence[TableChange], is_rebuilt: bool, readers: "_Readers") -> TableDifference:
    refused = [f"{change}: {change.refused}" for change in changes if change.refused]
    key = next((change for change in changes if change.kind is TableChangeKind.ROW_KEY), None)
    if key and not is_rebuilt:
        refused.append(f"{key}: existing rows have the old key; raise code_version to rebuild them")
    notes = []
    replaced = next(
        (change for change in changes if change.kind is TableChangeKind.REPLACED and not change.refused), None
    )
    if replaced and not is_rebuilt:
        refused.append(f"{replaced}: no run would fill the new table; raise code_version to rebuild it")
    elif replaced:
        old = f"{asset.replace('/', '.')}_generation_{replaced.before}"
        notes.append(f"old rows stay in {old} until you drop it; the new table is filled from the newest partition on")
    if any(change.new_column for change in changes) and not is_rebuilt and not replaced:
        new = ", ".join(change.new_column for change in changes if change.new_column)
        notes.append(f"existing rows have null in {new}; raise code_version to rebuild them")
    lost = ", ".join(change.lost_column for change in changes if change.lost_column and not change.refused)
    if lost and not replaced:
        notes.append(f"{lost} stays in the table, with null in new rows, until you drop it; readers no longer get it")
    told = []
    for change in (change for change in changes if not change.refused):
        told += readers.told(asset, change)
        refused += readers.refused(asset, change)
    return TableDifference(asset, changes, told, refused, notes)


class _Readers:
    """Finder of the assets that read a column, as far as the text of their code shows."""

    def __init__(
        self,
        settings: Settings,
        tables: Mapping[str, Table],
        inputs: Mapping[str, Collection[str]],
        assets: Iterable[Any],
    ) -> None:
        self._settings = settings
        self._assets = assets
        self._tables = tables
        self._inputs = inputs
        self._names: dict[str, dict[str, Names]] = {}
        self._data: set[str] = set()
        """Files other than queries. A column's name in one may be a coincidence, so it refuses nothing."""
        self._code: AssetCode | None = None
        self._project = Project(settings.code_root, settings.code_location)

    def told(self, asset: str, change: TableChange) -> list[str]:
        """Return a sentence for each reader that may break, or that declares a narrower type."""
        if change.kind is TableChangeKind.WIDENED:
            narrow = [reader for reader, table in self._of(asset) if table.columns.get(change.column) == change.before]
            return [
                f"{reader} declares {change.column} as {change.before}: larger values fail there" for reader in narrow
            ]
        if not change.lost_column:
            return []
        column = change.lost_column
        found = []
        for reader, _ in self._of(asset):
            if self._breaks(reader, asset, column):
                continue
            if where := self._mentions(reader, column):
                found.append(
                    f"{reader} mentions {column} ({where}): it fails if it means this column; `--preview` shows it"
                )
        return found or ([] if self._broken(asset, column) else [f"no reader mentions {column}"])

    def refused(self, asset: str, change: TableChange) -> list[str]:
        """Return a sentence for each reader that would break."""
        column = change.lost_column
        remedy = f"change it to read {change.after}" if change.kind is TableChangeKind.RENAMED else "change it too"
        return [
            f"{reader} reads {column} ({self._mentions(reader, column) or 'its table declares it'}) and would fail: "
            f"{remedy}, or keep the column declared"
            for reader in (self._broken(asset, column) if column else ())
        ]

    def _broken(self, asset: str, column: str) -> list[str]:
        return [reader for reader, _ in self._of(asset) if self._breaks(reader, asset, column)]

    def _of(self, asset: str) -> list[tuple[str, Table]]:
        nothing = Table("none", {}, ())
        return [
            (reader, self._tables.get(reader.replace("/", "."), nothing))
            for reader, inputs in sorted(self._inputs.items())
            if asset in inputs
        ]

    def _breaks(self, reader: str, asset: str, column: str) -> bool:
        """Return True if a reader needs a column that only this input can provide."""
        names, column = self._names_of(reader), column.lower()
        own = self._tables.get(reader.replace("/", "."))
        needs = any(column in each.mentioned for label, each in names.items() if label not in self._data)
        makes = any(column in each.made for each in names.values())
        others = (self._tables.get(key.replace("/", ".")) for key in self._inputs[reader] if key != asset)
        elsewhere = any(other is None or _has(other, column) for other in others)
        return (needs or bool(own and _has(own, column))) and not makes and not elsewhere

    def _mentions(self, reader: str, column: str) -> str:
        return ", ".join(label for label, each in self._names_of(reader).items() if column.lower() in each.mentioned)

    def _names_of(self, reader: str) -> dict[str, Names]:
        """Return the names in each definition and text file of a reader's code, except in declarations of tables."""
        if reader not in self._names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Dagster's warnings, which other commands show
                self._code = self._code or AssetCode(self._project, self._assets)
            key = dg.AssetKey.from_user_string(reader)
            found = self._code.definitions(key).items()
            self._names[reader] = {
                name: names
                for label, ref in found
                if not self._code.declares_table(ref)
                for name, names in self._names_at(label, ref)
            }
        return self._names[reader]

    def _names_at(self, label: str, ref: Ref) -> Iterator[tuple[str, Names]]:
        """Yield the names in a definition, in the text of a component's attribute, or in each text file."""
        match ref:
            case Definition():
                yield label, names_in(self._statements(ref))
            case Attribute(_, value):
                yield label, names_in_text(re.sub(r"\\[nrt]", "\n", value.partition("=")[2]))
            case Files(path):
                for file in [path] if path.is_file() else self._project.files_in(path):
                    name = file.relative_to(self._settings.code_root).as_posix()
                    if (text := _text_of(file)) is not None:
                        if file.suffix.lower() not in _QUERIES:
                            self._data.add(name)
                        yield name, names_in_text(text)

    def _statements(self, of: Definition) -> list[ast.stmt]:
        module = self._project.module(of.module)
        if module is None:
            return []
        return list(module.others) if of.name == EVERYTHING else module.bindings.get(of.name, [])


def _has(table: Table, column: str) -> bool:
    return column in {name.lower() for name in table.columns}


def _text_of(file: Path) -> str | None:
    """Return the text of a file; None if it is large or not text."""
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size <= _MOST_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None
