"""Types of Avro: what a schema declares, and Arrow columns from decoded values.

Values are decoded without logical types, so a number of days or a text of invalid UTF-8 is no error here. Does not
belong here: the container file (`avro_blocks`), and declared types (`typed_rows`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.values import texts_of

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_WITHOUT_A_TYPE = {"duration", "big-decimal"}
_IN_A_TEXT = {"boolean", "int", "long", "double", "string"}
_MOST_DIGITS, _DIGITS_OF_128 = 76, 38
_MOST_TYPES = 100_000
"""Largest number of types in a schema, counted at each use of a name. A name that is used twice in each of 40 levels
would otherwise be resolved for days."""


@dataclass(frozen=True)
class AvroType:
    """Type of a value.

    Args:
        arrow: Type of the column in Arrow; None if such values are not read.
        kind: How values become a column: `plain`, `text`, `decimal`, `uuid`, `union`, `record`, `array` or `map`.
        members: Types of a record's members, by name.
        item: Type of the items of an array, or of the values of a map.
        why: A description of the type, if such values are not read.
    """

    arrow: pa.DataType | None
    kind: str = "plain"
    members: Mapping[str, AvroType] = field(default_factory=dict)
    item: AvroType | None = None
    why: str = ""


@dataclass(frozen=True)
class AvroSchema:
    """Schema of a file.

    Args:
        columns: Type of each member of a row.
        decoded: The schema that decodes rows, as JSON. It reads the same bytes, but has no logical types, and its texts
            are bytes.
    """

    columns: Mapping[str, AvroType]
    decoded: bytes

    @staticmethod
    def of(schema: bytes) -> AvroSchema:
        """Return a schema from its JSON.

        Raises:
            Unusable: the schema is invalid, or its rows are no records.
        """
        try:
            given = json.loads(schema)
            names = _Names()
            found = names.type_of(given, "", ())
            decoded = json.dumps(names.decoded(given)).encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Unusable("unreadable", f"its Avro schema is invalid: {type(error).__name__}: {error}") from error
        if found.kind != "record":
            raise Unusable("unreadable", f"its rows are no records; its Avro schema is {schema[:100].decode()}")
        return AvroSchema(found.members, decoded)


class _Names:
    """Named types of a schema."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, str]] = {}
        self._count = 0

    def type_of(self, given: Any, space: str, within: tuple[str, ...]) -> AvroType:
        """Return the type of a part of a schema.

        Args:
            space: The namespace of names without one.
            within: The records around this part. A record inside of itself has no type in Arrow.

        Raises:
            Unusable: the schema has too many types.
        """
        self._count += 1
        if self._count > _MOST_TYPES:
            raise Unusable(
                "unreadable",
                f"its Avro schema has more than {_MOST_TYPES} types, counted at each use; write fewer members",
            )
        if isinstance(given, list):
            return self._union([self.type_of(each, space, within) for each in given], given)
        if isinstance(given, str):
            return self._named(given, space, within)
        kind, logical = given["type"], given.get("logicalType")
        if not isinstance(kind, str):
            return self.type_of(kind, space, within)
        if kind in ("record", "error", "enum", "fixed"):
            name = _full(given["name"], given.get("namespace", space))
            space = name.rpartition(".")[0]
            self._known[name] = given, space
            within = (*within, name) if kind in ("record", "error") else within
        match kind:
            case "record" | "error":
                return _record({each["name"]: self.type_of(each["type"], space, within) for each in given["fields"]})
            case "array":
                return _array(self.type_of(given["items"], space, within))
            case "map":
                return _map(self.type_of(given["values"], space, within))
            case "enum":
                return AvroType(pa.string())
            case "fixed" if logical == "uuid" and given["size"] == 16:
                return AvroType(pa.string(), "uuid")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(given.get("precision"), given.get("scale", 0))
        if logical in _WITHOUT_A_TYPE and kind in ("bytes", "fixed"):
            return AvroType(None, why=f"a {logical}")
        if kind == "fixed":
            return AvroType(pa.binary())
        if (kind, logical) in _LOGICAL:
            return AvroType(_LOGICAL[kind, logical])
        return self._named(kind, space, within)

    def _named(self, name: str, space: str, within: tuple[str, ...]) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(_PRIMITIVES[name], "text" if name == "string" else "plain")
        full = _full(name, space)
        if full in within:
            return AvroType(None, why=f"a record {full} that has itself as a member")
        given, space = self._known[full]
        return self.type_of(given, space, within)

    def _union(self, found: Sequence[AvroType], given: Sequence[Any]) -> AvroType:
        of_values = [(each, named) for each, named in zip(found, given, strict=True) if named != "null"]
        if not of_values:
            return AvroType(pa.null())
        if len(of_values) == 1:
            return of_values[0][0]
        names = [named if isinstance(named, str) else named["type"] for _, named in of_values]
        kinds = {each.arrow for each, _ in of_values}
        if kinds <= {pa.int32(), pa.int64()}:
            return AvroType(pa.int64())
        if all(isinstance(named, str) and named in _IN_A_TEXT for _, named in of_values):
            return AvroType(pa.string(), "union")
        return AvroType(None, why=f"a union of {', '.join(map(str, names))}")

    def decoded(self, given: Any) -> Any:
        """Return a schema that decodes the same bytes without logical types, and texts as bytes."""
        if isinstance(given, list):
            return [self.decoded(each) for each in given]
        if isinstance(given, str):
            return "bytes" if given == "string" else given
        kind = given["type"]
        if not isinstance(kind, str):
            return self.decoded(kind)
        found = {name: given[name] for name in ("name", "namespace", "symbols", "size") if name in given}
        match kind:
            case "record" | "error":
                members = [{"name": each["name"], "type": self.decoded(each["type"])} for each in given["fields"]]
                return found | {"type": "record", "fields": members}
            case "array":
                return {"type": "array", "items": self.decoded(given["items"])}
            case "map":
                return {"type": "map", "values": self.decoded(given["values"])}
            case "enum" | "fixed":
                return found | {"type": kind}
        return self.decoded(kind)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _record(members: Mapping[str, AvroType]) -> AvroType:
    if why := next((each.why for each in members.values() if each.arrow is None), None):
        return AvroType(None, "record", members, why=f"a record with {why}")
    if not members:
        return AvroType(None, "record", why="a record without members")
    return AvroType(pa.struct([(name, each.arrow) for name, each in members.items()]), "record", members)


