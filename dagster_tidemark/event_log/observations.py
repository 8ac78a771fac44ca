"""Observations of the landing bucket in the event log: writing and reading them.

Belongs here: the bucket sensors' access to the event log, and the tags of observations. Does not belong here:
the content of an observation (`sensors.change_detection`).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.failpoints import reached
from dagster_tidemark.sources import misplaced
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import ACCEPTED_SUFFIX, AGAIN_SUFFIX, NO_FILES, of_data_alone
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.tags import DATA_VERSION, LISTED_AT

Tags = Mapping[str, str]
Metadata = Mapping[str, Any]
ALARM = "alarm"
CONTENT = "content"
"""Metadata of an observation: a hash of the bytes of all files, without their names."""
MISPLACED = "misplaced"
WAIVED = "waived"
QUARANTINE = "quarantine"
"""Name of the check on rejected input, which each asset loaded from files has."""
LOST = "lost"
"""Reason of a quarantine entry about messages of a stream that were lost before they were read."""
DEAD_LETTERS = "dead letters"
NOTIFICATIONS = dg.AssetKey(["ops", "landing_events"])
"""Key of the asset that represents the queue of the landing bucket's notifications."""
_WORDS = 20  # folders listed in a description


class ObservationLedger:
    """Storage of observations in the event log of a Dagster instance.

    Args:
        start: First day with partitions. Results omit earlier partitions, and keys that a feed no longer has. These are
            no longer listed, so they must count neither as removed nor as present.
    """

    def __init__(self, instance: DagsterInstance, start: date = date.min) -> None:
        self._instance = instance
        self.start = start

    def latest(self, feed: Feed, partitions: Collection[Partition] | None = None) -> Mapping[Partition, Tags]:
        """Return the tags of the latest observation by partition, for these partitions or for all."""
        wanted = {p for p in partitions or () if p is not None} or None
        seen = event_storage.latest_observations(self._instance, source_key(feed), wanted)
        return {p: tags for p, tags in seen.items() if feed.layout.has(p, self.start)}

    def report(self, observations: Sequence[dg.AssetObservation]) -> None:
        """Write observations durably."""
        for observation in observations:
            self._instance.report_runless_asset_event(observation)
            reached("after_observation")

    def tell(self, feed: Feed, alarm: str | None) -> None:
        """Report that the check on mass removals failed with an alarm, or passed. Write only a changed result."""
        key = mass_removal_check(feed)
        said = event_storage.latest_check_metadata(self._instance, key)
        if said is not None and alarm == said.get(ALARM):
            return
        result = dg.AssetCheckResult(passed=alarm is None, description=alarm, metadata={ALARM: alarm} if alarm else {})
        report_result(self._instance, key, result)

    def misplaced(self, feed: Feed) -> Mapping[str, Misplaced] | None:
        """Return the misplaced folders of the latest report on a feed; None if it has no report."""
        said = self._told_of_misplaced(feed)
        return None if said is None else _misplaced_in(said)

    def tell_dead_letters(self, count: int) -> None:
        """Report that the check on dead letters failed with this count, or passed. Write only a changed result."""
        key = dead_letters_check()
        if event_storage.latest_check_metadata(self._instance, key) == {DEAD_LETTERS: count}:
            return
        words = "the dead-letter queue is empty"
        if count:
            words = f"{count} messages could not be processed; `tidemark redrive` sends them again"
        result = dg.AssetCheckResult(passed=not count, description=words, metadata={DEAD_LETTERS: count})
        report_result(self._instance, key, result)

    def tell_misplaced(self, feed: Feed, folders: Mapping[str, Misplaced]) -> None:
        """Report that the check on misplaced files failed for these folders, or passed. Write only a new result."""
        before = self._told_of_misplaced(feed)
        self._tell_misplaced(feed, before, misplaced_result(folders, _waived_in(before or {})))

    def waived(self, feed: Feed) -> Mapping[str, str]:
        """Return the misplaced files and folders that a person has waived, each with its version at that time."""
        return _waived_in(self._told_of_misplaced(feed) or {})

    def tell_waived(self, feed: Feed, waived: Mapping[str, str]) -> None:
        """Waive these misplaced files and folders (name to version): the check no longer fails because of them."""
        before = self._told_of_misplaced(feed)
        if before is not None:
            self._tell_misplaced(feed, before, misplaced_result(_misplaced_in(before), waived))

    def _told_of_misplaced(self, feed: Feed) -> Metadata | None:
        return event_storage.latest_check_metadata(self._instance, misplaced_check(feed))

    def _tell_misplaced(self, feed: Feed, before: Metadata | None, result: dg.AssetCheckResult) -> None:
        told = {name: value.value for name, value in result.metadata.items()}
        if before is not None and all(told[name] == before.get(name, {}) for name in (MISPLACED, WAIVED)):
            return
        report_result(self._instance, misplaced_check(feed), result)
        reached("after_observation")


