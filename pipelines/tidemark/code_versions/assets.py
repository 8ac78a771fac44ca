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

from pipelines.tidemark.code_versions.fingerprint import Code, Fingerprint
from pipelines.tidemark.code_versions.lock_file import Asset
from pipelines.tidemark.code_versions.project import EVERYTHING, Definition, Files, Project
from pipelines.tidemark.code_versions.references import Ref
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.settings import CHECKOUT, load_settings


def assets_of(definitions: Iterable[Any], project: Project) -> dict[str, Asset]:
    """Each asset that can be materialized, by its key: its code version and its fingerprint.

    Args:
        definitions: Assets of a code location; what is none is passed over.
    """
    fingerprints = _Fingerprints(project)
    found = {}
    for each in definitions:
        if isinstance(each, dg.AssetsDefinition) and each.is_materializable:
            for key, version in each.code_versions_by_key.items():
                found[key.to_user_string()] = Asset(version, fingerprints.of(key))
    return dict(sorted(found.items()))


def versioned_by_code(assets: Iterable[Any]) -> list[Any]:
    """The assets, each with the fingerprint of its code as its `code_version`: nobody has to remember to raise it.

    Then every change of a transform, a schema or of what they refer to has history rebuilt, a harmless one too;
    comments, formatting, docstrings and annotations change nothing. `pipelines lock` passes such assets over.

    Args:
        assets: Everything `dg.Definitions` takes as an asset; what cannot be materialized stays as it is.
    """
    fingerprints = _Fingerprints(Project(CHECKOUT, load_settings().code_location))

    def versioned(asset: Any) -> Any:
        if not (isinstance(asset, dg.AssetsDefinition) and asset.is_materializable):
            return asset
        return asset.map_asset_specs(
            lambda spec: spec.replace_attributes(code_version=fingerprints.of(spec.key).digest)
        )

    return [versioned(asset) for asset in assets]


class _Fingerprints:
    def __init__(self, project: Project) -> None:
        self._project = project
        self._code = Code(project)
        self._bound = _bindings(project)

    def of(self, key: dg.AssetKey) -> Fingerprint:
        starts: list[Ref] = [*self._bound.get(key, ())]
        if not starts:  # made by a component, say: anything may be what it computes with
            folder = self._project.root.joinpath(*self._project.package.split("."))
            starts = [Definition(self._project.package, EVERYTHING), Files(folder)]
        return self._code.fingerprint(*starts, *self._bound.get(".".join(key.path), ()))


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
