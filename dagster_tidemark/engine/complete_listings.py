"""Complete listings of feeds. Each is a completed check of the feed's source, as of the start of the listing.

Everything that arrived before that start is in the listing, whether or not a notification named it. Belongs here: the
record in the instance's storage. Does not belong here: the listing (`sensors.reconcile_schedules`), and its effect on
contracts whose sensor is hindered (`engine.doubts`).
"""

import json

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.tags import LOOKED

_LISTED = "listed"


def key_of(location: str) -> str:
    """Return the key of a code location's record."""
    return f"{LOOKED}{location}/{_LISTED}"


def note_listing(instance: DagsterInstance, location: str, feed: str, at: float) -> None:
    """Record that a feed was listed completely, and that all changes were reported.

    Args:
        at: Start of the listing (Unix seconds).
    """
    key = key_of(location)
    known = listings_in(instance_store.saved(instance, key))
    instance_store.save(instance, key, json.dumps(known | {feed: max(at, known.get(feed, at))}))


def listings_in(text: str | None) -> dict[str, float]:
    """Return the start of the latest complete listing by feed, from a saved record. Unreadable records are empty."""
    try:
        return {str(feed): float(at) for feed, at in json.loads(text or "{}").items()}
    except (AttributeError, TypeError, ValueError):
        return {}
