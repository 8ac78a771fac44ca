"""Describes errors in a component's attributes: the expected value, the value found, and the remedy."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dagster_tidemark.component_source import AttributePath, ComponentSource

_OF_DAGSTER = {"translation", "automation_condition", "metadata", "kinds", "deps", "asset_attributes", "skippable"}
"""Attributes that other components have. For Tidemark's components, `post_processing` sets them."""
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