def _array(item: AvroType) -> AvroType:
    if item.arrow is None:
        return AvroType(None, why=f"an array of {item.why}")
    if item.arrow == pa.null():  # its items have no bytes, so a few bytes could claim to have billions of them
        raise ValueError("it has an array of nulls")
    return AvroType(pa.list_(item.arrow), "array", item=item)


def _map(item: AvroType) -> AvroType:
    if item.arrow is None:
        return AvroType(None, why=f"a map of {item.why}")
    return AvroType(pa.map_(pa.string(), item.arrow), "map", item=item)


def _decimal(digits: object, places: object) -> AvroType:
    if not (isinstance(digits, int) and isinstance(places, int) and 0 <= places <= digits and digits > 0):
        return AvroType(None, why=f"a decimal of precision {digits} and scale {places}")
    if digits > _MOST_DIGITS:
        return AvroType(None, why=f"a decimal of {digits} digits")
    kind = pa.decimal128 if digits <= _DIGITS_OF_128 else pa.decimal256
    return AvroType(kind(digits, places), "decimal")


def column_of(of: AvroType, values: Sequence[Any]) -> pa.Array:
    """Return decoded values as a column. A text may be invalid UTF-8.

    Raises:
        pa.ArrowInvalid: a value is outside of its type.
    """
    match of.kind:
        case "text":
            return pa.array(values, pa.binary()).view(pa.string())
        case "decimal":
            return _decimals(of.arrow.scale, values) if of.arrow is not None else pa.nulls(len(values))
        case "uuid":
            return pa.array([None if v is None else str(uuid.UUID(bytes=v)) for v in values], pa.string())
        case "union":
            return pa.array([_text(v) for v in values], pa.binary()).view(pa.string())
        case "record":
            members = [
                column_of(each, [None if v is None else v[name] for v in values]) for name, each in of.members.items()
            ]
            is_null = pa.array([v is None for v in values], pa.bool_())
            return pa.StructArray.from_arrays(members, list(of.members), mask=is_null)
        case "array" | "map":
            return _nested(of, values)
    return pa.array(values, of.arrow)


def _nested(of: AvroType, values: Sequence[Any]) -> pa.Array:
    assert of.item is not None
    ends = np.cumsum([0, *(len(v) if v is not None else 0 for v in values)])
    is_null = [v is None for v in values]
    offsets = pa.array(ends, pa.int32(), mask=np.array([*is_null, False]))
    held = [v for v in values if v is not None]
    if of.kind == "array":
        return pa.ListArray.from_arrays(offsets, column_of(of.item, [item for v in held for item in v]))
    keys = pa.array([name for v in held for name in v], pa.string())
    return pa.MapArray.from_arrays(offsets, keys, column_of(of.item, [item for v in held for item in v.values()]))


def _decimals(places: int, values: Sequence[bytes | None]) -> pa.Array:
    """Return decimals from bytes. A value may have more digits than its type."""
    numbers = [None if v is None else int.from_bytes(v, "big", signed=True) for v in values]
    is_long = any(n is not None and abs(n) >= 10**_DIGITS_OF_128 for n in numbers)
    if any(n is not None and abs(n) >= 10**_MOST_DIGITS for n in numbers):
        raise pa.ArrowInvalid(f"a decimal has more than {_MOST_DIGITS} digits")
    kind = pa.decimal256(_MOST_DIGITS, places) if is_long else pa.decimal128(_DIGITS_OF_128, places)
    width = 32 if is_long else 16
    content = b"".join((n or 0).to_bytes(width, "little", signed=True) for n in numbers)
    is_valid = pa.array([n is not None for n in numbers], pa.bool_())
    return pa.Array.from_buffers(kind, len(numbers), [is_valid.buffers()[1], pa.py_buffer(content)])


def _text(value: Any) -> bytes | None:
    """Return a value of a union of several types as a text."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        found: str = texts_of(pa.array([value], pa.float64()))[0].as_py()
        return found.encode()
    return str(value).encode()
