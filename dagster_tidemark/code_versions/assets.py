"""The fingerprint of each asset of a loaded code location.

An asset begins at the statement that binds it in a module, and at the one that declares the table it writes. When it
runs (contract, automation, partitions) and how it is shown is not part of it. Does not belong here: going through
references (`fingerprint`).
"""

import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import dagster as dg

from dagster_tidemark.code_versions.fingerprint import Code, Fingerprint
from dagster_tidemark.code_versions.given_resources import ANY
from dagster_tidemark.code_versions.lock_file import Asset
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Files, Project
from dagster_tidemark.code_versions.references import Given, Ref
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import load_settings


def assets_of(definitions: Iterable[Any], project: Project) -> dict[str, Asset]:
    """Each asset that can be materialized, by its key: its code version and its fingerprint.

    Args:
        definitions: Assets of a code location; what is none is passed over.
    """
    fingerprints = AssetCode(project)
    found = {}
    for each in definitions:
        if isinstance(each, dg.AssetsDefinition) and each.is_materializable:
            for key, version in each.code_versions_by_key.items():
                found[key.to_user_string()] = Asset(version, fingerprints.of(key, each))
    return dict(sorted(found.items()))


def versioned_by_code(assets: Iterable[Any]) -> list[Any]:
    """The assets, each with the fingerprint of its code as its `code_version`: nobody has to remember to raise it.

    Then every change of a transform, a schema or of what they refer to has history rebuilt, a harmless one too;
    comments, formatting, docstrings and annotations change nothing. `tidemark lock` passes such assets over.

    Args:
        assets: Everything `dg.Definitions` takes as an asset; what cannot be materialized stays as it is.
    """
    settings = load_settings()
    fingerprints = AssetCode(Project(settings.root, settings.code_location))

    def versioned(asset: Any) -> Any:
        if not (isinstance(asset, dg.AssetsDefinition) and asset.is_materializable):
            return asset
        return asset.map_asset_specs(
            lambda spec: spec.replace_attributes(code_version=fingerprints.of(spec.key, asset).digest)
        )

    return [versioned(asset) for asset in assets]


class AssetCode:
    """The code that computes each asset of the loaded code location."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.code = Code(project)
        self._bound = _bindings(project)
        self._tables = {where for of, many in self._bound.items() if isinstance(of, str) for where in many}

    def of(self, key: dg.AssetKey, asset: dg.AssetsDefinition) -> Fingerprint:
        return self.code.fingerprint(*self.starts(key), *self._resources(asset))

    def _resources(self, asset: dg.AssetsDefinition) -> list[Ref]:
        """Return the resources that an asset needs and that the code location gives a value."""
        given = self.code.resources
        needed = [name for name in sorted(asset.required_resource_keys) if name in given]
        return [Given(name) for name in (*needed, *([ANY] if ANY in given and asset.required_resource_keys else []))]

    def starts(self, key: dg.AssetKey) -> list[Ref]:
        """Return the definitions or files where the code of an asset begins."""
        starts: list[Ref] = [*self._bound.get(key, ())]
        if not starts:  # made by a component, say: anything may be what it computes with
            folder = self._project.root.joinpath(*self._project.package.split("."))
            starts = [Definition(self._project.package, EVERYTHING), Files(folder)]
        return [*starts, *self._bound.get(".".join(key.path), ())]

    def definitions(self, key: dg.AssetKey) -> dict[str, Ref]:
        """Return all definitions that compute an asset, by label."""
        return self.code.definitions(*self.starts(key))

    def declares_table(self, ref: Ref) -> bool:
        """Return True if a definition declares tables, and nothing else."""
        return ref in self._tables


def _bindings(project: Project) -> dict[Hashable, list[Definition]]:
    """Which definitions hold an asset, by its key, or a table, by its name: those that hold the least else."""
    found: dict[Hashable, list[tuple[int, Definition]]] = defaultdict(list)
    for name, loaded in sorted(sys.modules.items()):
        module = project.module(name) if f"{name}.".startswith(f"{project.package}.") else None
        for bound in module.bindings if module else ():
            value = vars(loaded).get(bound)
            held = list(_named(value))
            # A collection of the module that assembles the location says nothing about what is in it.
            if not (isinstance(value, (list, tuple, dict)) and name == f"{project.package}.definitions"):
                for each in held:
                    found[each].append((len(held), Definition(name, bound)))
    return {
        of: [where for size, where in many if size == min(many, key=lambda e: e[0])[0]] for of, many in found.items()
    }


def _named(value: Any) -> Iterator[Hashable]:
    """The keys of the assets, and the names of the tables, that a value is or holds."""
    match value:
        case Table():
            yield value.name
        case dg.AssetsDefinition():
            yield from value.keys
        case dict():
            yield from _named(list(value.values()))
        case list() | tuple() if type(value) in (list, tuple):  # many objects of Dagster are tuples that cannot be read
            for each in value:
                yield from _named(each)
