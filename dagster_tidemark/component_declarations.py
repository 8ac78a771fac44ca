"""Declarations of components: the table that an asset fills, and the feed that it is loaded from.

A component can only give Dagster definitions. The code location's assembly and the commands find its table and feed
through its assets. Does not belong here: the components themselves (`components`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from dagster_tidemark.component_source import ComponentSource
from dagster_tidemark.dagster_internals import components
from dagster_tidemark.dagster_internals.record_copies import changed
from dagster_tidemark.discovery import refusing
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.table_partitions import DeclarationRefused, PartitionsDiffer
from dagster_tidemark.tags import IO_MANAGER, PREFIX

_PENDING = f"{PREFIX}component "
"""Prefix of the placeholders of components, until `taken_over` removes them; see `pending`."""


@dataclass(frozen=True, eq=False)
class Declaration:
    """Declaration of one component.

    Args:
        source: Its `defs.yaml` and lines.
        attributes: Its attributes that differ from the defaults, as plain values. A value from the environment is
            kept as its template.
        table: The table that its asset fills; the asset's key has the parts of the table's name.
        feed: The feed that the table is loaded from; its source asset is `raw/<name>`. None for a derived table.
        component: The component's class; None if it is unknown.
        rendered: The attributes with values from the environment, with these values.
        variables: Values of the template variables other than the environment.
    """

    source: ComponentSource
    attributes: Mapping[str, Any]
    table: Table
    feed: Feed | None = None
    component: type | None = None
    rendered: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Place of the declaration, for messages."""
        return self.source.place()

    @property
    def names(self) -> frozenset[str]:
        """The names of its asset, table and feed in messages."""
        table = self.table.name
        found = {f"table {table}", f"asset {table.replace('.', '/')}"}
        return frozenset(found | ({f"feed {self.feed.name}", f"asset raw/{self.feed.name}"} if self.feed else set()))


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in the value of an attribute, without the keys of dictionaries."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from texts_in(each)
        case list():
            for each in value:
                yield from texts_in(each)


class Declaring:
    """Base of the components whose assets Tidemark automates."""

    @property
    def declaration(self) -> Declaration:
        """Table and feed of the component."""
        raise NotImplementedError


@dataclass(frozen=True)
class ComponentDeclarations:
    """Declarations of a code location's components.

    Args:
        by_asset: Declarations by the keys of the assets that fill their tables.
    """

    by_asset: Mapping[dg.AssetKey, Declaration]

    @property
    def tables(self) -> list[Table]:
        """Each component's table."""
        return [each.table for each in self.by_asset.values()]

    @property
    def feeds(self) -> list[Feed]:
        """Each component's feed."""
        return [each.feed for each in self.by_asset.values() if each.feed]

    @property
    def keys(self) -> frozenset[dg.AssetKey]:
        """Keys of the components' assets, sources included."""
        return frozenset((*self.by_asset, *(dg.AssetKey(["raw", feed.name]) for feed in self.feeds)))

    @contextmanager
    def naming_places(self) -> Iterator[None]:
        """Add file and line to errors in the block that are about assets, feeds or tables of components."""
        try:
            yield
        except (DeclarationRefused, ValueError) as error:
            lines = str(error).splitlines()
            default = "partitions" if isinstance(error, PartitionsDiffer) else None
            if (named := [self._with_place(line, default) for line in lines]) == lines:
                raise
            raise DeclarationRefused("\n".join(named)) from error

    def _with_place(self, line: str, default: str | None) -> str:
        """Return a line of an error, preceded by the places of the components that it is about."""
        kind, _, names = line.partition(":")[0].partition(" ")
        owners = {name for each in self.by_asset.values() for name in each.names}
        about = [f"{kind.removesuffix('s')} {name}" for name in re.split(r", | and ", names)]
        found = [each for each in self.by_asset.values() if each.names.intersection(owners & set(about))]
        places = [each.source.place_of(line, default) if len(found) == 1 else each.place for each in found]
        return f"{' and '.join(places)}: {line}" if places else line


def declared_by(assets: Iterable[Any]) -> ComponentDeclarations:
    """Return the declarations of the components that defined these assets.

    Raises:
        DeclarationRefused: two components declare the same table or feed, or an asset in Python has the same key as
            the asset of a component. The message names the places.
    """
    found: dict[dg.AssetKey, Declaration] = {}
    others: list[dg.AssetKey] = []
    for spec in (spec for asset in assets if isinstance(asset, dg.AssetsDefinition) for spec in asset.specs):
        if declaration := _declaration_of(spec):
            _require_once(f"table {declaration.table.name}", found.setdefault(spec.key, declaration), declaration)
        else:
            others.append(spec.key)
    with refusing():
        if double := [key for key in others if key in found]:
            raise DeclarationRefused(
                f"{found[double[0]].place}: asset {double[0].to_user_string()} is declared here and in Python; remove "
                "one of the two, or give it another name"
            )
    feeds: dict[str, Declaration] = {}
    for each in found.values():
        if each.feed:
            _require_once(f"feed {each.feed.name}", feeds.setdefault(each.feed.name, each), each)
    return ComponentDeclarations(found)


