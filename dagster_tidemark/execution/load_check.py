"""Checks on assets that are loaded from a feed: rejected rows and files, removed files, and the count of rows.

The checks use facts that the load already has, so they need no query. They are about the whole asset, not about one
run: a damaged file fails the check until it is corrected, even if later runs load other files.
Does not belong here: the reasons for rejecting a row or file (`lakehouse`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_tidemark.event_log.observations import QUARANTINE
from dagster_tidemark.lakehouse.loading.load_plan import Where
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.removals import follows

if TYPE_CHECKING:  # the import takes a second, and every load of the code location would wait for it
    from dagster_tidemark.lakehouse.loading.load import Loaded

REMOVALS = "removals"
ACCOUNTING = "accounting"
HELD = "held"
UNACCOUNTED = "unaccounted"

_TOLD = 20  # maximum number of names in a list


def landed_checks(feed: Feed, asset: Sequence[str]) -> list[dg.AssetCheckSpec]:
    """Return the checks of an asset that is loaded from a feed. The load reports the results."""
    return [
        dg.AssetCheckSpec(
            QUARANTINE,
            asset=dg.AssetKey(asset),
            description=f"Fails if a file was rejected, or more than {feed.quarantine_share:.2%} of a partition's "
            "rows; warns of fewer rejected rows. They are in ops.quarantine."
            + (" Warns of added columns that the transform drops." if feed.adds_columns else ""),
        ),
        dg.AssetCheckSpec(
            REMOVALS,
            asset=dg.AssetKey(asset),
            description="Fails while the table keeps rows of vanished files because too many files vanished at once; "
            "see the source's check `mass_removal`. Reports the number of expired files.",
        ),
        dg.AssetCheckSpec(
            ACCOUNTING,
            asset=dg.AssetKey(asset),
            description="Fails if rows of a file that was read are unaccounted for: they are neither in the table, nor "
            "rejected, nor superseded by a row with the same key.",
        ),
    ]


def landed_results(
    feed: Feed, asset: dg.AssetKey, loaded: Loaded, before: Callable[[str], Mapping[str, object]], now: datetime
) -> list[dg.AssetCheckResult]:
    """Return the results of `landed_checks` for a load.

    Args:
        before: Function from a check's name to the metadata of the check's last result.
    """
    return [
        quarantine_result(feed, asset, loaded),
        removals_result(feed, asset, loaded, before(REMOVALS), now),
        accounting_result(asset, loaded, before(ACCOUNTING)),
    ]


def quarantine_result(feed: Feed, asset: dg.AssetKey, loaded: Loaded) -> dg.AssetCheckResult:
    """Return a result that passes if all quarantine entries of the asset are waived and no column was dropped."""
    waiting = [b for b in loaded.backlog if not b.is_waived]
    waived = sum(b.count for b in loaded.backlog if b.is_waived)
    files = [b for b in waiting if b.where is Where.WHOLE_FILE]
    rows = {b.reason: b.count for b in waiting if b.where is Where.REJECTED_ROWS}
    said = []
    if files:
        names = sorted((key, b.reason) for b in files for key in b.files)
        some = _some([f"{key} ({reason})" for key, reason in names], of=sum(b.count for b in files))
        said.append(f"{sum(b.count for b in files)} files rejected: {some}")
    share, limit = loaded.largest_share, feed.quarantine_share
    if rows:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(rows.items()))
        told = f"above the feed's limit of {limit:.2%}" if share > limit else "within the limit"
        said.append(f"{sum(rows.values())} rows rejected ({counts}), up to {share:.2%} of a partition: {told}")
    if waived:
        said.append(f"{waived} waived")
    said += _about_columns(asset, loaded)
    columns = {"refused": loaded.additions.refused, "dropped": loaded.additions.dropped}
    is_young, is_recent = (sum(getattr(b, c) for b in waiting) for c in ("since_yesterday", "since_last_week"))
    count = sum(b.count for b in waiting)
    return dg.AssetCheckResult(
        passed=not waiting and not loaded.additions.dropped,
        asset_key=asset,
        check_name=QUARANTINE,
        severity=dg.AssetCheckSeverity.ERROR if files or share > limit else dg.AssetCheckSeverity.WARN,
        description="; ".join(said) or "nothing was rejected",
        metadata={
            "files": sorted({key for b in files for key in b.files})[:_TOLD],
            "rows": sum(rows.values()),
            "rows by reason": rows,
            "largest share": share,
            "waived": waived,
            # One number for each reason and for each age of the file's arrival, because Dagster plots numbers.
            **{f"turned away: {b.reason}": b.count for b in waiting},
            "arrived within a day": is_young,
            "arrived within a week": is_recent - is_young,
            "arrived earlier": count - is_recent,
            "new columns": told_columns(loaded.new_columns),
            "missing columns": told_columns(loaded.missing_columns),
            **{f"columns {fate}": dict(list(why.items())[:_TOLD]) for fate, why in columns.items() if why},
        },
    )


def told_columns(columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return at most 20 columns, each with at most 20 files, to keep metadata short."""
    return {name: list(files[:_TOLD]) for name, files in list(columns.items())[:_TOLD]}


