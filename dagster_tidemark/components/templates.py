"""Renders templates (`{{ ... }}`) in a component's attributes.

Dagster renders every text and evaluates the result as a Python literal, so the code version "1.10" would become 1.1.
This module renders only texts with a template, and the result stays a text if the attribute is a text. Does not belong
here: the attributes themselves (`attributes`, `base_component`).
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import RootModel

from dagster_tidemark.component_declarations import texts_in

_TEMPLATE = r"\{\{|\{%"
_VARIABLE = re.compile(r"\{\{-?\s*env\.(\w+)\s*-?\}\}")
_READS_ENVIRONMENT = re.compile(r"(\{\{|\{%).*\benv\b", re.DOTALL)
_SPACED = re.compile(r"\{\{(?!-)\s*(.*?)\s*(?<!-)\}\}", re.DOTALL)
_AS_TEXT = "text: "
"""Prefix that prevents Dagster from evaluating the rendered text as Python. It is removed afterwards."""
_ANNOTATIONS = ("title", "description", "default", "examples")

Path = tuple[str | int, ...]


class AttributeRefused(ValueError):
    """An attribute cannot be used.

    Args:
        path: The attribute's path below the component's attributes.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class RawAttributes(RootModel[Any]):
    """Attributes as written in the file. They are validated after their templates are rendered."""


def rendered(value: Any, context: dg.ResolutionContext, texts: Sequence[Path] = (), path: Path = ()) -> Any:
    """Return a value with its templates rendered.

    Args:
        texts: Paths of values whose result must stay a text.

    Raises:
        AttributeRefused: a template cannot be rendered, or names an environment variable that is not set.
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
    # Dagster renders an unset variable as None: `{{ env.TEAM }}_sales` would become the table None_sales.
    if unset := [name for name in _VARIABLE.findall(text) if name not in os.environ]:
        remedy = f"set it, or write {{{{ env('{unset[0]}', 'a default') }}}}"
        raise AttributeRefused(path, f"the environment variable {unset[0]} is not set; {remedy}")
    try:
        value = context.resolve_value(text)
        is_kept = not is_text or value is None or isinstance(value, str)
        return value if is_kept else str(context.resolve_value(_AS_TEXT + text)).removeprefix(_AS_TEXT)
    except Exception as error:  # a template may raise any error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise AttributeRefused(path, f"the template {text!r} cannot be rendered: {reason}") from None


def is_template(text: str) -> bool:
    """Return True if a text contains a template."""
    return re.search(_TEMPLATE, text) is not None


def reads_environment(value: Any) -> bool:
    """Return True if a template in a value reads an environment variable."""
    match value:
        case str():
            return _READS_ENVIRONMENT.search(value) is not None
        case dict():
            return any(map(reads_environment, value.values()))
        case list():
            return any(map(reads_environment, value))
    return False


def as_declared(value: Any, context: dg.ResolutionContext) -> Any:
    """Return a value with its templates rendered, except texts that read the environment, which stay templates."""
    match value:
        case str():
            return _SPACED.sub(r"{{ \1 }}", value) if reads_environment(value) else rendered(value, context)
        case dict():
            return {name: as_declared(each, context) for name, each in value.items()}
        case list():
            return [as_declared(each, context) for each in value]
    return value


def variables_of(value: Any, context: dg.ResolutionContext) -> dict[str, Any]:
    """Return the template variables, other than Dagster's, in all texts that read the environment."""
    own = context.scope.keys() - dg.ResolutionContext.default().scope.keys()
    used = {word for text in texts_in(value) if reads_environment(text) for word in re.findall(r"[A-Za-z_]\w*", text)}
    return {name: context.scope[name] for name in sorted(own & used - {"context"})}


def with_templates(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a component's attributes, changed so that each attribute may be a template."""
    found = dict(schema)
    if isinstance(properties := schema.get("properties"), Mapping):
        found["properties"] = {name: _or_template(each) for name, each in properties.items()}
    if definitions := schema.get("$defs"):
        found["$defs"] = {name: with_templates(each) for name, each in definitions.items()}
    return found


def _or_template(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an attribute that may be a template.

    The schema uses a condition, because with `anyOf` the message of `dg check yaml` would not name the expected type.
    """
    if schema.get("type") == "string":
        return dict(schema)
    inner = {name: each for name, each in schema.items() if name not in _ANNOTATIONS}
    for name in ("items", "additionalProperties"):
        if isinstance(inner.get(name), Mapping):
            inner[name] = _or_template(inner[name])
    shown = {name: schema[name] for name in _ANNOTATIONS if name in schema}
    return shown | {"if": {"type": "string", "pattern": _TEMPLATE}, "then": True, "else": inner}
