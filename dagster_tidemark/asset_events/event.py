"""The event of an asset, and the JSON message that carries it between deployments."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

LONGEST_EXTRAS = 10_000
"""Most characters of an event's extras as JSON."""
_LONGEST_TEXT = 1_000
_MOST_LEVELS = 50


class InvalidEvent(ValueError):
    """The message is not a valid event of an asset. The error has the expected and the found value."""


@dataclass(frozen=True)
class AssetEvent:
    """New data in one partition of an asset.

    Args:
        id: Unique text, the same each time the event is sent.
        asset: Key of the asset: `core/orders`.
        partition: Key of the partition; None if the asset has no partitions.
        version: Data version. An event with the version of the last one changes nothing.
        at: Time of the new data (Unix seconds).
        extras: A small JSON object for readers of the asset: as JSON at most 10,000 characters and 50 levels.
        source: Name of the code location that sent the event.
    """

    id: str
    asset: str
    partition: str | None
    version: str
    at: float
    extras: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def body(self) -> str:
        """Return the message.

        Raises:
            InvalidEvent: the extras are not a JSON object, or are too large.
        """
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        try:
            extras = json.dumps(self.extras, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidEvent(f"extras of {self.asset}: expected values that JSON has: {error}") from error
        _require_small(self.extras, extras)
        said = {"id": self.id, "asset": self.asset, "partition": self.partition, "version": self.version, "at": at}
        return json.dumps(said | {"extras": json.loads(extras), "source": self.source})


def event_of(body: str) -> AssetEvent:
    """Return the event in a message.

    Raises:
        InvalidEvent: the message has another form.
    """
    try:
        found = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False).encode()  # unpaired surrogates, which no database and no page can show
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"expected text, found an unpaired surrogate: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"expected a JSON object, found no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidEvent(f"expected a JSON object, found a JSON {type(found).__name__}")
    extras = {} if found.get("extras") is None else found["extras"]
    if not isinstance(extras, dict):
        raise InvalidEvent(f"extras: expected a JSON object, found {type(extras).__name__}")
    _require_small(extras, json.dumps(extras))
    return AssetEvent(
        id=_text(found, "id"),
        asset=_text(found, "asset"),
        partition=None if found.get("partition") is None else _text(found, "partition"),
        version=_text(found, "version"),
        at=_time(found.get("at")),
        extras=extras,
        source=_text(found, "source") if found.get("source") else "",
    )


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        members = ", ".join(sorted(map(str, found))[:10]) or "none"
        raise InvalidEvent(f"{name}: expected a text, found {value!r}; the message has these members: {members}")
    if "\0" in value:
        raise InvalidEvent(f"{name}: expected a text without the character U+0000, found {value!r}")
    if len(value) > _LONGEST_TEXT:
        raise InvalidEvent(f"{name}: expected at most {_LONGEST_TEXT} characters, found {len(value)}")
    return value


def _time(value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError("a boolean is no time")
        at = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise InvalidEvent(f"at: expected a time such as 2026-11-26T06:00:00Z, found {value!r}") from error
    if at.tzinfo is None:
        raise InvalidEvent(f"at: expected a time with a zone, such as 2026-11-26T06:00:00Z, found {value!r}")
    seconds = at.timestamp()
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidEvent(f"at: expected a time after 1970, found {value!r}")
    return seconds


def _require_small(extras: Mapping[str, Any], text: str) -> None:
    if len(text) > LONGEST_EXTRAS:
        raise InvalidEvent(f"extras: expected at most {LONGEST_EXTRAS} characters of JSON, found {len(text)}")
    level: list[Any] = [extras]
    levels = 0
    while level:
        levels += 1
        values = [each for parent in level for each in (parent.values() if isinstance(parent, Mapping) else parent)]
        level = [each for each in values if isinstance(each, Mapping | list | tuple)]
    if levels > _MOST_LEVELS:  # Dagster cannot store a deep one
        raise InvalidEvent(f"extras: expected at most {_MOST_LEVELS} levels, found {levels}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