def _declaration_of(spec: dg.AssetSpec) -> Declaration | None:
    """Return the declaration of the component that defined an asset; None if it was no component of Tidemark."""
    for component in components.components_of(spec.metadata):
        if isinstance(component, Declaring):
            declaration = component.declaration
            if declaration.table.name == ".".join(spec.key.path):
                return declaration
    return None


def _require_once(what: str, first: Declaration, other: Declaration) -> None:
    with refusing():
        if first is not other:
            places = " and ".join(sorted((first.place, other.place)))
            raise DeclarationRefused(f"{what} is declared twice, in {places}; give one of the two another name")


class _Pending(dg.ResourceDefinition):
    """Resource that makes Dagster refuse a code location whose components are not passed to Tidemark.

    Without it, Dagster would load the assets, but no sensor would ever run them.
    """

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(resource_fn=lambda _: None)
        self._declaration = declaration

    @property
    def required_resource_keys(self) -> Any:
        asset = self._declaration.table.name.replace(".", "/")
        raise DeclarationRefused(
            f"asset {asset} ({self._declaration.place}) has no automation: definitions.py does not pass it to "
            "Tidemark. Write `defs = extend(dg.load_from_defs_folder(...), load_settings())` there, import both "
            "names from dagster_tidemark, and merge other definitions before that call"
        )


def pending(declaration: Declaration) -> dict[str, dg.ResourceDefinition]:
    """Return the placeholder that a component adds to its assets' definitions; `taken_over` removes it."""
    return {f"{_PENDING}{declaration.table.name} in {declaration.place}": _Pending(declaration)}


def without_pending(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return resources without the placeholders of components."""
    return {name: value for name, value in (resources or {}).items() if not name.startswith(_PENDING)}


def taken_over(
    defs: dg.Definitions, tables: Iterable[Table], feeds: Iterable[Feed]
) -> tuple[dg.Definitions, list[Any], ComponentDeclarations]:
    """Split the definitions of a code location.

    Tidemark takes the assets of its components and of the given tables, the source of each feed, and the checks on
    these assets.

    Returns:
        The remaining definitions, the assets and checks that Tidemark takes, and the declarations of components.

    Raises:
        DeclarationRefused: two components declare the same table or feed, or an asset with Tidemark's IO manager has
            no declared table.
    """
    every = list(defs.assets or ())
    declared = declared_by(every)
    names = {table.name for table in (*tables, *declared.tables)}
    sources = {dg.AssetKey(["raw", feed.name]) for feed in (*feeds, *declared.feeds)}
    keys: set[dg.AssetKey] = set()
    ours: list[Any] = []
    refused: list[Any] = []
    for asset in every:
        if isinstance(asset, dg.SourceAsset) and asset.key in sources:
            ours.append(asset)
        elif isinstance(asset, dg.AssetsDefinition) and asset.is_materializable:
            refused.append(asset)
            with refusing():
                is_double = any(spec.key in declared.by_asset and not _declaration_of(spec) for spec in asset.specs)
                if is_double:
                    continue
                if _is_stored_by_us(asset, names):
                    ours.append(asset)
                    keys |= set(asset.keys)
                refused.pop()
    checks = list(defs.asset_checks or ())
    on_ours = [check for check in checks if {key.asset_key for key in check.check_keys} <= keys]
    remaining = changed(
        defs,
        assets=_without(every, [*ours, *refused]),
        asset_checks=_without(checks, on_ours),
        resources=without_pending(defs.resources),
    )
    return remaining, [*ours, *on_ours], declared


def _is_stored_by_us(asset: dg.AssetsDefinition, tables: Iterable[str]) -> bool:
    for key in asset.keys:
        if asset.get_io_manager_key_for_asset_key(key) == IO_MANAGER:
            if (name := ".".join(key.path)) not in tables:
                raise DeclarationRefused(
                    f"asset {key.to_user_string()} is stored by {IO_MANAGER}, but there is no table {name}: pass the "
                    "table to extend (`tables=[...]`), load its module without key_prefix, or declare the asset as a "
                    "dagster_tidemark.TableComponent"
                )
            return True
    return False


def _without(every: Sequence[Any], some: Sequence[Any]) -> list[Any]:
    ids = {id(each) for each in some}
    return [each for each in every if id(each) not in ids]
