"""The checks on each source: whether so much vanished that nothing was removed, and whether anything is misplaced.

The landing sensor and the reconciles write their results, when they become others. A person may also execute them. Does
not belong here: the rules (`sources.removals`, `sources.misplaced`).
"""

from collections.abc import Iterable
from datetime import date

import dagster as dg

from pipelines.automation.ledger import ALARM, EventLog, misplaced_check, misplaced_result, removals_check
from pipelines.automation.observing import look_at_feed
from pipelines.resources.aws import LandingResource
from pipelines.sources.feed import Feed
from pipelines.sources.looking import Walk


def landing_checks(feeds: Iterable[Feed], start: date) -> list[dg.AssetChecksDefinition]:
    """Two checks for each feed's source.

    Args:
        start: The first day of which there are partitions.
    """
    return [check for feed in feeds for check in (_removals(feed, start), _misplaced(feed, start))]


def _removals(feed: Feed, start: date) -> dg.AssetChecksDefinition:
    key = removals_check(feed)

    @dg.asset_check(
        asset=key.asset_key,
        name=key.name,
        description='Fails with "wrong bucket?" while removals are held back.',
    )
    def removals(context: dg.AssetCheckExecutionContext, landing: LandingResource) -> dg.AssetCheckResult:
        found = look_at_feed(EventLog(context.instance), landing.open(), feed, start=start, report=False)
        alarm = found.alarms.get(feed)
        return dg.AssetCheckResult(passed=alarm is None, description=alarm, metadata={ALARM: alarm} if alarm else {})

    return removals


def _misplaced(feed: Feed, start: date) -> dg.AssetChecksDefinition:
    key = misplaced_check(feed)

    @dg.asset_check(
        asset=key.asset_key,
        name=key.name,
        description="Fails while files lie where no partition of this feed is: outside its layout, before the start "
        "date, or days ahead of the clock. Nothing of them is loaded.",
    )
    def misplaced(landing: LandingResource) -> dg.AssetCheckResult:
        walk = Walk(landing.open(), feed, start=start)
        for _ in walk:
            pass
        words, metadata = misplaced_result(walk.beside)
        return dg.AssetCheckResult(passed=not walk.beside, description=words, metadata=metadata)

    return misplaced
