"""The decision on vanished files: the data was removed, retention deleted the files, or the bucket is wrong.

Belongs here: one rule on plain data for the landing sensor, `tidemark reconcile` and the load itself. Does not belong
here: listing files, storing known files, and removing rows.

The rule for a partition that has lost files:

1. The feed is set to `keep`, or the partition's window ended more than `follow_for` ago: the files are **expired**.
   Their rows stay. A partition with expired files is never read again as a whole: only added files are loaded.
2. `alarm` reports that too much vanished at once: partitions that lost all files are **held**. Their rows stay too, a
   check fails, and nothing changes until the files are back, `follow_for` has passed, or a person accepts the removal.
3. Otherwise the files are **gone**, and their rows are removed.

Only partitions that lost all their files count for the alarm, because the loss of single files is common.

No separate state is kept. All state is in the observations of the source asset:

- *Held*: no observation is reported, so the latest one still lists the files. Each later listing therefore finds the
  partition vanished again, however much time has passed, and no run starts.
- *Gone* is observed like any change, with the version of an empty partition. It still counts for the alarm for 24
  hours, so pass these partitions to `alarm` as vanished, together with those that vanished now.
- *Expired* is observed with the tag `OUTCOME` = `EXPIRED`. It does not count for the alarm, and loading it changes no
  row.
- *Accepted* (`tidemark reconcile --accept-removals`) is observed with the tag `OUTCOME` = `ACCEPTED` and the version
  of an empty partition. A load treats a partition's removal as accepted if the partition's **latest** observation has
  the tag; a later file makes a new observation without it. An accepted removal does not count for the alarm. It
  overrides rule 2 only, never rule 1.
- A partition that only ever contained misplaced files is observed with the tag `OUTCOME` = `NOTHING`: it lost no data.

A file counts as present only if its place and name make it data. A file renamed to another ending is gone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dagster_tidemark.sources.feed import Feed, OnRemoval, Partition

ACCEPTED = "accepted"
EXPIRED = "expired"
NOTHING = "nothing"

_WITHIN = timedelta(hours=24)
_MANY = 10
_SHARE = 0.2


@dataclass(frozen=True)
class RemovedFiles:
    """Files of a partition that can no longer be read, grouped by the effect on their rows.

    At most one of the first three sets has files. Files in `withheld` exist but cannot be read.
    """

    gone: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()

    @property
    def kept(self) -> frozenset[str]:
        """Files whose rows and records are kept."""
        return self.expired | self.held | self.withheld


def follows(feed: Feed, partition: Partition, now: datetime) -> bool:
    """Return True if the table still follows removals of files. A partition without a time window never expires."""
    if feed.removals is OnRemoval.KEEP:
        return False
    window = feed.layout.window(partition)
    return window is None or now - window[1] <= feed.follow_for


def alarm(
    feed: Feed, *, holding: Collection[Partition], vanished: Mapping[Partition, datetime], now: datetime
) -> str | None:
    """Return the reason why the rows of vanished files must stay for now, as a sentence; None if they may be removed.

    Args:
        holding: The partitions of the whole feed that have files according to their last observation.
        vanished: Partitions that lost all their files, with the time when this was first found: those found now
            (`now`), and earlier removals except accepted and expired ones.
    """
    lost = {p for p, at in vanished.items() if now - at <= _WITHIN and follows(feed, p, now)}
    if not lost:
        return None
    if not holding:
        return (
            f"no file is left below {feed.prefix}, which had {len(lost)} partitions: wrong bucket? Their rows stay; "
            "`tidemark reconcile --accept-removals` removes them"
        )
    # Count only partitions that still follow removals. Among years of history, any loss would be a small share.
    followed = lost | {p for p in holding if follows(feed, p, now)}
    if len(lost) < _MANY or len(lost) < _SHARE * len(followed):
        return None
    return (
        f"{len(lost)} of {len(followed)} partitions below {feed.prefix} vanished within 24 hours: wrong bucket? "
        "Their rows stay; `tidemark reconcile --accept-removals` removes them"
    )


def decide(
    feed: Feed,
    known: Mapping[Partition, Collection[str]],
    listed: Mapping[Partition, Collection[str]],
    *,
    now: datetime,
    alarmed: str | None,
    accepted: Collection[Partition] = (),
) -> dict[Partition, RemovedFiles]:
    """Return the effect of the missing files on their rows, for each partition that lost any.

    Args:
        known: The keys that each partition had before.
        listed: The keys that each partition has now. A partition that is not included has none.
        alarmed: The result of `alarm`.
        accepted: The partitions whose removal a person accepted.
    """
    fates = {}
    for partition, keys in known.items():
        present = frozenset(listed.get(partition, ()))
        missing = frozenset(keys) - present
        if not missing:
            continue
        if not follows(feed, partition, now):
            fates[partition] = RemovedFiles(expired=missing)
        elif alarmed and not present and partition not in accepted:
            fates[partition] = RemovedFiles(held=missing)
        else:
            fates[partition] = RemovedFiles(gone=missing)
    return fates
