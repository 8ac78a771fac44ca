"""The check `removals` on each source: whether so much vanished from the bucket that nothing was removed.

The landing sensor and the reconciles write its results, when they become others. A person may also execute it. Does not
belong here: the rule (`sources.removals`).
"""

from collections.abc import Iterable

import dagster as dg

from pipelines.automation.ledger import ALARM, EventLog, removals_check
from pipelines.automation.observing import look_at_feed
from pipelines.resources.aws import LandingResource
from pipelines.sources.feed import Feed


def removal_checks(feeds: Iterable[Feed]) -> list[dg.AssetChecksDefinition]:
    """A check for each feed's source."""
    return [_check(feed) for feed in feeds]


def _check(feed: Feed) -> dg.AssetChecksDefinition:
    key = removals_check(feed)

    @dg.asset_check(
        asset=key.asset_key,
        name=key.name,
        description='Fails with "wrong bucket?" while removals are held back.',
    )
    def removals(context: dg.AssetCheckExecutionContext, landing: LandingResource) -> dg.AssetCheckResult:
        found = look_at_feed(EventLog(context.instance), landing.open(), feed, report=False)
        alarm = found.alarms.get(feed)
        return dg.AssetCheckResult(passed=alarm is None, description=alarm, metadata={ALARM: alarm} if alarm else {})

    return removals
