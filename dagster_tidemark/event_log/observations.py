"""Where observations of the landing bucket are written down, and how they are read again.

Belongs here: the event log as seen by those who look at the bucket, and what an observation's tags say. Does not
belong here: what is observed (`sensors.change_detection`).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Protocol

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.event_log import adapter
from dagster_tidemark.failpoints import reached
from dagster_tidemark.sources import misplaced
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import NO_FILES, of_data_alone
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.tags import DATA_VERSION, LISTED_AT

Tags = Mapping[str, str]
Metadata = Mapping[str, Any]
ALARM = "alarm"
MISPLACED = "misplaced"
WAIVED = "waived"
QUARANTINE = "quarantine"
"""The check of each asset that is loaded from files: what was turned away."""
DEAD_LETTERS = "dead letters"
NOTIFICATIONS = dg.AssetKey(["ops", "landing_events"])
"""The queue of the landing bucket's notifications."""
ACCEPTED_SUFFIX = "-accepted"
"""Beside the version of no files: what was held back in a load is news once it is accepted."""
AGAIN_SUFFIX = "-again-"
"""Beside the version of files that are as they were: a person wants them read again. A number follows."""

_WORDS = 20  # folders that are told in words


class Ledger(Protocol):
    """Where observations are written down."""

    start: date
    """The first day of which there are partitions. Of what lies before nothing is told, nor of keys that a feed has no
    more: nobody looks there, so nothing of it vanishes, and no loss is the smaller share for it."""

    def latest(self, feed: Feed, partitions: Collection[Partition] | None = None) -> Mapping[Partition, Tags]:
        """The tags of the latest observation of each of these partitions, or of all."""
        ...

    def report(self, observations: Sequence[dg.AssetObservation]) -> None:
        """Write these down; they are durable when this returns."""
        ...

    def tell(self, feed: Feed, alarm: str | None) -> None:
        """Let the check on mass removals fail with an alarm, or pass; unchanged, nothing is written."""
        ...

    def misplaced(self, feed: Feed) -> Mapping[str, Misplaced] | None:
        """What was last told of folders beside the feed's partitions; None if nothing ever was."""
        ...

    def tell_misplaced(self, feed: Feed, folders: Mapping[str, Misplaced]) -> None:
        """Let the check on misplaced files fail with these, or pass; unchanged, nothing is written."""
        ...


class EventLog:
    """The ledger of a Dagster instance: its event log."""

    def __init__(self, instance: DagsterInstance, start: date = date.min) -> None:
        self._instance = instance
        self.start = start

    def latest(self, feed: Feed, partitions: Collection[Partition] | None = None) -> Mapping[Partition, Tags]:
        wanted = {p for p in partitions or () if p is not None} or None
        seen = adapter.latest_observations(self._instance, source_key(feed), wanted)
        return {p: tags for p, tags in seen.items() if feed.layout.has(p, self.start)}

    def report(self, observations: Sequence[dg.AssetObservation]) -> None:
        for observation in observations:
            self._instance.report_runless_asset_event(observation)
            reached("after_observation")

    def tell(self, feed: Feed, alarm: str | None) -> None:
        key = mass_removal_check(feed)
        said = adapter.latest_check_metadata(self._instance, key)
        if said is not None and alarm == said.get(ALARM):
            return
        self._evaluate(key, alarm, {ALARM: alarm} if alarm else {}, passed=alarm is None)

    def misplaced(self, feed: Feed) -> Mapping[str, Misplaced] | None:
        said = self._told_of_misplaced(feed)
        return None if said is None else _misplaced_in(said)

    def tell_dead_letters(self, count: int) -> None:
        """Let the check on dead letters fail with their number, or pass; unchanged, nothing is written."""
        key = dead_letters_check()
        if adapter.latest_check_metadata(self._instance, key) == {DEAD_LETTERS: count}:
            return
        words = f"{count} messages could not be read or followed; `tidemark redrive` sends them again"
        self._evaluate(key, words if count else "no message was given up", {DEAD_LETTERS: count}, passed=not count)

    def tell_misplaced(self, feed: Feed, folders: Mapping[str, Misplaced]) -> None:
        before = self._told_of_misplaced(feed)
        self._tell_misplaced(feed, before, misplaced_result(folders, _waived_in(before or {})))

    def waived(self, feed: Feed) -> Mapping[str, str]:
        """The misplaced files and folders that a person leaves at that, each with the version that is meant."""
        return _waived_in(self._told_of_misplaced(feed) or {})

    def tell_waived(self, feed: Feed, waived: Mapping[str, str]) -> None:
        """Let the check on misplaced files fail with none of these (a file or folder to its version)."""
        before = self._told_of_misplaced(feed)
        if before is not None:
            self._tell_misplaced(feed, before, misplaced_result(_misplaced_in(before), waived))

    def _told_of_misplaced(self, feed: Feed) -> Metadata | None:
        return adapter.latest_check_metadata(self._instance, misplaced_check(feed))

    def _tell_misplaced(self, feed: Feed, before: Metadata | None, result: dg.AssetCheckResult) -> None:
        told = {name: value.value for name, value in result.metadata.items()}
        if before is not None and all(told[name] == before.get(name, {}) for name in (MISPLACED, WAIVED)):
            return
        self._evaluate(misplaced_check(feed), result.description, result.metadata, passed=result.passed)
        reached("after_observation")

    def _evaluate(self, key: dg.AssetCheckKey, words: str | None, metadata: Mapping[str, Any], *, passed: bool) -> None:
        evaluation = dg.AssetCheckEvaluation(
            asset_key=key.asset_key, check_name=key.name, passed=passed, description=words, metadata=metadata
        )
        self._instance.report_runless_asset_event(evaluation)


