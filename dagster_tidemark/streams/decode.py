"""The decoding of messages: bodies whose members have the declared types become rows, others become faults.

A body is a JSON object, unless the stream declares `deserialize`.

Belongs here: the meaning of a body. Does not belong here: the handling of a fault (`rejected_messages`).
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import from_json

from dagster_tidemark.sources.received_messages import ReceivedMessage
from dagster_tidemark.streams.stream_declaration import Fields, Stream
from dagster_tidemark.streams.user_rules import RaisingRules, judged, raised

_WITHOUT_VALUE = ("no_value", "empty_value")
NOT_DESERIALIZED = "not_deserialized"
"""Reason of a fault: the stream's function `deserialize` raises on the body."""

_LONGEST_SHOWN = 10_000


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _as_number(value: Any) -> Any:
    """Return the value if Pydantic may read it as a number. By itself, Pydantic reads true as 1, and "1_000" as 1000.

    Raises:
        ValueError: the value is a boolean, or text such as "1_000" or "nan".
    """
    if isinstance(value, bool):
        raise ValueError("expected a number")
    if isinstance(value, str) and _is_number(value) and not _NUMBER.fullmatch(value.strip()):
        raise ValueError("expected a number in digits, such as -12.5 or 1e3")
    return value


def _as_time(value: Any) -> Any:
    """Return the value if Pydantic may read it as a time. By itself, Pydantic reads 3 and "3.5" as seconds since 1970.

    Raises:
        ValueError: the value is a number, or a number as text.
    """
    if isinstance(value, int | float | Decimal) or (isinstance(value, str) and _is_number(value)):
        raise ValueError("expected a time in ISO 8601")
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_IS_NUMBER = BeforeValidator(_as_number)
_LARGEST_FLOAT = 3.4028234663852886e38  # the largest of 32 bits; Arrow would store a larger number as infinity

_TYPES: dict[str, Any] = {
    "string": Annotated[str, Field(coerce_numbers_to_str=True)],
    "bigint": Annotated[int, Field(ge=-(2**63), lt=2**63), _IS_NUMBER],
    "int": Annotated[int, Field(ge=-(2**31), lt=2**31), _IS_NUMBER],
    "double": Annotated[float, Field(allow_inf_nan=False), _IS_NUMBER],
    "float": Annotated[float, Field(allow_inf_nan=False, ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT), _IS_NUMBER],
    "boolean": bool,
    "timestamp": Annotated[datetime, BeforeValidator(_as_time)],
    "date": Annotated[date, BeforeValidator(_as_time)],
}


@dataclass(frozen=True)
class Fault:
    """A message that does not become a row.

    Args:
        content: The body as text; base64 of the body if it is not UTF-8.
        reason: A stable code.
        raised: The exception, as text, if the rule named by `reason` raised; otherwise empty.
    """

    record: ReceivedMessage
    content: str
    reason: str
    message: str
    raised: str = ""


@dataclass(frozen=True)
class DecodedRow:
    """A message with its decoded fields."""

    fields: Fields
    record: ReceivedMessage


class _Refusal(NamedTuple):
    reason: str
    message: str
    raised: str = ""


