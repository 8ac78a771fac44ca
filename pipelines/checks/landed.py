"""Checks on assets that are loaded from a feed: what was turned away, and what disappeared.

Both say what a load knows anyway, so they cost no query, and they speak of all of the asset, not of one run: a file
that cannot be read fails the check until it was fixed, however many others are loaded meanwhile. Does not belong here:
why a row or file is turned away (`lakehouse`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import dagster as dg

from pipelines.lakehouse.load import Loaded
from pipelines.lakehouse.plan import Where
from pipelines.sources.feed import Feed, NewColumns, Partition
from pipelines.sources.removals import follows

QUARANTINE = "quarantine"
REMOVALS = "removals"
HELD = "held"

_TOLD = 20  # names that are spelled out


def landed_checks(feed: Feed, asset: Sequence[str]) -> list[dg.AssetCheckSpec]:
    """The checks of an asset that is loaded from this feed; its load gives their results."""
    return [
        dg.AssetCheckSpec(
            QUARANTINE,
            asset=dg.AssetKey(asset),
            description=f"Fails for a file that cannot be taken, and above {feed.quarantine_share:.2%} of a "
            "partition's rows turned away; warns of fewer. What it is about is in ops.quarantine."
            + (" Warns of added columns that the transform drops." if feed.new_columns is NewColumns.ADD else ""),
        ),
        dg.AssetCheckSpec(
            REMOVALS,
            asset=dg.AssetKey(asset),
            description="Fails when so much disappeared from the bucket that nothing was removed.",
        ),
    ]


def landed_results(
    feed: Feed, asset: dg.AssetKey, loaded: Loaded, before: Mapping[str, object], now: datetime
) -> list[dg.AssetCheckResult]:
    """What a load says to `landed_checks`.

    Args:
        before: The metadata of the last result of the check on removals.
    """
    return [quarantine_result(feed, asset, loaded), removals_result(feed, asset, loaded, before, now)]


def quarantine_result(feed: Feed, asset: dg.AssetKey, loaded: Loaded) -> dg.AssetCheckResult:
    """Whether anything of the asset is in the quarantine."""
    files = sorted((e.file.key, e.reason) for e in loaded.entries if e.file.where is Where.WHOLE_FILE)
    reasons: Counter[str] = Counter()
    rejected: Counter[Partition] = Counter()
    for entry in loaded.entries:
        if entry.file.where is Where.REJECTED_ROWS:
            reasons[entry.reason] += entry.count
            rejected[entry.partition] += entry.count
    shares = {p: count / (count + loaded.rows.get(p, 0)) for p, count in rejected.items()}
    worst = max(shares.values(), default=0.0)
    said = []
    if files:
        said.append(f"{len(files)} files cannot be taken: {_some([f'{key} ({reason})' for key, reason in files])}")
    if rejected:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        limit = f"above the feed's {feed.quarantine_share:.2%}" if worst > feed.quarantine_share else "within bounds"
        said.append(f"{rejected.total()} rows turned away ({counts}), up to {worst:.2%} of a partition: {limit}")
    said += _about_columns(asset, loaded)
    fails = bool(files) or worst > feed.quarantine_share
    return dg.AssetCheckResult(
        passed=not files and not rejected and not loaded.additions.dropped,
        asset_key=asset,
        check_name=QUARANTINE,
        severity=dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN,
        description="; ".join(said) or "nothing was turned away",
        metadata={
            "files": [key for key, _ in files[:_TOLD]],
            "rows": rejected.total(),
            "rows by reason": dict(reasons),
            "largest share": worst,
            "new columns": {name: list(of[:_TOLD]) for name, of in list(loaded.new_columns.items())[:_TOLD]},
        },
    )


def _about_columns(asset: dg.AssetKey, loaded: Loaded) -> list[str]:
    """What is said of columns of the files that nobody declared."""
    about = loaded.additions
    said = [f"new columns, added as text: {_some(sorted(about.added))}"] if about.added else []
    for why in sorted(set(about.dropped.values())):
        names = sorted(name for name, does in about.dropped.items() if does == why)
        said.append(f"the transform of {asset.to_user_string()} {why}: {_some(names)}")
    for why in sorted(set(about.refused.values())):
        names = sorted(name for name, reason in about.refused.items() if reason == why)
        said.append(f"new columns, not added ({why}): {_some(names)}")
    others = sorted(loaded.new_columns.keys() - about.refused.keys() - about.dropped.keys())
    return said + ([f"new columns, not taken: {_some(others)}"] if others else [])


def removals_result(
    feed: Feed, asset: dg.AssetKey, loaded: Loaded, before: Mapping[str, object], now: datetime
) -> dg.AssetCheckResult:
    """Whether anything disappeared that was not removed, in these partitions or, as `before` says, in others.

    What is held stays so until its own partition is loaded again: the files are back, or a person has accepted. Or
    until the partition no longer follows its files.
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
        count = f"{sum(held.values())} files of {len(held)} partitions vanished, their rows stay"
        said += [*([loaded.alarm] if loaded.alarm else []), f"{count}: {_some(sorted(held))}"]
    if expired:
        versions = sorted({version for of in loaded.kept_from.values() for version in of})
        said.append(f"{expired} files expired, rows kept from code version {', '.join(versions)}")
    if loaded.unavailable_kept:
        said.append(f"rows kept of files that cannot be read now: {_some(loaded.unavailable_kept)}")
    return dg.AssetCheckResult(
        passed=not held,
        asset_key=asset,
        check_name=REMOVALS,
        description="; ".join(said) or "nothing disappeared",
        metadata={"files held": sum(held.values()), "files expired": expired, **({HELD: held} if held else {})},
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _TOLD
    return ", ".join(names[:_TOLD]) + (f" and {more} more" if more > 0 else "")
