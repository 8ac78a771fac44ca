"""The book of overrides in Dagster's storage: table `kvs`, on SQLite and PostgreSQL alike.

One value holds the overrides of all code locations of an instance, because asset keys are unique there. A change
replaces the value only if no other process has replaced it in the meantime, so that two operators lose nothing.

Belongs here: the stored form. Does not belong here: the records (`planner.overrides`), and their effect.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from dagster import AssetKey, AssetRecordsFilter, DagsterInstance
from pydantic import TypeAdapter, ValidationError

from dagster_tidemark.dagster_internals import event_storage, instance_store
from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.planner.overrides import Override, OverrideKind
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import OVERRIDES

KEPT_ENDED = 200
"""Number of ended overrides that are kept as history."""
_VERSION = 1
_TRIES = 20
_AT_ONCE = 500


class OverridesBusy(Transient):
    """Other processes replace the book of overrides all the time."""


class OverridesUnreadable(Terminal):
    """Another version of the library wrote the book of overrides. Nothing may be requested: something may be paused."""


@cache
def _records() -> TypeAdapter[tuple[Override, ...]]:
    return TypeAdapter(tuple[Override, ...])  # built on first use: it takes some milliseconds


@dataclass(frozen=True)
class OverrideStore:
    """The overrides of an instance."""

    instance: DagsterInstance

    def read(self) -> tuple[Override, ...]:
        """Return all overrides, also ended ones.

        Raises:
            OverridesUnreadable: another version of the library wrote them.
        """
        return parsed(instance_store.saved(self.instance, OVERRIDES))

    def change(self, change: Callable[[tuple[Override, ...]], Sequence[Override]]) -> tuple[Override, ...]:
        """Store changed overrides, and return them. `change` is called again if another process was quicker.

        Raises:
            OverridesBusy: another process was quicker each time.
            OverridesUnreadable: another version of the library wrote them.
        """
        for _ in range(_TRIES):
            text = instance_store.saved(self.instance, OVERRIDES)
            before = parsed(text)
            after = _kept(change(before))
            if after == before or instance_store.replace_saved(self.instance, OVERRIDES, text, _text(after)):
                return after
        raise OverridesBusy("the overrides: other processes replace them all the time; run the command again")


@cache
def _parsed(text: str) -> tuple[Override, ...]:
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise OverridesUnreadable(_refusal(f"version {found['version']}"))
        return _records().validate_python(found["overrides"])
    except (ValidationError, LookupError, TypeError, ValueError) as error:
        raise OverridesUnreadable(_refusal(f"{type(error).__name__}")) from error


def parsed(text: str | None) -> tuple[Override, ...]:
    """Return the overrides in a stored value.

    Raises:
        OverridesUnreadable: another version of the library wrote it.
    """
    if not text:
        return ()
    if _parsed.cache_info().currsize > 1:  # only the latest value is asked for again
        _parsed.cache_clear()
    return _parsed(text)


def _refusal(found: str) -> str:
    return (
        f"the stored overrides cannot be read: expected version {_VERSION}, found {found}; use the release that wrote "
        f"them, or delete the key {OVERRIDES} from the table kvs, which ends all pauses"
    )


def _text(overrides: Sequence[Override]) -> str:
    return json.dumps({"version": _VERSION, "overrides": _records().dump_python(tuple(overrides), mode="json")})


def _kept(overrides: Sequence[Override]) -> tuple[Override, ...]:
    """Return all lasting overrides, and the newest ended ones."""
    ended = sorted((each for each in overrides if each.ended_at is not None), key=lambda each: each.ended_at or 0.0)
    dropped = {each.id for each in ended[:-KEPT_ENDED]}
    return tuple(each for each in overrides if each.id not in dropped)


def end_finished(
    instance: DagsterInstance, location: str, left: Collection[str], now: float, planned: Collection[str]
) -> None:
    """End the rebuilds of a code location that have nothing left to build, and pauses that have reached their end.

    Args:
        left: Ids of the rebuilds that still have partitions to build.
        now: Time of the plan that found `left` (Unix seconds). It says nothing about later rebuilds.
        planned: Assets that the plan has computed. A rebuild of any other asset is not ended.
    """

    def _ended(each: Override) -> Override:
        if each.ended_at is not None:
            return each
        if each.until is not None and each.until <= now:
            return replace(each, ended_at=each.until)
        is_done = each.kind is OverrideKind.REBUILD and each.location == location and each.id not in left
        is_done = is_done and set(each.assets) <= set(planned)
        return replace(each, ended_at=now) if is_done and each.at < now - _SETTLES else each

    store = OverrideStore(instance)
    if any(_ended(each) is not each for each in store.read()):
        store.change(lambda overrides: [_ended(each) for each in overrides])


_SETTLES = 30.0
"""Seconds after a command until each plan contains it."""


def owed_again(
    instance: DagsterInstance,
    asset: str,
    partitions: Sequence[Partition],
    covers: Callable[[Override, Partition], bool],
) -> list[Partition]:
    """Return the partitions that a person's rebuild covers and that nothing has built since.

    A later skip holds the rebuild back: a run for new data keeps the rows that a person has corrected.

    Args:
        covers: Returns True if an override covers a partition of the asset.
    """
    found: list[Partition] = []
    lasting = [each for each in OverrideStore(instance).read() if each.ended_at is None and asset in each.assets]
    for place, rebuild in enumerate(lasting):
        if rebuild.kind is not OverrideKind.REBUILD:
            continue
        skips = [each for each in lasting[place:] if each.kind is OverrideKind.SKIP]
        covered = [partition for partition in partitions if partition not in found and covers(rebuild, partition)]
        covered = [partition for partition in covered if not any(covers(skip, partition) for skip in skips)]
        built = _built_after(instance, asset, covered, rebuild.as_of) if covered else set()
        found += [partition for partition in covered if partition not in built]
    return found


def _built_after(instance: DagsterInstance, asset: str, partitions: Sequence[Partition], as_of: int) -> set[Partition]:
    """Return the partitions that runs materialized which were created after a storage id.

    A run that was under way has read its files without the rebuild.
    """
    runs = event_storage.runs_planned_after(instance, asset, as_of)
    keys = [partition for partition in partitions if partition is not None] or None
    wanted = AssetRecordsFilter(AssetKey.from_user_string(asset), asset_partitions=keys, after_storage_id=as_of)
    found: set[Partition] = set()
    cursor = None
    while True:
        page = instance.fetch_materializations(wanted, limit=_AT_ONCE, cursor=cursor)
        found |= {record.partition_key for record in page.records if record.run_id in runs}
        cursor = page.cursor
        if not page.has_more:
            return found


def pause_of_stream(overrides: Iterable[Override], location: str, stream: str, now: float) -> Override | None:
    """Return the pause of a code location's stream that ends last, or None."""
    found = (
        each
        for each in overrides
        if each.kind is OverrideKind.PAUSE and each.location == location and stream in each.streams and each.lasts(now)
    )
    return max(found, key=lambda each: float("inf") if each.until is None else each.until, default=None)
