"""Computes the fingerprint of each asset of a loaded code location.

The code of an asset starts at two statements: the one that binds the asset to a name in a module, and the declaration
of its table. Scheduling options (contract, automation, partitions) and display options are excluded. Does not belong
here: following references (`fingerprint`).
"""

import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import dagster as dg

from dagster_tidemark.code_versions.component_code import code_of_component
from dagster_tidemark.code_versions.fingerprint import Code, Fingerprint
from dagster_tidemark.code_versions.given_resources import ANY
from dagster_tidemark.code_versions.lock_file import Asset
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Files, Project
from dagster_tidemark.code_versions.references import Given, Ref
from dagster_tidemark.component_declarations import declared_by
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings


def assets_of(definitions: Iterable[Any], project: Project) -> dict[str, Asset]:
    """Return the code version and fingerprint of each materializable asset, by its key.

    Args:
        definitions: Assets of a code location. Other objects are ignored.
    """
    definitions = list(definitions)
    fingerprints = AssetCode(project, definitions)
    found = {}
    for each in definitions:
        if isinstance(each, dg.AssetsDefinition) and each.is_materializable:
            for key, version in each.code_versions_by_key.items():
                found[key.to_user_string()] = Asset(version, fingerprints.of(key, each))
    return dict(sorted(found.items()))


def versioned_by_code(assets: Iterable[Any], settings: Settings) -> list[Any]:
    """Return the assets with the fingerprint of their code as `code_version`, so that it updates itself.

    Every change of a transform, a schema or code that they refer to then rebuilds history, even a harmless change.
    Comments, formatting, docstrings and annotations do not count. `tidemark lock` skips such assets.

    Args:
        assets: Everything that `dg.Definitions` accepts as an asset. Assets that cannot be materialized are unchanged.
        settings: Settings with the project's folder and package.
    """
    assets = list(assets)
    fingerprints = AssetCode(Project(settings.code_root, settings.code_location), assets)

    def versioned(asset: Any) -> Any:
        if not (isinstance(asset, dg.AssetsDefinition) and asset.is_materializable):
            return asset
        return asset.map_asset_specs(
            lambda spec: spec.replace_attributes(code_version=fingerprints.of(spec.key, asset).digest)
        )

    return [versioned(asset) for asset in assets]


class AssetCode:
    """The code that computes each asset of the loaded code location.

    Args:
        assets: The location's assets, including assets of Tidemark's components.
    """

    def __init__(self, project: Project, assets: Iterable[Any]) -> None:
        self._project = project
        self._declared = declared_by(assets).by_asset
        self.code = Code(project)
        self._bound = _bindings(project)
        self._tables = {where for of, many in self._bound.items() if isinstance(of, str) for where in many}

    def of(self, key: dg.AssetKey, asset: dg.AssetsDefinition) -> Fingerprint:
        return self.code.fingerprint(*self.starts(key), *self._resources(asset))

    def _resources(self, asset: dg.AssetsDefinition) -> list[Ref]:
        """Return the resources that an asset requires, except resources without a value in the code location."""
        given, required = self.code.resources, _required_resources(asset)
        needed = [name for name in sorted(required) if name in given]
        return [Given(name) for name in (*needed, *([ANY] if ANY in given and required else []))]

    def starts(self, key: dg.AssetKey) -> list[Ref]:
        """Return the definitions or files where the code of an asset begins."""
        if declaration := self._declared.get(key):
            return [*code_of_component(declaration, self.code)]
        starts: list[Ref] = [*self._bound.get(key, ())]
        if not starts:  # the asset may use any code, for example if a third-party component makes it
            folder = self._project.root.joinpath(*self._project.package.split("."))
            starts = [Definition(self._project.package, EVERYTHING), Files(folder)]
        return [*starts, *self._bound.get(".".join(key.path), ())]

    def definitions(self, key: dg.AssetKey) -> dict[str, Ref]:
        """Return all definitions that compute an asset, by label."""
        return self.code.definitions(*self.starts(key))

    def declares_table(self, ref: Ref) -> bool:
        """Return True if a definition declares tables, and nothing else."""
        return ref in self._tables


def _required_resources(asset: dg.AssetsDefinition) -> set[str]:
    """Return the keys of the resources that the rows of an asset depend on.

    Dagster gives the results of an asset's checks the IO manager `io_manager`, which is never called.
    """
    required = set(asset.required_resource_keys)
    if not asset.check_specs or not isinstance(asset.node_def, dg.OpDefinition):
        return required
    called = {asset.get_io_manager_key_for_asset_key(key) for key in asset.keys} | asset.op.required_resource_keys
    called |= {given.input_manager_key for given in asset.op.ins.values() if given.input_manager_key}
    return required - ({"io_manager"} - called)


def _bindings(project: Project) -> dict[Hashable, list[Definition]]:
    """Return the module-level definitions whose value contains an asset (by key) or a table (by name).

    If several definitions contain it, only those with the fewest items are returned.
    """
    found: dict[Hashable, list[tuple[int, Definition]]] = defaultdict(list)
    for name, loaded in sorted(sys.modules.items()):
        module = project.module(name) if f"{name}.".startswith(f"{project.package}.") else None
        for bound in module.bindings if module else ():
            value = vars(loaded).get(bound)
            held = list(_named(value))
            # A collection in the module that assembles the location does not define its items.
            if not (isinstance(value, (list, tuple, dict)) and name == f"{project.package}.definitions"):
                for each in held:
                    found[each].append((len(held), Definition(name, bound)))
    return {
        of: [where for size, where in many if size == min(many, key=lambda e: e[0])[0]] for of, many in found.items()
    }


def _named(value: Any) -> Iterator[Hashable]:
    """Yield the keys of assets and the names of tables in a value."""
    match value:
        case Table():
            yield value.name
        case dg.AssetsDefinition():
            yield from value.keys
        case dict():
            yield from _named(list(value.values()))
        case list() | tuple() if type(value) in (list, tuple):  # many of Dagster's tuple subclasses cannot be iterated
            for each in value:
                yield from _named(each)
