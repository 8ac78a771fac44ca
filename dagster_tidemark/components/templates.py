"""Templates (`{{ ... }}`) in a component's attributes: which attributes take one, and what it becomes.

Dagster renders every text and takes the result for Python, so the code version "1.10" would become 1.1. Here only texts
that hold a template are rendered. The result stays a text where the attribute is one. Does not belong here: the
attributes themselves (`attributes`, `base_component`).
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import RootModel

_TEMPLATE = r"\{\{|\{%"
_VARIABLE = re.compile(r"\{\{-?\s*env\.(\w+)\s*-?\}\}")
_READS_ENVIRONMENT = re.compile(r"(\{\{|\{%).*\benv\b", re.DOTALL)
_AS_TEXT = "text: "
"""Prefix that keeps Dagster from taking the rendered text for Python; it is removed."""
_ANNOTATIONS = ("title", "description", "default", "examples")

Path = tuple[str | int, ...]


class AttributeRefused(ValueError):
    """An attribute is unusable.

    Args:
        path: Its place below the component's attributes.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class RawAttributes(RootModel[Any]):
    """Attributes as they are in the file. They are validated after their templates are rendered."""


def rendered(value: Any, context: dg.ResolutionContext, texts: Sequence[Path] = (), path: Path = ()) -> Any:
    """Return a value with its templates rendered.

    Args:
        texts: Paths at which the result has to be a text.

    Raises:
        AttributeRefused: a template cannot be rendered, or names a variable of the environment that is not set.
    """
    match value:
        case str() if is_template(value):
            return _rendered_text(value, context, path, is_text=any(each[: len(path)] == path for each in texts))
        case dict():
            return {name: rendered(each, context, texts, (*path, name)) for name, each in value.items()}
        case list():
            return [rendered(each, context, texts, (*path, number)) for number, each in enumerate(value)]
    return value


def _rendered_text(text: str, context: dg.ResolutionContext, path: Path, *, is_text: bool) -> Any:
    # Dagster takes an unset variable for None: `{{ env.TEAM }}_sales` would be the table None_sales.
    if unset := [name for name in _VARIABLE.findall(text) if name not in os.environ]:
        remedy = f"set it, or write {{{{ env('{unset[0]}', 'a default') }}}}"
        raise AttributeRefused(path, f"the environment variable {unset[0]} is not set; {remedy}")
    try:
        value = context.resolve_value(text)
        is_kept = not is_text or value is None or isinstance(value, str)
        return value if is_kept else str(context.resolve_value(_AS_TEXT + text)).removeprefix(_AS_TEXT)
    except Exception as error:  # a template runs any code
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise AttributeRefused(path, f"the template {text!r} cannot be rendered: {reason}") from None


def is_template(text: str) -> bool:
    """Return True if a text holds a template."""
    return re.search(_TEMPLATE, text) is not None


def reads_environment(value: Any) -> bool:
    """Return True if a template in a value reads a variable of the environment."""
    match value:
        case str():
            return _READS_ENVIRONMENT.search(value) is not None
        case dict():
            return any(map(reads_environment, value.values()))
        case list():
            return any(map(reads_environment, value))
    return False


def with_templates(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a component's attributes, in which each attribute may be a template."""
    found = dict(schema)
    if isinstance(properties := schema.get("properties"), Mapping):
        found["properties"] = {name: _or_template(each) for name, each in properties.items()}
    if definitions := schema.get("$defs"):
        found["$defs"] = {name: with_templates(each) for name, each in definitions.items()}
    return found


def _or_template(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an attribute that may be a template.

    A condition, because with `anyOf` the message of `dg check yaml` would no longer say what is expected.
    """
    if schema.get("type") == "string":
        return dict(schema)
    inner = {name: each for name, each in schema.items() if name not in _ANNOTATIONS}
    for name in ("items", "additionalProperties"):
        if isinstance(inner.get(name), Mapping):
            inner[name] = _or_template(inner[name])
    shown = {name: schema[name] for name in _ANNOTATIONS if name in schema}
    return shown | {"if": {"type": "string", "pattern": _TEMPLATE}, "then": True, "else": inner}
