"""Places in a JSON text: arrays whose elements are rows, and nested members.

Values stay as they are written. Elements are decoded one at a time, so a long array takes little memory. Does not
belong here: rows (`json_rows`).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from dagster_tidemark.lakehouse.readers.values import after_blanks, decoder_of_texts, elements_from, nested_as_written


class NoArray(ValueError):
    """Error for a JSON object that has no array at the declared place."""


def elements_at(text: str, place: Sequence[str]) -> Iterator[str]:
    """Return the elements of an array inside each object of a text, as they are written.

    Args:
        text: One or more objects, one after the other, or a list of objects.
        place: The names of the members that lead to the array. A null counts as an empty array.

    Raises:
        NoArray: an object has no such array. The message names the members of the object.
        ValueError, IndexError: the text is not JSON, or ends too early.
    """
    at = after_blanks(text, 0)
    if text[at] == "[":
        for begin in elements_from(text, at):
            yield from _of_object(text, begin, place)
        return
    while at < len(text):
        end = yield from _of_object(text, at, place)
        rest = text[end:]
        at = end + len(rest) - len(rest.lstrip())


def _of_object(text: str, at: int, place: Sequence[str]) -> Generator[str, None, int]:
    """Yield the elements of the array in one object, and return the place after the object."""
    if text[at] != "{":
        raise ValueError("no object")
    decoder, found, names = decoder_of_texts(), False, list[str]()
    while text[at] != "}" and text[at := after_blanks(text, at + 1)] != "}":
        name, at = decoder.raw_decode(text, at)
        if not isinstance(name, str):
            raise ValueError("no name of a member")
        at = after_blanks(text, at)
        if text[at] != ":":
            raise ValueError("no colon after the name of a member")
        begin = after_blanks(text, at + 1)
        names.append(name)
        if name != place[0] or text.startswith("null", begin):
            found = found or (name == place[0])
            end = decoder.raw_decode(text, begin)[1]
        elif len(place) > 1:
            found = True
            end = yield from _of_object(text, begin, place[1:])
        elif text[begin] == "[":
            found = True
            end = yield from _of_array(text, begin)
        else:
            raise NoArray(f"its member {name!r} is no array")
        at = after_blanks(text, end)
        if text[at] not in ",}":
            raise ValueError("no comma after a member")
    if not found:
        raise NoArray(f"it has no member {place[0]!r}; it has {', '.join(map(repr, names[:20])) or 'none'}")
    return at + 1


def _of_array(text: str, at: int) -> Generator[str, None, int]:
    decoder = decoder_of_texts()
    while text[at] != "]" and text[at := after_blanks(text, at + 1)] != "]":
        end = decoder.raw_decode(text, at)[1]
        yield text[at:end]
        at = after_blanks(text, end)
        if text[at] not in ",]":
            raise ValueError("no comma after an element")
    return at + 1


def likely_place(text: str, known: Collection[str]) -> str | None:
    """Return the place of an array whose elements are probably the rows. The text may be incomplete.

    Args:
        known: Names of columns. An array is preferred if its first object has one of them.
    """
    found: list[tuple[bool, str]] = []
    for name, begin in _begins(text, 0):
        if text[begin] == "[":
            found += _candidate(text, begin, name, known)
        elif text[begin] == "{":
            for below, inner in _begins(text, begin):
                if text[inner] == "[":
                    found += _candidate(text, inner, f"{name}.{below}", known)
    with_known = [place for has_known, place in found if has_known]
    if with_known:
        return with_known[0]
    return found[0][1] if len(found) == 1 else None


def _begins(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Return the members of an object, each with the place where its value begins. The object may be incomplete."""
    decoder = decoder_of_texts()
    try:
        at = after_blanks(text, at)
        if text[at] != "{":
            return
        while text[at] != "}" and text[at := after_blanks(text, at + 1)] != "}":
            name, at = decoder.raw_decode(text, at)
            begin = after_blanks(text, after_blanks(text, at) + 1)
            yield str(name), begin
            at = after_blanks(text, decoder.raw_decode(text, begin)[1])
    except (ValueError, IndexError, RecursionError):
        return


def _candidate(text: str, begin: int, place: str, known: Collection[str]) -> list[tuple[bool, str]]:
    try:
        first = decoder_of_texts().raw_decode(text, after_blanks(text, begin + 1))[0]
    except (ValueError, IndexError, RecursionError):
        return []
    return [(any(value_at(first, name) is not None for name in known), place)] if isinstance(first, dict) else []


def value_at(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a member, or of a nested member (`properties.city`). None if the row lacks the member."""
    if name in row or "." not in name:
        return row.get(name)
    value: Any = row
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def written_at(nested: Mapping[str, str], name: str) -> str:
    """Return a nested value as it is written.

    Args:
        nested: The nested members of an object (`values.nested_as_written`).
        name: The name of a member that `value_at` found.
    """
    if name in nested or "." not in name:
        return nested[name]
    *steps, last = name.split(".")
    for step in steps:
        (nested,) = nested_as_written(nested[step])
    return nested[last]
