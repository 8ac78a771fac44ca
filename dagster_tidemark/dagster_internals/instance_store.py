"""The instance's own storage: the id of the storage, texts saved under keys, and heartbeats of Dagster's daemon."""

import json
import weakref
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy
from dagster import DagsterInstance
from dagster._core.storage.runs import SqlRunStorage
from dagster._core.storage.runs.schema import KeyValueStoreTable


def identity_of(instance: DagsterInstance) -> str:
    """Return the id of an instance's storage. It is unique and never changes."""
    storage = instance.run_storage
    assert isinstance(storage, SqlRunStorage)
    if storage not in _identities:  # cached, because every tick needs the id and it never changes
        _identities[storage] = storage.get_run_storage_id()
    return _identities[storage]


_identities: "weakref.WeakKeyDictionary[SqlRunStorage, str]" = weakref.WeakKeyDictionary()

UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)
"""Errors of code that reads a saved value in the format of another release."""


def members_of(text: str | None) -> dict[str, Any]:
    """Return the members of a saved JSON object; none if there is no text, or if it is anything else."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def saved(instance: DagsterInstance, key: str) -> str | None:
    """Return the value saved under a key in the instance's own storage; None if there is none."""
    storage = instance.daemon_cursor_storage
    return storage.get_cursor_values({key}).get(key) if storage else None


def saved_values(instance: DagsterInstance, keys: Collection[str]) -> Mapping[str, str]:
    """Return the values saved under some keys in the instance's own storage, in one query."""
    storage = instance.daemon_cursor_storage
    return storage.get_cursor_values(set(keys)) if storage else {}


def saved_under(instance: DagsterInstance, prefix: str) -> dict[str, str]:
    """Return all saved values whose keys have a prefix, by key."""
    storage = instance.run_storage
    if not isinstance(storage, SqlRunStorage):
        return {}
    table = KeyValueStoreTable.c
    query = sqlalchemy.select(table.key, table.value).where(table.key.startswith(prefix, autoescape=True))
    with storage.connect() as connection:
        return {str(key): str(value) for key, value in connection.execute(query)}


def save(instance: DagsterInstance, key: str, value: str) -> None:
    """Save a value under a key in the instance's own storage."""
    if instance.daemon_cursor_storage:
        instance.daemon_cursor_storage.set_cursor_values({key: value})


def replace_saved(instance: DagsterInstance, key: str, before: str | None, value: str) -> bool:
    """Save a value if the stored one is still `before`. Return False if another process has changed it.

    Args:
        before: The value that was read earlier; None if there was no value.
    """
    storage, table = instance.run_storage, KeyValueStoreTable
    if not isinstance(storage, SqlRunStorage):  # a hosted instance cannot compare values
        save(instance, key, value)
        return True
    with storage.connect() as connection:
        if before is None:
            try:
                connection.execute(table.insert().values(key=key, value=value))
            except sqlalchemy.exc.IntegrityError:
                return False
            return True
        update = table.update().where(table.c.key == key, table.c.value == before).values(value=value)
        return connection.execute(update).rowcount == 1


def heartbeats(instance: DagsterInstance) -> dict[str, float]:
    """Return the time (Unix seconds) of the last heartbeat of each daemon that the instance needs.

    A daemon that has never sent one has the time 0. A healthy daemon sends one every 30 seconds.
    """
    found = instance.get_daemon_heartbeats()
    return {kind: found[kind].timestamp if kind in found else 0.0 for kind in instance.get_required_daemon_types()}


def sensor_daemon(instance: DagsterInstance) -> str:
    """Return the id of the daemon that sent the last heartbeat of sensors; empty if none has. Each start has its id."""
    found = instance.get_daemon_heartbeats().get("SENSOR")
    return found.daemon_id or "" if found else ""