def report_result(instance: DagsterInstance, key: dg.AssetCheckKey, result: dg.AssetCheckResult) -> None:
    """Report the result of a check without a run."""
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
        )
    )


def dead_letters_check() -> dg.AssetCheckKey:
    """Return the key of the check that fails while the dead-letter queue of notifications has messages."""
    return dg.AssetCheckKey(NOTIFICATIONS, "dead_letters")


def dead_letters_told(instance: DagsterInstance) -> int:
    """Return the number of dead letters in the latest report of their check."""
    said = event_storage.latest_check_metadata(instance, dead_letters_check()) or {}
    count = said.get(DEAD_LETTERS, 0)
    return count if isinstance(count, int) else 0


def holds_files(tags: Tags) -> bool:
    """Return True if a partition had files when it was observed with these tags."""
    return of_data_alone(version_of(tags)) != NO_FILES


def misplaced_check(feed: Feed) -> dg.AssetCheckKey:
    """Return the key of the check that fails while objects below a feed's prefix belong to none of its partitions."""
    return dg.AssetCheckKey(source_key(feed), MISPLACED)


def misplaced_result(folders: Mapping[str, Misplaced], waived: Mapping[str, str]) -> dg.AssetCheckResult:
    """Return the result of the check on misplaced files, with a description and machine-readable metadata.

    Args:
        waived: Files and folders that a person has waived, each with its version at that time.
    """
    told = [*misplaced.told(folders).values()]
    waiting = [folder for folder in told if waived.get(folder.name) != folder.version]
    said = [str(folder) for folder in waiting[:_WORDS]]
    if len(waiting) > _WORDS:
        said.append(f"and {len(waiting) - _WORDS} more folders")
    if still := {folder.name: folder.version for folder in told if folder not in waiting}:
        said.append(f"{len(still)} waived")
    return dg.AssetCheckResult(
        passed=not waiting,
        description="; ".join(said) or "no file is misplaced",
        metadata={
            MISPLACED: dg.MetadataValue.json([folder.as_json() for folder in told]),
            WAIVED: dg.MetadataValue.json(still),
            "misplaced files": dg.MetadataValue.int(sum(folder.files for folder in folders.values())),
        },
    )


def _misplaced_in(said: Metadata) -> dict[str, Misplaced]:
    return misplaced.from_json(said.get(MISPLACED, ()))


def _waived_in(said: Metadata) -> dict[str, str]:
    return dict(said.get(WAIVED, {}))


def mass_removal_check(feed: Feed) -> dg.AssetCheckKey:
    """Return the key of the check that fails while a mass removal of a feed's files waits for a person."""
    return dg.AssetCheckKey(source_key(feed), "mass_removal")


def source_key(feed: Feed) -> dg.AssetKey:
    """Return the key of a feed's source asset."""
    return dg.AssetKey(["raw", feed.name])


def version_of(tags: Tags) -> str:
    """Return the data version in the tags of an observation, without suffixes."""
    return tags.get(DATA_VERSION, NO_FILES).removesuffix(ACCEPTED_SUFFIX).partition(AGAIN_SUFFIX)[0]


def when_listed(tags: Tags) -> datetime | None:
    """Return the time of the listing (UTC) from the tags of an observation, if any."""
    at = time_in(tags, LISTED_AT)
    return None if at is None else datetime.fromtimestamp(at, UTC)


def time_in(tags: Tags, tag: str) -> float | None:
    """Return a time (Unix seconds) from the tags of an observation; None without one, or with an unreadable one.

    The planner sets an observation with an unreadable time aside and logs it (`event_log.intake`).
    """
    try:
        at = float(tags[tag])
        datetime.fromtimestamp(at, UTC)
    except (KeyError, OSError, OverflowError, ValueError):
        return None
    return at
