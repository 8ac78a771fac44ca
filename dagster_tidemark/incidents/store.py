"""The book of incidents in Dagster's storage: table `kvs`, on SQLite and PostgreSQL alike.

One value holds incidents and outbox, so an incident is never stored without its message. A change replaces the value
only if no other process has replaced it in the meantime. Closed incidents move to a second value, the newest first.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from dagster import DagsterInstance
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.errors import Transient
from dagster_tidemark.incidents.incident import BOOK_VERSION, Book, Incident
from dagster_tidemark.tags import INCIDENTS, INCIDENTS_CLOSED

KEPT_CLOSED = 200
"""Number of closed incidents that are kept."""
_TRIES = 20


class BookBusy(Transient):
    """Other processes replace the book of incidents all the time."""


@cache
def _books() -> TypeAdapter[Book]:
    return TypeAdapter(Book)  # built on first use: it takes some milliseconds


@cache
def _histories() -> TypeAdapter[tuple[Incident, ...]]:
    return TypeAdapter(tuple[Incident, ...])


@dataclass(frozen=True)
class IncidentStore:
    """The incidents of a code location."""

    instance: DagsterInstance
    location: str

    def read(self) -> Book:
        """Return the book; an empty one if there is none of this version."""
        return self._read()[1]

    def change(self, change: Callable[[Book], Book]) -> Book:
        """Store a changed book, and return it. `change` is called again if another process was quicker.

        Raises:
            BookBusy: another process was quicker each time.
        """
        for _ in range(_TRIES):
            before, book = self._read()
            changed = change(book)
            if changed == book:
                return book
            if instance_store.replace_saved(self.instance, self._key, before, _dumped(_books(), changed)):
                return changed
        raise BookBusy(f"incidents of {self.location}: other processes replace them all the time; try again")

    def archive(self, book: Book) -> Book:
        """Move closed incidents from a stored book to the history, if all their messages are sent. Return the book."""
        waiting = {message.incident.id for message in book.outbox}
        done = [each for each in book.incidents if not each.is_open and each.id not in waiting]
        if not done:
            return book
        # First into the history: if the process ends in between, the next call repeats it.
        known = {each.id for each in done}
        kept = [*done, *(each for each in self.closed() if each.id not in known)]
        kept.sort(key=lambda each: -(each.closed_at or 0.0))
        text = _dumped(_histories(), tuple(kept[:KEPT_CLOSED]))
        instance_store.save(self.instance, INCIDENTS_CLOSED + self.location, text)
        return self.change(
            lambda now: replace(now, incidents=tuple(each for each in now.incidents if each.id not in known))
        )

    def closed(self) -> tuple[Incident, ...]:
        """Return closed incidents, the newest first."""
        text = instance_store.saved(self.instance, INCIDENTS_CLOSED + self.location) or "[]"
        try:
            return _histories().validate_json(text)
        except ValidationError:
            found = _parsed(text)
            items = found if isinstance(found, list) else []
            return tuple(each for item in items for each in _valid(_histories(), [item], ()))

    @property
    def _key(self) -> str:
        return INCIDENTS + self.location

    def _read(self) -> tuple[str | None, Book]:
        text = instance_store.saved(self.instance, self._key)
        try:
            book = _books().validate_json(text) if text else Book()
        except ValidationError:
            book = _salvaged(_parsed(text or ""))
        return text, book if book.version == BOOK_VERSION else Book()


def _dumped(adapter: TypeAdapter[Any], value: object) -> str:
    """Return a value as JSON. Unpaired surrogates, which an error of user code may hold, are replaced."""
    try:
        return adapter.dump_json(value).decode()
    except PydanticSerializationError:
        return json.dumps(adapter.dump_python(value), ensure_ascii=False).encode(errors="replace").decode()


def _salvaged(found: object) -> Book:
    """Return the parts of a book that this version can read. Unreadable incidents and messages are left out.

    A newer version may have written a kind of cause that is unknown here. Mutes and unsent messages must survive it.
    """
    if not isinstance(found, dict) or found.get("version", BOOK_VERSION) != BOOK_VERSION:
        return Book()
    read: dict[str, Any] = {}
    for name in found.keys() & {of_book.name for of_book in fields(Book)}:
        value = found[name]
        if isinstance(value, list):
            parts = [part for item in value for part in getattr(_valid(_books(), {name: [item]}, Book()), name)]
            read |= {name: tuple(parts)} if parts else {}
        elif isinstance(value, dict) and isinstance(getattr(Book(), name), dict):
            valid = [getattr(_valid(_books(), {name: {key: item}}, Book()), name) for key, item in value.items()]
            read[name] = {key: item for each in valid for key, item in each.items()}
        else:
            read[name] = getattr(_valid(_books(), {name: value}, Book()), name)
    return replace(Book(), **read)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _valid(adapter: TypeAdapter[Any], found: object, default: Any) -> Any:
    """Return a value in its types; the default if it does not fit them."""
    try:
        return adapter.validate_python(found)
    except ValidationError:
        return default
