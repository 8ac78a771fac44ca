"""The base of the components: attributes of a table and its asset, and errors with file and line."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from dagster_tidemark.component_declarations import Declaration, Declaring, pending
from dagster_tidemark.components.attributes import Freshness, KeptSnapshots, PartitionedBy
from dagster_tidemark.discovery import refusing
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.table_partitions import DeclarationRefused


class _LeftOut(dg.Component):
    """Takes the place of a component that cannot be as declared."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()


class BaseComponent(Declaring, dg.Component, dg.Resolvable, dg.Model):
    """Attributes of each component: of its table, and of the asset that fills the table."""

    name: str
    columns: dict[str, str]
    partitioned_by: str | PartitionedBy | None = None
    partitions: str | None = None
    comment: str = ""
    column_comments: dict[str, str] = Field({})
    stored_by: list[str] = Field([])
    retention: KeptSnapshots = KeptSnapshots()
    generation: int = 1
    fresh: Freshness | None = None
    code_version: str | None = None
    owners: list[str] = Field([])
    tags: dict[str, str] = Field({})
    description: str | None = None
    group_name: str | None = None

    _file: str = PrivateAttr("")
    _line: int = PrivateAttr(1)
    _declaration: Declaration | None = PrivateAttr(None)

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the schema of the attributes: exactly these types.

        The schema that Dagster derives also takes a text for each attribute, so `grain: daay` would pass it.
        """
        return cls

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Any:
        """Return the component of a `defs.yaml`.

        Within `leaving_out` a component that cannot be as declared is recorded, and an empty one takes its place.

        Raises:
            DeclarationRefused: a table or feed cannot be as declared. The message names file and line.
        """
        found: dg.Component = _LeftOut()
        with refusing(), _named_by_place(context):
            found = cls._loaded(attributes, context)
        return found

    @classmethod
    def _loaded(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        component: Self = super().load(attributes, context)
        if tree := context.resolution_context.source_position_tree:
            component._file = _below(context.project_root, tree.position.filename)
            component._line = tree.position.start.line
        component._assets()  # what cannot be fails here, where the line is known
        return component

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the component of attributes, with their templates (`{{ ... }}`) rendered.

        Dagster renders every text, and takes the result for Python: the code version "1.10" would become 1.1.
        """
        return cls(**_rendered(model.model_dump(exclude_unset=True), context))

    @property
    def declaration(self) -> Declaration:
        """Table and feed of the component."""
        if self._declaration is None:
            feed, attributes = self._feed(), self.model_dump(mode="json", exclude_defaults=True)
            self._declaration = Declaration(self._file, self._line, attributes, self._table(feed), feed)
        return self._declaration

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the component's assets, which the code location has to pass to `extend`."""
        return dg.Definitions(assets=self._assets(), resources=pending(self.declaration))

    def _feed(self) -> Feed | None:
        return None

    def _table(self, feed: Feed | None) -> Table:
        raise NotImplementedError

    def _assets(self) -> Sequence[dg.AssetsDefinition | dg.SourceAsset]:
        raise NotImplementedError

    def _table_options(self) -> dict[str, Any]:
        by = self.partitioned_by
        return {
            "partitioned_by": by.partitioning if isinstance(by, PartitionedBy) else by,
            "comment": self.comment,
            "column_comments": self.column_comments,
            "stored_by": tuple(self.stored_by),
            "retention": self.retention.retention,
            "generation": self.generation,
        }

    def _asset_options(self) -> dict[str, Any]:
        given = {"description": self.description, "group_name": self.group_name, "code_version": self.code_version}
        plain = {"owners": self.owners, "tags": self.tags, "fresh": self.fresh.policy if self.fresh else None}
        return plain | {name: value for name, value in given.items() if value is not None}


def _rendered(value: Any, context: dg.ResolutionContext) -> Any:
    match value:
        case str():
            return context.resolve_value(value) if "{{" in value or "{%" in value else value
        case dict():
            return {name: _rendered(each, context.at_path(name)) for name, each in value.items()}
        case list():
            return [_rendered(each, context.at_path(number)) for number, each in enumerate(value)]
    return value


@contextmanager
def _named_by_place(context: dg.ComponentLoadContext) -> Iterator[None]:
    """Raise errors of a component's attributes with the file and line of the attribute that they are about."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        path = [part for part in first["loc"] if isinstance(part, str | int)]
        name = ".".join(map(str, path))
        raise DeclarationRefused(f"{_place(context, path)}: {name}: {first['msg']}") from error
    except ValueError as error:
        raise DeclarationRefused(f"{_place(context, _path_in(str(error), context))}: {error}") from error


def _path_in(message: str, context: dg.ComponentLoadContext) -> list[str]:
    """Return the path of the first attribute that a message names, of `feed NAME: ...` after the name."""
    tree = context.resolution_context.source_position_tree
    attributes = tree.children.get("attributes") if tree else None
    known = attributes.children if attributes else {}
    for word in re.findall(r"\w+", re.sub(r"^(feed|table) \S+:", "", message)):
        if word in known:
            return [word]
        if inside := next((str(name) for name, each in known.items() if word in each.children), ""):
            return [inside, word]
    return []


def _place(context: dg.ComponentLoadContext, path: Sequence[str | int]) -> str:
    tree = context.resolution_context.source_position_tree
    if tree is None:
        return "component"
    position, _ = tree.lookup_closest_and_path(["attributes", *path], None)
    return f"{_below(context.project_root, position.filename)}:{position.start.line}"


def _below(root: Path, file: str) -> str:
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