def columns_said(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Loaded` about columns, read from the metadata of an earlier quarantine check."""
    from dagster_tidemark.lakehouse.loading.new_columns import Additions

    refused, dropped = (metadata.get(f"columns {fate}", {}) for fate in ("refused", "dropped"))
    new, missing = metadata.get("new columns", {}), metadata.get("missing columns", {})
    return {"new_columns": new, "missing_columns": missing, "additions": Additions(refused=refused, dropped=dropped)}


def _about_columns(asset: dg.AssetKey, loaded: Loaded) -> list[str]:
    """Return sentences about columns that are in files but not declared, or declared but not in files."""
    about = loaded.additions
    said = [f"new columns, added as text: {_some(sorted(about.added))}"] if about.added else []
    for why in sorted(set(about.dropped.values())):
        names = sorted(name for name, does in about.dropped.items() if does == why)
        said.append(f"the transform of {asset.to_user_string()} {why}: {_some(names)}")
    for why in sorted(set(about.refused.values())):
        names = sorted(name for name, reason in about.refused.items() if reason == why)
        said.append(f"new columns, not added ({why}): {_some(names)}")
    others = sorted(loaded.new_columns.keys() - about.refused.keys() - about.dropped.keys())
    said += [f"new columns, ignored: {_some(others)}"] if others else []
    lacking = _some(list(loaded.missing_columns))
    return said + ([f"declared columns missing in files (null there): {lacking}"] if lacking else [])


def removals_result(
    feed: Feed, asset: dg.AssetKey, loaded: Loaded, before: Mapping[str, object], now: datetime
) -> dg.AssetCheckResult:
    """Return a result that fails if the table keeps rows of removed files, in this or an earlier load's partitions.

    The rows of a removed file are kept until its partition is loaded again, after the file is back or an operator has
    accepted the removal, or until the partition no longer follows its files.

    Args:
        before: The metadata of the last result, with the kept files of other partitions.
    """
    earlier = before.get(HELD, {})
    held: dict[str, int] = {
        partition: files
        for partition, files in (earlier.items() if isinstance(earlier, Mapping) else ())
        if (partition or None) not in loaded.content and follows(feed, partition or None, now)
    }
    held |= {partition or "": len(fate.held) for partition, fate in loaded.fates.items() if fate.held}
    expired = sum(len(fate.expired) for fate in loaded.fates.values())
    said = []
    if held:
        count = f"{sum(held.values())} files of {len(held)} partitions vanished, but the table keeps their rows"
        said += [*([loaded.alarm] if loaded.alarm else []), f"{count}: {_some(sorted(held))}"]
    if expired:
        versions = sorted({version for of in loaded.kept_from.values() for version in of})
        said.append(f"{expired} files expired; the table keeps their rows of code version {', '.join(versions)}")
    if loaded.unavailable_kept:
        said.append(f"the table keeps rows of files that cannot be read now: {_some(loaded.unavailable_kept)}")
    return dg.AssetCheckResult(
        passed=not held,
        asset_key=asset,
        check_name=REMOVALS,
        description="; ".join(said) or "nothing disappeared",
        metadata={"files held": sum(held.values()), "files expired": expired, **({HELD: held} if held else {})},
    )


def accounting_result(asset: dg.AssetKey, loaded: Loaded, before: Mapping[str, object]) -> dg.AssetCheckResult:
    """Return a result that fails if the rows in the table, rejected and superseded do not add up to the landed rows.

    A partition with such a difference is reported until it is read again as a whole.

    Args:
        before: The metadata of the last result, with the differences in other partitions.
    """
    earlier = before.get(UNACCOUNTED, {})
    missing: Counter[str] = Counter(
        {
            partition: rows
            for partition, rows in (earlier.items() if isinstance(earlier, Mapping) else ())
            if (partition or None) not in loaded.read_again
        }
    )
    wrong = [account for account in loaded.accounts if account.unaccounted]
    for account in wrong:
        missing[account.partition or ""] += abs(account.unaccounted)
    counts = {
        "rows landed": sum(account.landed for account in loaded.accounts),
        "rows in the table": sum(account.in_table for account in loaded.accounts),
        "rows turned away": sum(account.rejected for account in loaded.accounts),
        "rows superseded": sum(account.superseded for account in loaded.accounts),
    }
    said = [f"{account.key}: {account}" for account in wrong[:_TOLD]]
    if missing:
        said.append(f"{missing.total()} rows unaccounted for in {len(missing)} partitions: {_some(sorted(missing))}")
    return dg.AssetCheckResult(
        passed=not missing,
        asset_key=asset,
        check_name=ACCOUNTING,
        description="; ".join(said) or "every row that landed is accounted for",
        metadata=counts
        | {"rows unaccounted for": missing.total(), **({UNACCOUNTED: dict(missing)} if missing else {})},
    )


def _some(names: Sequence[str], of: int = 0) -> str:
    more = max(of, len(names)) - len(names[:_TOLD])
    return ", ".join(names[:_TOLD]) + (f" and {more} more" if more > 0 else "")
