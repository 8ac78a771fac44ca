"""The base class of the components: attributes of a table and its asset, and errors with file and line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails

from dagster_tidemark.component_declarations import Declaration, Declaring, pending
from dagster_tidemark.component_source import AttributePath, ComponentSource, require_keys_once, source_of
from dagster_tidemark.components.attributes import Freshness, KeptSnapshots, PartitionedBy
from dagster_tidemark.components.templates import (
    AttributeRefused,
    RawAttributes,
    as_declared,
    reads_environment,
    rendered,
    variables_of,
    with_templates,
)
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.table_partitions import DeclarationRefused

_OF_DAGSTER = {"translation", "automation_condition", "metadata", "kinds", "deps", "asset_attributes", "skippable"}
"""Attributes that other components have. For Tidemark's components, `post_processing` sets them."""
_PLAIN = (str, int, float, list, tuple, dict, type(None))
_EXPECTED = {
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "mapping_type": "a mapping",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "invalid_key": "a string as the name",
}


class BaseComponent(Declaring, dg.Component, dg.Resolvable, dg.Model):
    """Attributes of all components: settings of a table, and of the asset that fills the table."""

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

    _source: ComponentSource = PrivateAttr(ComponentSource())
    _given: dict[str, Any] = PrivateAttr({})
    _templates: dict[str, Any] = PrivateAttr({})
    _rendered: dict[str, Any] = PrivateAttr({})
    _variables: dict[str, Any] = PrivateAttr({})
    _declaration: Declaration | None = PrivateAttr(None)

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the schema of the attributes. Each attribute has exactly its type, or is a template.

        The schema that Dagster derives would also accept any text for each attribute, such as `grain: daay`.
        """

        class Attributes(RawAttributes):
            @classmethod
            def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
                return with_templates(component.model_json_schema(*args, **options))

        component = cls
        return Attributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Return the component that a `defs.yaml` declares.

        Raises:
            DeclarationRefused: the declaration of the table or feed is invalid. The message names file and line.
        """
        source = source_of(context, attributes.model_dump() if attributes else {})
        require_keys_once(source)
        with _named_by_place(source, cls):
            component: Self = super().load(attributes, context)
            component._source = source
            component._require_names()
            component._assets()  # so that invalid declarations fail here, where the line is known
        return component

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the component with these attributes, after rendering their templates (`{{ ... }}`)."""
        raw = model.model_dump()
        try:
            component = cls.model_validate(rendered(raw, context))
        except ValidationError as error:
            # Dagster reads a rendered 1.10 as a number. Render it as text for attributes that must be texts.
            texts = [each["loc"] for each in error.errors() if each["type"] == "string_type"]
            component = cls.model_validate(rendered(raw, context, texts))
        kept = {name: each for name, each in raw.items() if reads_environment(each)}
        component._templates = {name: as_declared(each, context) for name, each in kept.items()}
        component._given = {name: as_declared(each, context) for name, each in raw.items()}
        component._rendered = {name: rendered(each, context) for name, each in kept.items()}
        component._variables = variables_of(kept, context)
        return component

    @property
    def declaration(self) -> Declaration:
        """The table of the component, and the feed if it has one."""
        if self._declaration is None:
            feed, attributes = self._feed(), self._plain_attributes()
            self._declaration = Declaration(
                self._source,
                attributes | self._templates,
                self._table(feed),
                feed,
                type(self),
                self._rendered,
                self._variables,
            )
        return self._declaration

    def _plain_attributes(self) -> dict[str, Any]:
        """Return the attributes that differ from their defaults, as plain values.

        An attribute of a derived class counts as it is written in the file: the class may dump it in another form.
        """
        added = {name: each for name, each in type(self).model_fields.items() if name not in self._fields_of_tidemark()}
        written = {name: self._given[key] for name in added if (key := added[name].alias or name) in self._given}
        values = {name: getattr(self, name) for name in added.keys() - written.keys()}
        dumped = self.model_dump(mode="json", exclude_defaults=True, exclude={*written})
        sets = {name: sorted(map(repr, each)) for name, each in values.items() if isinstance(each, set | frozenset)}
        hidden = {name: each for name, each in values.items() if added[name].exclude and isinstance(each, _PLAIN)}
        changed = {name: each for name, each in written.items() if each != added[name].default}
        return dumped | {name: each for name, each in sets.items() if name in dumped} | hidden | changed

    @classmethod
    def _fields_of_tidemark(cls) -> set[str]:
        ours = (each for each in cls.__mro__ if each.__module__.startswith(f"{__package__}."))
        return set(next(ours).model_fields)  # type: ignore[attr-defined]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the component's assets. The code location has to pass them to `extend`."""
        return dg.Definitions(assets=self._assets(), resources=pending(self.declaration))

    def _require_names(self) -> None:
        """Raise ValueError if the table's name is not a valid name in SQL."""
        table = self.declaration.table.name
        if not re.fullmatch(r"[A-Za-z_]\w*\.[A-Za-z_]\w*", table, re.ASCII):
            attribute = "table" if getattr(self, "table", None) else "name"
            raise ValueError(
                f"{attribute}: expected a table name `namespace.table` of letters, digits and _, not {table!r}"
            )

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


