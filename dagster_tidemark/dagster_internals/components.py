"""Dagster's components: finding the components of an asset, and loading folders of components part by part."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue
from dagster.components.core import decl
from dagster.components.core.context import ComponentDeclLoadContext
from dagster.components.core.defs_module import ComponentPath, CompositeYamlComponent, PythonFileComponent


def components_of(metadata: Mapping[str, object]) -> Iterator[object]:
    """Yield the Dagster component that made the asset with this metadata, if any.

    For an asset below a `dg.DefsFolderComponent`, the metadata names only the folder's component. The components in the
    folder are then yielded too.
    """
    origin = metadata.get("dagster/component_origin")
    waiting = [origin.instance] if isinstance(origin, ObjectMetadataValue) else []
    while waiting:
        component = waiting.pop()
        yield component
        if isinstance(component, dg.DefsFolderComponent):
            waiting += component.children.values()
        elif isinstance(component, CompositeYamlComponent):
            waiting += component.components
        elif isinstance(component, PythonFileComponent):
            waiting += component.components.values()


@contextmanager
def components_one_by_one(refusing: Callable[[Path], AbstractContextManager[None]]) -> Iterator[None]:
    """Make Dagster load each part of a folder of components separately during the block, and leave out broken parts.

    Otherwise the first broken file of the folder ends the whole load.

    Args:
        refusing: Function that returns a context for the file or folder of a part. The context suppresses errors.
    """
    declare = decl.build_filesystem_component_decl_from_context
    load, build = dg.ComponentTree.load_structural_component_at_loc, dg.ComponentTree.build_defs_at_path

    def declared(context: ComponentDeclLoadContext) -> object | None:
        found = None
        with refusing(context.path):
            found = declare(context)
        return found

    def loaded(tree: dg.ComponentTree, loc: Any) -> dg.Component:
        found: dg.Component = _NoComponent()
        with refusing(_folder_of(tree, loc)):
            found = load(tree, loc)
        return found

    def built(tree: dg.ComponentTree, loc: Any) -> dg.Definitions:
        found = dg.Definitions()
        with refusing(_folder_of(tree, loc)):
            found = build(tree, loc)
        return found

    with (
        _replaced(decl, "build_filesystem_component_decl_from_context", declared),
        _replaced(dg.ComponentTree, "load_structural_component_at_loc", loaded),
        _replaced(dg.ComponentTree, "build_defs_at_path", built),
    ):
        yield


def _folder_of(tree: dg.ComponentTree, loc: Any) -> Path:
    return loc.file_path if isinstance(loc, ComponentPath) else tree.defs_module_path


class _NoComponent(dg.Component):
    """Placeholder for a component that cannot be loaded."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
