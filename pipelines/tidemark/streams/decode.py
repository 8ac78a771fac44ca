"""From bodies to rows: JSON objects whose members have the declared types, and what is none.

Belongs here: what a body means. Does not belong here: what becomes of a body that is no row (`rejects`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import from_json

from pipelines.tidemark.sources.records import Record
from pipelines.tidemark.streams.stream import Fields, Stream

_LONGEST_SHOWN = 10_000


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _no_number(value: Any) -> Any:
    # As pydantic reads them, 3 would be three seconds of 1970.
    if isinstance(value, int | float | Decimal) or (isinstance(value, str) and value.strip().isdecimal()):
        raise ValueError("a time is written as ISO 8601")
    return value


_TYPES: dict[str, Any] = {
    "string": Annotated[str, Field(coerce_numbers_to_str=True)],
    "bigint": Annotated[int, Field(ge=-(2**63), lt=2**63)],
    "int": Annotated[int, Field(ge=-(2**31), lt=2**31)],
    "double": Annotated[float, Field(allow_inf_nan=False)],
    "float": Annotated[float, Field(allow_inf_nan=False)],
    "boolean": bool,
    "timestamp": Annotated[datetime, BeforeValidator(_no_number)],
    "date": Annotated[date, BeforeValidator(_no_number)],
}


@dataclass(frozen=True)
class Fault:
    """A message that is no row.

    Args:
        content: The body as a text; base64 of it where it is none.
        reason: A stable code.
    """

    record: Record
    content: str
    reason: str
    message: str


@dataclass(frozen=True)
class Row:
    """A message's fields, and the message."""

    fields: Fields
    record: Record


class Decoder:
    """Reads the bodies of one stream.

    Args:
        stream: Whose table says the fields and their types.
        start: The first day of which there is data.
    """

    def __init__(self, stream: Stream, start: date) -> None:
        self._stream, self._fields = stream, stream.fields
        self._start = datetime.combine(start, time(), UTC)
        self._model = _model_of(stream)

    def read(self, records: Iterable[Record], now: datetime) -> tuple[list[Row], list[Fault]]:
        """The rows and the faults of some messages, in their order."""
        rows: list[Row] = []
        faults: list[Fault] = []
        for record in records:
            read = self._read(record, now)
            if isinstance(read, Fault):
                faults.append(read)
            else:
                rows.append(read)
        return rows, faults

    def _read(self, record: Record, now: datetime) -> Row | Fault:
        try:
            text = record.body.decode()
        except UnicodeDecodeError as error:
            shown = base64.b64encode(record.body).decode()
            return Fault(record, shown[:_LONGEST_SHOWN], "not_utf8", f"the body is no UTF-8: {error}")

        def fault(reason: str, message: str) -> Fault:
            return Fault(record, text[:_LONGEST_SHOWN], reason, message)

        try:
            found = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            return fault("malformed", f"the body is no JSON: {error}")
        if not isinstance(found, dict):
            return fault("malformed", "the body is no JSON object")
        given = {name: value for name, value in found.items() if value != "" or self._fields.get(name) == "string"}
        try:
            fields = dict(self._model.model_validate(given))
        except ValidationError as error:
            return fault(*_first(error))
        for name, value in fields.items():
            if isinstance(value, datetime):
                fields[name] = _in_utc(value)
            elif isinstance(value, str) and not _is_text(value):
                return fault("not_utf8", f"{name} holds half of a character")
        if broken := self._broken(fields, now):
            return fault(*broken)
        return Row(fields, record)

    def _broken(self, fields: Fields, now: datetime) -> tuple[str, str] | None:
        """Reason and message of the first rule that the fields break."""
        for name in self._stream.required:
            if fields[name] is None or fields[name] == "":
                return "null_value", f"{name} is missing"
        if self._stream.table.partition_columns:
            at = fields[self._stream.time or ""]
            at = at if isinstance(at, datetime) else datetime.combine(at, time(), UTC)
            if at < self._start:
                return "before_start", f"{self._stream.time} is before the first day, {self._start.date()}"
            if at > now + self._stream.latest:
                return "in_future", f"{self._stream.time} is more than {self._stream.latest} ahead of the clock"
        for reason, is_kept in self._stream.rules.items():
            try:
                kept = is_kept(fields)
            except Exception as error:  # somebody's own rule, which this row does not keep
                return reason, f"rule {reason} cannot be worked out: {type(error).__name__}: {error}"
            if not kept:
                return reason, f"it breaks the rule {reason}"
        return None


def of_message(record: Record) -> dict[str, Any]:
    """The columns `MESSAGE` of a row."""
    return {
        "message_id": record.message_id,
        "message_source": record.source,
        "topic_id": record.topic_id,
        "topic_partition": record.partition,
        "topic_offset": record.offset,
        "sent_at": record.sent_at,
    }


def table_rows(stream: Stream, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of the stream's table."""
    column = next(iter(stream.table.partition_columns), None)
    made = []
    for row in rows:
        made.append(
            {
                **row.fields,
                **({column: stream.partition_of(row.fields)} if column else {}),
                **of_message(row.record),
            }
        )
    return made


def readable(body: bytes, name: str) -> str | None:
    """A field of an object that may be broken anywhere behind it, as a text; None where it cannot be read for certain.

    Of what is no JSON the part before the first error is read, and of that only whole texts: a number may go on.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    try:
        found, is_whole = json.loads(text), True
    except (ValueError, RecursionError) as error:
        found, is_whole = _before(text[: getattr(error, "pos", 0)]), False
    value = found.get(name) if isinstance(found, dict) else None
    if is_whole and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return value if isinstance(value, str) and _is_text(value) else None


def _before(text: str) -> Any:
    try:
        return from_json(text, allow_partial=True)
    except ValueError:
        return None


def _model_of(stream: Stream) -> type[BaseModel]:
    members: dict[str, Any] = {name: (_type(kind) | None, None) for name, kind in stream.fields.items()}
    return create_model(f"{stream.name}_message", __config__=ConfigDict(extra="ignore"), **members)


def _type(kind: str) -> Any:
    if kind.startswith("decimal("):
        precision, scale = map(int, kind.removeprefix("decimal(").rstrip(")").split(","))
        return Annotated[Decimal, Field(max_digits=precision, decimal_places=scale)]
    return _TYPES[kind]


def _first(error: ValidationError) -> tuple[str, str]:
    found = error.errors(include_url=False)[0]
    name = ".".join(map(str, found["loc"][:1]))
    return "bad_type", f"{name}: {found['msg']}, not {str(found['input'])[:200]!r}"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
