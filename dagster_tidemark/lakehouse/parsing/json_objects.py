"""Vectorised reader that turns JSON objects into columns of texts.

A pattern finds plain texts: one object by RFC 8259, with few levels. Quotes, brackets, colons and commas then show the
place of each member. The exact rule (`json_rows`) reads every other text. It would read a plain text in the same way.
Arrow's own JSON reader does not keep numbers as they are written. Does not belong here: lines, lists, faults.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.kernels import Mask, bytes_of

_Places = npt.NDArray[np.int64]

_HEX = "[0-9a-fA-F]"
# The escape of a UTF-16 surrogate (half a character) is plain only if the other half follows.
_CODE = rf"[0-9a-cefA-CEF]{_HEX}{{3}}|[dD](?:[0-7]{_HEX}{{2}}|[89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}})"
_STRING = rf'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u(?:{_CODE})))*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_VALUE = rf"{_STRING}|{_NUMBER}|true|false|null"
_BLANKS = r"[ \t\n\r]*"


def _object(value: str) -> str:
    return _several("{", rf"{_STRING}{_BLANKS}:{_BLANKS}(?:{value})", "}")


def _several(begin: str, one: str, end: str) -> str:
    return rf"\{begin}{_BLANKS}(?:{one}{_BLANKS}(?:,{_BLANKS}{one}{_BLANKS})*)?\{end}"


def _nesting(value: str) -> str:
    return rf"{value}|{_object(value)}|{_several('[', f'(?:{value})', ']')}"


def _whole(text: str) -> str:
    return rf"^{_BLANKS}{text}{_BLANKS}$"


_FLAT = _whole(_object(_VALUE))
# Each level makes the pattern four times as long. RE2 compiles two levels in 7 ms and cannot compile three.
_NESTED = _whole(_object(_nesting(_nesting(_VALUE))))
_WORTH_IT = 1_000  # number of texts; for fewer, the exact rule is faster than compiling the longer pattern

_QUOTE, _BACKSLASH, _COLON, _COMMA, _BLANK, _N, _BRACE = (ord(c) for c in '"\\:, n{')
BRACKETS = b"{}[]"
STEP = np.zeros(256, np.int8)
"""Change of the nesting depth for each byte value outside of strings: 1, -1 or 0."""
STEP[list(b"{[")] = 1
STEP[list(b"}]")] = -1


def is_plain(text: pa.StringArray) -> Mask:
    """Return a mask of the plain texts."""
    found = _matches(text, _FLAT)
    rest = np.flatnonzero(~found)
    if len(rest) >= _WORTH_IT:
        found[rest] = _matches(text.take(pa.array(rest)), _NESTED)
    return found


def _matches(text: pa.StringArray, pattern: str) -> Mask:
    mask: Mask = pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False)
    return mask.copy()


def columns_of(text: pa.StringArray, columns: Sequence[str]) -> tuple[dict[str, pa.Array], list[str]]:
    """Return the members of plain objects (`is_plain`).

    Args:
        text: The objects, without nulls.
        columns: Names of members. A name with points is a member of a member (`properties.city`), in objects without
            a member of the whole name.

    Returns:
        A column of texts for each name in `columns`, and the names of all members. A string becomes its content.
        Numbers and nested values stay as they are written. A null or missing value is null.
    """
    members = _members(text)
    named = members.codes_by_name()
    found = {}
    below: dict[str, dict[str, tuple[str, ...]]] = {}
    for column in columns:
        those, rows = members.last(named.get(column, []))
        found[column] = _column(members, those, rows, len(text))
        head, *steps = column.split(".")
        if steps and head in named:
            below.setdefault(head, {})[column] = tuple(steps)
    for head, paths in below.items():
        of_head = _nested_columns(members, named[head], paths, len(text))
        for column, nested in of_head.items():
            if column in named:  # such a member counts even if it is null
                has_whole_name = np.zeros(len(text), np.bool_)
                has_whole_name[members.last(named[column])[1]] = True
                nested = pc.if_else(pa.array(has_whole_name), found[column], nested)
            found[column] = nested
    return found, list(named)


def _nested_columns(
    members: _Members, codes: Sequence[int], paths: Mapping[str, tuple[str, ...]], count: int
) -> dict[str, pa.Array]:
    """Return members of the objects that are the values of a member.

    Args:
        codes: The codes of the member's name.
        paths: For each column, the names that lead from such an object to its value.
        count: Number of rows.
    """
    those, rows = members.last(codes)
    is_object = members.is_object[those]
    those, rows = those[is_object], rows[is_object]
    if not len(those):
        return {column: pa.nulls(count, pa.string()) for column in paths}
    inner = _members(members.values.take(pa.array(4 * those + 2)))
    named = inner.codes_by_name()
    places = np.zeros(count, np.int64)
    places[rows] = np.arange(len(rows))
    is_missing = np.ones(count, np.bool_)
    is_missing[rows] = False
    found: dict[str, pa.Array] = {}
    below: dict[str, dict[str, tuple[str, ...]]] = {}
    for column, (step, *steps) in paths.items():
        if steps:
            below.setdefault(step, {})[column] = tuple(steps)
        else:
            found[column] = _column(inner, *inner.last(named.get(step, [])), len(rows))
    for step, of_step in below.items():
        found |= _nested_columns(inner, named.get(step, []), of_step, len(rows))
    at = pa.array(places, mask=is_missing)
    return {column: values.take(at) for column, values in found.items()}


def _is_one_of(codes: npt.NDArray[Any], wanted: Iterable[int]) -> Mask:
    mask = np.zeros(len(codes), np.bool_)
    for code in wanted:
        mask |= codes == code
    return mask


@dataclass(frozen=True)
class _Members:
    """Members of objects, in the order of the text.

    Args:
        names: Names as they are written, without quotes.
        values: Values as they are written, strings without quotes. The n-th value is at index 4 n + 2.
        rows: For each member, the number of its object.
        is_null: True if the value is null.
        is_object: True if the value is an object.
        is_string: True if the value is a string. The mask is None if no text has an escape.
    """

    names: pa.DictionaryArray
    values: pa.StringArray
    rows: _Places
    is_null: Mask
    is_object: Mask
    is_string: Mask | None

    def codes_by_name(self) -> dict[str, list[int]]:
        """Return the codes of each name in `names`. With escapes, one name can be written in several ways."""
        named: dict[str, list[int]] = {}
        for code, name in enumerate(_decoded(self.names.dictionary.to_pylist())):
            named.setdefault(name, []).append(code)
        return named

    def last(self, codes: Sequence[int]) -> tuple[_Places, _Places]:
        """Return the last member of each object that has one of these codes, and the number of its object."""
        those = np.flatnonzero(_is_one_of(self.names.indices.to_numpy(zero_copy_only=False), codes))
        rows = self.rows[those]
        # If an object has several members with the same name, the last one counts.
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = rows[1:] != rows[:-1]
        return those[is_last], rows[is_last]


def _members(text: pa.StringArray) -> _Members:
    _, _, data = bytes_of(text)
    is_mark = (data == _QUOTE) | (data == _COLON) | (data == _COMMA)
    for bracket in BRACKETS:
        is_mark |= data == bracket
    has_escapes = unmark_escaped(is_mark, data)
    marks = np.flatnonzero(is_mark)
    kinds = data[marks]
    is_quote = kinds == _QUOTE
    before = np.cumsum(is_quote, dtype=np.int32)
    quotes = marks[np.flatnonzero(is_quote)]
    # Select by places, because numpy takes three times as long to select by a mask.
    outside = np.flatnonzero(~is_quote & (before & 1 == 0))
    marks, kinds, before = marks[outside], kinds[outside], before[outside]
    depth = np.cumsum(STEP[kinds], dtype=np.int32)
    at = np.flatnonzero((kinds == _COLON) & (depth == 1))
    is_end = depth == 0  # the last bracket of an object
    stops = np.flatnonzero((kinds == _COMMA) & (depth == 1) | is_end)
    if len(stops) > len(at):  # there are objects without members
        stops = stops[np.searchsorted(stops, at)]
    value_begins = _after_blanks(data, marks[at] + 1)
    value_ends = _before_blanks(data, marks[stops])
    first = data[value_begins]
    is_string = first == _QUOTE
    places = np.empty(4 * len(at), np.int32)
    places[0::4] = quotes[before[at] - 2] + 1
    places[1::4] = quotes[before[at] - 1]
    places[2::4] = value_begins + is_string
    places[3::4] = value_ends - is_string
    pieces = _pieces(places, data)
    names = pieces.take(pa.array(np.arange(0, 4 * len(at), 4))).dictionary_encode()
    rows = np.cumsum(is_end)[at]
    return _Members(names, pieces, rows, first == _N, first == _BRACE, is_string if has_escapes else None)


def unmark_escaped(is_mark: Mask, data: npt.NDArray[np.uint8]) -> bool:
    """Remove each mark that an unescaped backslash precedes. Return True if the data has a backslash."""
    slashes = np.flatnonzero(data == _BACKSLASH)
    if not len(slashes):
        return False
    at = np.arange(len(slashes))
    begins_run = np.ones(len(slashes), np.bool_)
    begins_run[1:] = slashes[1:] != slashes[:-1] + 1
    in_run = at - np.maximum.accumulate(np.where(begins_run, at, 0))
    is_mark[slashes[in_run & 1 == 0] + 1] = False
    return True


def _after_blanks(data: npt.NDArray[np.uint8], begins: _Places) -> _Places:
    behind = np.flatnonzero(data[begins] <= _BLANK)
    while len(behind):
        begins[behind] += 1
        behind = behind[data[begins[behind]] <= _BLANK]
    return begins


def _before_blanks(data: npt.NDArray[np.uint8], ends: _Places) -> _Places:
    before = np.flatnonzero(data[ends - 1] <= _BLANK)
    while len(before):
        ends[before] -= 1
        before = before[data[ends[before] - 1] <= _BLANK]
    return ends


def _pieces(places: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Return the texts between consecutive places."""
    if not len(places):
        return pa.array([], pa.string())
    return pa.StringArray.from_buffers(len(places) - 1, pa.py_buffer(places), pa.py_buffer(data))


def _column(members: _Members, those: _Places, rows: _Places, count: int) -> pa.Array:
    """Return a column with the values of the members `those`. A row without such a member is null."""
    if not len(those):
        return pa.nulls(count, pa.string())
    places = np.zeros(count, np.int64)
    places[rows] = 4 * those + 2
    is_missing = np.ones(count, np.bool_)
    is_missing[rows] = members.is_null[those]
    column = members.values.take(pa.array(places, mask=is_missing))
    if members.is_string is not None:
        is_string = np.zeros(count, np.bool_)
        is_string[rows] = members.is_string[those]
        escaped = pc.and_(pa.array(is_string), pc.fill_null(pc.match_substring(column, "\\"), False))
        if escaped.true_count:
            decoded = _decoded(column.filter(escaped).to_pylist())
            column = pc.replace_with_mask(column, escaped, pa.array(decoded, pa.string()))
    return column


def _decoded(strings: Sequence[str]) -> list[str]:
    """Return the contents of JSON strings without quotes."""
    if not any("\\" in s for s in strings):
        return list(strings)
    decoded: list[str] = json.loads("[" + ",".join(f'"{s}"' for s in strings) + "]")
    return decoded
