"""The events of an instance's log, as the library reads them."""

from collections.abc import Collection, Iterator

from dagster import DagsterInstance

from dagster_tidemark.event_log.event_rows import Event, EventKind, event_of, rows_after


def events_after(instance: DagsterInstance, after: int, checks: Collection[str] = ()) -> Iterator[Event]:
    """Yield all events after a storage id. Evaluations are limited to blocking checks and these checks."""
    for row in rows_after(instance, after, tuple(EventKind)):
        event = event_of(row, row.id, checks)
        if event is not None:
            yield event
