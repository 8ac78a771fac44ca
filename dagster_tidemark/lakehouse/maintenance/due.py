"""Due maintenance of a table, from a few facts about the table.

Belongs here: the actions, and the decision which are due. It imports neither Spark nor pyiceberg, so that a sensor's
tick is fast. Does not belong here: the time when a due action runs (`dagster_tidemark.maintenance.spare_time`), reading
the facts (`facts`), and the work (`procedures`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from dagster_tidemark.pauses import end_of_pause, growing_pause

_MB = 2**20
_FIRST_PAUSE = 300.0
_LONGEST_PAUSE = 86_400.0


class Action(StrEnum):
    """Kinds of maintenance, named after Iceberg's procedures. They run in this order."""

    COMPACT = "rewrite_data_files"
    DELETES = "rewrite_position_delete_files"
    MANIFESTS = "rewrite_manifests"
    EXPIRE = "expire_snapshots"
    ORPHANS = "remove_orphan_files"

    @property
    def rewrites(self) -> bool:
        """True if it commits to the files of rows, so that it can conflict with a load."""
        return self in (Action.COMPACT, Action.DELETES)


@dataclass(frozen=True)
class MaintenancePolicy:
    """Thresholds of maintenance.

    Args:
        small_bytes: Size below which a data file is small. A larger file is never compacted for its size.
        together: Smallest number of small files in a partition that are compacted together.
        small_files: Number of such files that makes a compaction due.
        delete_files: Number of files with deleted positions that makes their rewrite due.
        manifests: Number of superfluous manifests that makes their rewrite due.
        snapshots: Number of expirable snapshots that makes an expiry due.
        held_share: Bytes that only expirable snapshots need, as a share of the table, that make an expiry due.
        age: Time after which an action is due even for a smaller number.
        orphans_every: Time between two searches for orphan files.
        orphans_older: Minimum age of a removed orphan file, because a commit may still be under way.
        files_at_once: Maximum number of files that one compaction rewrites. The rest is due again.
    """

    small_bytes: int = 32 * _MB
    together: int = 5
    small_files: int = 50
    delete_files: int = 10
    manifests: int = 20
    snapshots: int = 100
    held_share: float = 0.25
    age: timedelta = timedelta(days=1)
    orphans_every: timedelta = timedelta(days=1)
    orphans_older: timedelta = timedelta(days=3)
    files_at_once: int = 5_000

    def at_once(self) -> "MaintenancePolicy":
        """Return the policy of `tidemark maintain`: everything useful is due, and nothing is removed earlier."""
        return replace(
            self,
            small_files=self.together,
            delete_files=1,
            manifests=1,
            snapshots=1,
            age=timedelta(0),
            orphans_every=timedelta(0),
        )


@dataclass(frozen=True)
class LastAction:
    """The last time that an action ran on a table.

    Args:
        at: Its end (Unix seconds).
        seconds: Its duration.
        left: The number that it left, which it cannot reduce. Only a larger number is due again.
        failures: Number of failures in a row.
        why: Reason of the last failure; empty after a success.
    """

    at: float
    seconds: float = 0.0
    left: int = 0
    failures: int = 0
    why: str = ""

    def rests_until(self, now: float) -> float:
        """Return the earliest time of the next attempt after failures (Unix seconds)."""
        if not self.failures:
            return 0.0
        return end_of_pause(self.at, growing_pause(self.failures, _FIRST_PAUSE, _LONGEST_PAUSE), now)


@dataclass(frozen=True)
class TableFacts:
    """Facts about a table that determine its due maintenance.

    Args:
        table: Name of the table.
        since: Time of its oldest known commit (Unix seconds); None before the first commit.
        bytes: Size of its data files.
        small_files: Number of small files in partitions with enough of them.
        delete_files: Number of its files with deleted positions.
        manifests: Number of manifests above the number that their size needs.
        expirable: Snapshots that no reader needs.
        held_bytes: Bytes that only these snapshots need.
        last: The last run of each action.
        builds: A run that builds the table at present; empty if there is none.
        preview: A preview's branch that has no commit yet; empty if there is none.
    """

    table: str
    since: float | None
    bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    manifests: int = 0
    expirable: tuple[int, ...] = ()
    held_bytes: int = 0
    last: Mapping[Action, LastAction] = field(default_factory=dict)
    builds: str = ""
    preview: str = ""

    def count(self, action: Action) -> int:
        """Return the number that makes an action due. For orphan files it is unknown without a search."""
        return {
            Action.COMPACT: self.small_files,
            Action.DELETES: self.delete_files,
            Action.MANIFESTS: self.manifests,
            Action.EXPIRE: len(self.expirable),
        }.get(action, 0)


@dataclass(frozen=True)
class DueAction:
    """A due action on a table.

    Args:
        reason: Why it is due.
        waits: Why it cannot run now, apart from other work; empty if it can.
        usual_seconds: Duration of its last run; 0 if it never ran.
    """

    table: str
    action: Action
    reason: str
    waits: str = ""
    usual_seconds: float = 0.0


def due_actions(facts: TableFacts, policy: MaintenancePolicy, now: float) -> list[DueAction]:
    """Return the due actions on a table. They should run in this order.

    Args:
        now: Unix seconds.
    """
    found = []
    for action, reason in _reasons(facts, policy, now):
        last = facts.last.get(action)
        waits = ""
        if last is not None and now < last.rests_until(now):
            waits = f"it failed {last.failures} times in a row, and is tried again later: {last.why}"
        elif action.rewrites and facts.builds:
            waits = f"run {facts.builds} builds the table"
        elif action is Action.EXPIRE and facts.preview:
            waits = f"the branch {facts.preview} has no commit yet; `tidemark plan --discard` drops it"
        found.append(DueAction(facts.table, action, reason, waits, last.seconds if last else 0.0))
    return found


def _reasons(facts: TableFacts, policy: MaintenancePolicy, now: float) -> Iterator[tuple[Action, str]]:
    if facts.since is None:
        return
    numbers = {
        Action.COMPACT: (policy.small_files, "small files"),
        Action.DELETES: (policy.delete_files, "files with deleted rows"),
        Action.MANIFESTS: (policy.manifests, "superfluous manifests"),
        Action.EXPIRE: (policy.snapshots, "snapshots that no reader needs"),
    }
    for action, (most, noun) in numbers.items():
        count, last = facts.count(action), facts.last.get(action)
        left = last.left if last else 0
        is_old = _has_passed(policy.age, last.at if last else facts.since, now)
        if action is Action.EXPIRE and count and facts.held_bytes > policy.held_share * facts.bytes:
            yield action, f"{facts.held_bytes} bytes that no reader needs"
        elif count - left >= most or (count and count != left and is_old):
            yield action, f"{count} {noun}"
    searched = facts.last.get(Action.ORPHANS)
    if _has_passed(policy.orphans_every, searched.at if searched else facts.since, now):
        yield Action.ORPHANS, "the last search for orphan files was long ago" if searched else "no search so far"


def _has_passed(span: timedelta, since: float, now: float) -> bool:
    """Return True if a time span has passed since a time, or if the clock was set back since."""
    return now >= end_of_pause(since, span.total_seconds(), now)