@contextmanager
def _named_by_place(source: ComponentSource, component: type[BaseModel]) -> Iterator[None]:
    """Raise errors in a component's attributes again, with the file and line of the wrong attribute."""
    try:
        yield
    except ValidationError as error:
        path, words = in_words(error, source, component)
        raise DeclarationRefused(f"{source.place(path)}: {words}") from None
    except AttributeRefused as error:
        raise DeclarationRefused(f"{source.place(error.path)}: {error}") from error.__cause__
    except DeclarationRefused:
        raise
    except Exception as error:  # Dagster raises many types for a wrong owner, tag, cron or parameter
        words = (str(error).strip().splitlines() or [type(error).__name__])[0]
        words = re.sub(r"\S+ \S+ Description: ", "", words)
        raise DeclarationRefused(f"{source.place_of(words)}: {words}") from error.__cause__


def in_words(error: ValidationError, source: ComponentSource, component: type[BaseModel]) -> tuple[AttributePath, str]:
    """Return the path of the first wrong attribute, and a sentence about the error.

    Args:
        component: The component's class. The sentence lists its attributes if an attribute is unknown.
    """
    every = error.errors()
    if unknown := [
        str(each["loc"][0]) for each in every if each["type"] == "extra_forbidden" and len(each["loc"]) == 1
    ]:
        return (unknown[0],), _unknown(unknown[0], component)
    if missing := [str(each["loc"][-1]) for each in every if each["type"] == "missing" and len(each["loc"]) == 1]:
        verb = "are" if len(missing) > 1 else "is"
        return (), f"{', '.join(missing)} {verb} missing from attributes; add {'them' if len(missing) > 1 else 'it'}"
    # An attribute with alternative types has an error for each alternative. The deepest error is about the likely one.
    wrong = max((each for each in every if each["loc"][:1] == every[0]["loc"][:1]), key=lambda each: len(each["loc"]))
    path: AttributePath = wrong["loc"]
    if path[-1] == "[key]":
        return path[:1], f"a name in {path[0]} must be a string, not {_kind(wrong['input'])}; write it in quotes"
    shown = [*source.known(path[:-1]), *path[-1:]] if wrong["type"] in ("missing", "extra_forbidden") else None
    name = ".".join(map(str, shown or source.known(path) or path[:1]))
    alternatives = [each for each in every if each["loc"][:1] == path[:1]] if len(path) <= 2 else [wrong]
    return path, _sentence(name, wrong, alternatives, component)


def _sentence(name: str, wrong: ErrorDetails, every: Sequence[ErrorDetails], component: type[BaseModel]) -> str:
    found = wrong["input"]
    match wrong["type"]:
        case "missing":
            return f"{name} is missing; add it"
        case "extra_forbidden":
            return _unknown(name, component)
        case "enum":
            return f"{name} must be one of {wrong['ctx']['expected'].replace(' or ', ', ')}, not {found!r}"
        case "value_error":
            return f"{name}: {wrong['ctx']['error']}"
    expected = list(dict.fromkeys(_EXPECTED.get(each["type"], each["msg"]) for each in every))
    remedy = ""
    if isinstance(found, bool | int | float) and "a string" in expected:
        remedy = "; write it in quotes"
    elif found is None:
        remedy = "; give it a value, or remove the line"
    return f"{name} must be {' or '.join(expected)}, not {_kind(found)}{remedy}"


def _as_written(found: Any) -> str:
    return str(found).lower() if isinstance(found, bool) else str(found)


def _kind(found: Any) -> str:
    match found:
        case None:
            return "nothing"
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case bool() | int() | float():
            return _as_written(found)
    return repr(found)


def _unknown(name: str, component: type[BaseModel]) -> str:
    if "." in name:
        return f"{name} is unknown; remove it, or correct its name"
    if name in _OF_DAGSTER:
        return f"{name} is not an attribute of this component; set it in `post_processing` (docs/components.md)"
    known = sorted(component.model_fields)
    if close := get_close_matches(name, known, n=1):
        return f"{name} is unknown; did you mean {close[0]}?"
    return f"{name} is unknown; remove it. Known attributes: {', '.join(known)}"