class Decoder:
    """Reads the bodies of one stream.

    Args:
        stream: The stream. Its table declares the fields and their types.
        start: The first day with data. Earlier messages are faults.
    """

    def __init__(self, stream: Stream, start: date) -> None:
        self._stream, self._fields = stream, stream.fields
        self._start = datetime.combine(start, time(), UTC)
        self._model = _model_of(stream)

    def read(self, records: Iterable[ReceivedMessage], now: datetime) -> tuple[list[DecodedRow], list[Fault]]:
        """Return the rows and the faults of messages, each in the order of the messages."""
        rows: list[DecodedRow] = []
        faults: list[Fault] = []
        for record in records:
            read = self._read(record, now)
            if isinstance(read, Fault):
                faults.append(read)
            else:
                rows.append(read)
        return rows, faults

    def _read(self, record: ReceivedMessage, now: datetime) -> DecodedRow | Fault:
        text = _decoded(record.body)

        def fault(reason: str, message: str, raised: str = "") -> Fault:
            content = text if text is not None else base64.b64encode(record.body).decode()
            return Fault(record, content[:_LONGEST_SHOWN], reason, message, raised)

        if record.is_null:
            names = ", ".join(name for name, _ in record.headers)
            only = f", only the headers {names}" if names else ""
            return fault("no_value", f"the record has no value{only} (a tombstone)")
        if not record.body:
            return fault("empty_value", "the body is empty")
        found = (
            self._of_json(record.body, text) if self._stream.deserialize is None else self._deserialized(record.body)
        )
        if isinstance(found, _Refusal):
            return fault(*found)
        given = {name: value for name, value in found.items() if name not in self._stream.headers}
        for name, header in self._stream.headers.items():
            value = next((value for named, value in reversed(record.headers) if named == header), None)
            given[name] = _decoded(value) if value is not None else None
            if value is not None and given[name] is None:
                return fault("not_utf8", f"{name}: the header {header} is not UTF-8")
        given = {name: value for name, value in given.items() if value != "" or self._fields.get(name) == "string"}
        try:
            fields = dict(self._model.model_validate(given))
        except ValidationError as error:
            return fault(*_first(error))
        for name, value in fields.items():
            if isinstance(value, datetime):
                try:
                    fields[name] = _in_utc(value)
                except OverflowError:
                    return fault("bad_type", f"{name}: {value.isoformat()} is outside the years 1 to 9999 in UTC")
            elif isinstance(value, str) and not _is_text(value):
                return fault("not_utf8", f"{name} contains an unpaired surrogate")
        if broken := self._broken(fields, now):
            return fault(*broken)
        return DecodedRow(fields, record)

    def _of_json(self, body: bytes, text: str | None) -> Fields | _Refusal:
        if text is None:
            return _Refusal("not_utf8", f"the body is not UTF-8: {_why_no_text(body)}")
        try:
            found = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            return _Refusal("malformed", f"the body is not JSON: {error}")
        if not isinstance(found, dict):
            return _Refusal("malformed", "the body is not a JSON object")
        if repeated := self._repeated(text):
            return _Refusal("malformed", f"the body has {', '.join(repeated)} more than once")
        return found

    def _deserialized(self, body: bytes) -> Fields | _Refusal:
        """Return the fields that the user's function finds in a body.

        Raises:
            Exception: a service, a disk or memory has failed. The message can be read again later.
        """
        found = judged(self._by_user, body)
        if isinstance(found, Exception):
            return _Refusal(NOT_DESERIALIZED, f"deserialize raises {raised(found)}", raised(found))
        return found

    def _by_user(self, body: bytes) -> Fields:
        assert self._stream.deserialize is not None
        found = self._stream.deserialize(body)
        if not isinstance(found, Mapping):
            raise TypeError(f"expected the fields by name, found {str(found)[:200]!r}")
        return found

    def _repeated(self, text: str) -> list[str]:
        """Return the columns that a JSON object has more than once. Parsers would silently keep the last value."""
        members: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list)
        if len(members) == len(dict(members)):
            return []
        return sorted(
            name for name, count in Counter(name for name, _ in members).items() if count > 1 and name in self._fields
        )

    def _broken(self, fields: Fields, now: datetime) -> tuple[str, ...] | None:
        """Return reason and message of the first rule that the fields break, and the exception if the rule raised."""
        for name in self._stream.required:
            if fields[name] is None or fields[name] == "":
                return "null_value", f"{name} is missing"
        if self._stream.partition_column is not None:
            at = fields[self._stream.time or ""]
            at = at if isinstance(at, datetime) else datetime.combine(at, time(), UTC)
            if at < self._start:
                return "before_start", f"{self._stream.time} is before the first day, {self._start.date()}"
            if at > now + self._stream.latest:
                return "in_future", f"{self._stream.time} is more than {self._stream.latest} ahead of the clock"
        for reason, is_kept in self._stream.rules.items():
            kept = judged(is_kept, fields)
            if isinstance(kept, Exception):
                return reason, f"rule {reason} cannot be evaluated: {type(kept).__name__}: {kept}", raised(kept)
            if not kept:
                return reason, f"it breaks the rule {reason}"
        return None


def judge_rules(stream: Stream, rules: RaisingRules, faults: Sequence[Fault], *, has_rows: bool) -> None:
    """Record for each rule on which messages it raised, and on how many it worked.

    Args:
        faults: All faults of a batch.
        has_rows: True if some messages became rows. All rules worked on these messages.

    Raises:
        RuleFails: a rule raises on every message.
    """
    worked = int(has_rows)
    functions = list(stream.rules)
    if stream.deserialize is not None:
        functions.insert(0, NOT_DESERIALIZED)
    for rule in reversed(functions):
        if rule == NOT_DESERIALIZED:  # it worked on each message that was refused later
            worked += sum(fault.reason not in (*functions, *_WITHOUT_VALUE) for fault in faults)
        on = [fault for fault in faults if fault.reason == rule]
        raised_on = [fault for fault in on if fault.raised]
        worked += len(on) - len(raised_on)
        error = raised_on[0].raised if raised_on else ""
        name = "deserialize" if rule == NOT_DESERIALIZED else rule
        rules.judge(name, {fault.record.message_id for fault in raised_on}, worked, error)
        worked += len(raised_on)  # rules are evaluated in order, so all earlier rules worked on these messages


def of_message(record: ReceivedMessage) -> dict[str, Any]:
    """Return the values of the columns `MESSAGE` for a message."""
    return {
        "message_id": record.message_id,
        "message_source": record.source,
        "topic_id": record.topic_id,
        "topic_partition": record.partition,
        "topic_offset": record.offset,
        "sent_at": record.sent_at,
    }


def table_rows(stream: Stream, rows: Sequence[DecodedRow]) -> list[dict[str, Any]]:
    """Return rows of the stream's table, with partition and message columns."""
    column = stream.partition_column
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
    """Return a field of a JSON object as text, even if the JSON is broken; None if its value is uncertain.

    In broken JSON only the part before the first error is read, and only complete strings: a number may be cut off.
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
        return Annotated[Decimal, Field(max_digits=precision, decimal_places=scale), _IS_NUMBER]
    return _TYPES[kind]


def _first(error: ValidationError) -> tuple[str, str]:
    found = error.errors(include_url=False)[0]
    name = ".".join(map(str, found["loc"][:1]))
    return "bad_type", f"{name}: {found['msg'].removeprefix('Value error, ')}, found {str(found['input'])[:200]!r}"


def _decoded(value: bytes) -> str | None:
    """Return the text of UTF-8; None if the bytes are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _why_no_text(body: bytes) -> str:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return str(error)
    return ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