def dead_letters_check() -> dg.AssetCheckKey:
    """The check that fails while the queue of notifications has messages that it has given up."""
    return dg.AssetCheckKey(NOTIFICATIONS, "dead_letters")


def dead_letters_told(instance: DagsterInstance) -> int:
    """How many messages that check last told of."""
    said = adapter.latest_check_metadata(instance, dead_letters_check()) or {}
    count = said.get(DEAD_LETTERS, 0)
    return count if isinstance(count, int) else 0


def holds_files(tags: Tags) -> bool:
    """Whether a partition held files when it was observed with these tags."""
    return of_data_alone(version_of(tags)) != NO_FILES


def misplaced_check(feed: Feed) -> dg.AssetCheckKey:
    """The check that fails while objects lie below a feed's prefix that no partition of it holds."""
    return dg.AssetCheckKey(source_key(feed), MISPLACED)


def misplaced_result(folders: Mapping[str, Misplaced], waived: Mapping[str, str]) -> dg.AssetCheckResult:
    """What that check says: in words, and for those who read it again.

    Args:
        waived: Files and folders that a person leaves at that, each with the version that is meant.
    """
    told = [*misplaced.told(folders).values()]
    waiting = [folder for folder in told if waived.get(folder.name) != folder.version]
    said = [str(folder) for folder in waiting[:_WORDS]]
    if len(waiting) > _WORDS:
        said.append(f"and {len(waiting) - _WORDS} folders more")
    if still := {folder.name: folder.version for folder in told if folder not in waiting}:
        said.append(f"{len(still)} waived")
    return dg.AssetCheckResult(
        passed=not waiting,
        description="; ".join(said) or "nothing is misplaced",
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
    """The check that fails while so much of a feed has vanished at once that its removal is held."""
    return dg.AssetCheckKey(source_key(feed), "mass_removal")


def source_key(feed: Feed) -> dg.AssetKey:
    """The source asset of a feed."""
    return dg.AssetKey(["raw", feed.name])


def version_of(tags: Tags) -> str:
    """The data version an observation with these tags saw."""
    return tags.get(DATA_VERSION, NO_FILES).removesuffix(ACCEPTED_SUFFIX).partition(AGAIN_SUFFIX)[0]


def when_listed(tags: Tags) -> datetime | None:
    """When it was listed, UTC."""
    return datetime.fromtimestamp(float(tags[LISTED_AT]), UTC) if LISTED_AT in tags else None
