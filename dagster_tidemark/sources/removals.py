"""What the disappearance of files means: their rows go, or it is retention, or somebody is at the wrong bucket.

One rule for whoever looks at a bucket: the landing sensor, `tidemark reconcile` and the load itself. Plain data
in, plain data out. Does not belong here: how files are listed or known, and who removes rows.

The rule, for a partition some of whose files are gone:

1. The feed says `keep`, or the partition's window ended more than `follow_for` ago: the files are **expired**. Their
   rows stay. A partition with expired files is never read again; it takes added files only.
2. `alarm` says that too much vanished at once: what vanished with its whole partition is **held**. Its rows stay
   too, a check fails, and nothing changes until the files are back, the time to follow has passed, or a person accepts.
3. Otherwise they are **gone**, and their rows go.

Only partitions that lost all their files count for the alarm: one file less among others is everyday work.

Who tells whom. No state is kept for this; all of it is in the observations of the source asset:

- *Held* is not observed: the latest observation stays the one with files. So every later look finds the partition
  vanished again, however much time passed, and no run starts.
- *Gone* is observed as any change: the version of no files. Seen within the last 24 hours it still counts for the
  alarm; so pass `alarm` these partitions as vanished beside those found now.
- *Expired* is observed with the tag `OUTCOME` = `EXPIRED`. It does not count for the alarm, and a load of it changes
  no row.
- *Accepted* (`tidemark reconcile --accept-removals`) is observed with the tag `OUTCOME` = `ACCEPTED` and the version
  of no files. A load takes a partition's removal for accepted when the **latest** observation of that partition
  carries the tag; a file that comes later makes a new observation without it. Does not count for the alarm. It
  overrides rule 2 only, never rule 1.
- A partition that only ever held misplaced files is observed with the tag `OUTCOME` = `NOTHING`: it lost none.

Present is what is data, by its place and its name: a file that was renamed to another ending is gone.
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
class Fate:
    """The files of a partition that cannot be read any more, by what becomes of their rows.

    Of those that disappeared at most one of the first three is filled; `withheld` are there and not given.
    """

    gone: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()

    @property
    def kept(self) -> frozenset[str]:
        """The files of which all that is known stays."""
        return self.expired | self.held | self.withheld


def follows(feed: Feed, partition: Partition, now: datetime) -> bool:
    """Whether rows of this partition still go with their files; always where it is not one of time: no window ends."""
    if feed.removals is OnRemoval.KEEP:
        return False
    window = feed.layout.window(partition)
    return window is None or now - window[1] <= feed.follow_for


def alarm(
    feed: Feed, *, holding: Collection[Partition], vanished: Mapping[Partition, datetime], now: datetime
) -> str | None:
    """Why nothing that vanished may be removed now, in words for a person; None if it may.

    Args:
        holding: The partitions of the whole feed that hold files, as far as was last seen.
        vanished: Those that held files and hold none, with when that was first seen: what is found now and not
            removed yet (`now`), and what was removed before, accepted and expired ones left out.
    """
    lost = {p for p, at in vanished.items() if now - at <= _WITHIN and follows(feed, p, now)}
    if not lost:
        return None
    if not holding:
        return (
            f"nothing lies below {feed.prefix} any more, where {len(lost)} partitions were: wrong bucket? Nothing was "
            "removed; `tidemark reconcile --accept-removals` removes it"
        )
    # Of those that could be lost at all: years of history would make any loss a small share.
    followed = lost | {p for p in holding if follows(feed, p, now)}
    if len(lost) < _MANY or len(lost) < _SHARE * len(followed):
        return None
    return (
        f"{len(lost)} of {len(followed)} partitions below {feed.prefix} vanished within 24 hours: wrong bucket? "
        "Nothing more was removed; `tidemark reconcile --accept-removals` removes it"
    )


def decide(
    feed: Feed,
    known: Mapping[Partition, Collection[str]],
    listed: Mapping[Partition, Collection[str]],
    *,
    now: datetime,
    alarmed: str | None,
    accepted: Collection[Partition] = (),
) -> dict[Partition, Fate]:
    """What becomes of the files that disappeared, for each partition that lost any.

    Args:
        known: The keys that each partition was known to hold.
        listed: The keys that lie there now; a partition that is not named holds none.
        alarmed: What `alarm` says.
        accepted: The partitions whose removal a person accepted.
    """
    fates = {}
    for partition, keys in known.items():
        present = frozenset(listed.get(partition, ()))
        missing = frozenset(keys) - present
        if not missing:
            continue
        if not follows(feed, partition, now):
            fates[partition] = Fate(expired=missing)
        elif alarmed and not present and partition not in accepted:
            fates[partition] = Fate(held=missing)
        else:
            fates[partition] = Fate(gone=missing)
    return fates
