"""The checks on each source (mass removal and misplaced files) and on the notifications.

The landing sensor and the reconcile schedules write a result when it changes. Users can also execute the checks. Does
not belong here: the rules (`sources.removals`, `sources.misplaced`).
"""

from collections.abc import Iterable
from datetime import date

import dagster as dg

from dagster_tidemark.event_log.observations import (
    ALARM,
    DEAD_LETTERS,
    NOTIFICATIONS,
    ObservationLedger,
    dead_letters_check,
    mass_removal_check,
    misplaced_check,
    misplaced_result,
)
from dagster_tidemark.resources.aws import LandingResource, QueueResource
from dagster_tidemark.sensors.change_detection import look_at_feed
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.partition_listing import look_beside_all


def landing_checks(feeds: Iterable[Feed], start: date) -> list[dg.AssetChecksDefinition]:
    """Return the checks on mass removal and on misplaced files, for each feed's source.

    Args:
        start: The first day of the feeds' partitions.
    """
    return [check for feed in feeds for check in (_mass_removal(feed, start), _misplaced(feed, start))]


def notifications() -> dg.AssetsDefinition:
    """Return an asset for the queue of the landing bucket's notifications, as the target of checks."""
    spec = dg.AssetSpec(
        NOTIFICATIONS,
        group_name="ops",
        kinds={"sqs"},
        description="The queue of the landing bucket's notifications.",
    )
    return dg.AssetsDefinition(specs=[spec])


def dead_letters() -> dg.AssetChecksDefinition:
    """Return the check on messages that the queue has given up."""
    key = dead_letters_check()

    @dg.asset_check(
        asset=key.asset_key,
        name=key.name,
        description="Fails while the dead-letter queue holds messages; `tidemark redrive` sends them again.",
    )
    def dead_letters(tidemark_events_queue: QueueResource) -> dg.AssetCheckResult:
        count = tidemark_events_queue.open().dead_letters()
        said = "the queue has no dead-letter queue" if count is None else f"{count} messages in the dead-letter queue"
        return dg.AssetCheckResult(passed=not count, description=said, metadata={DEAD_LETTERS: count or 0})

    return dead_letters


def _mass_removal(feed: Feed, start: date) -> dg.AssetChecksDefinition:
    key = mass_removal_check(feed)

    @dg.asset_check(
        asset=key.asset_key,
        name=key.name,
        description='Fails with "wrong bucket?" if too much of the feed vanished at once. Its rows stay until the '
        "files are back, or a person accepts the removal (`tidemark reconcile --accept-removals`).",
    )
    def mass_removal(context: dg.AssetCheckExecutionContext, tidemark_landing: LandingResource) -> dg.AssetCheckResult:
        found = look_at_feed(ObservationLedger(context.instance, start), tidemark_landing.open(), feed, report=False)
        alarm = found.alarms.get(feed)
        return dg.AssetCheckResult(passed=alarm is None, description=alarm, metadata={ALARM: alarm} if alarm else {})

    return mass_removal


def _misplaced(feed: Feed, start: date) -> dg.AssetChecksDefinition:
    key = misplaced_check(feed)

    @dg.asset_check(
        asset=key.asset_key,
        name=key.name,
        description="Fails while files under the feed's prefix belong to none of its partitions and are not waived: "
        "outside the layout, with an undeclared key, before the start date, or days ahead of the clock. They are not "
        "loaded.",
    )
    def misplaced(context: dg.AssetCheckExecutionContext, tidemark_landing: LandingResource) -> dg.AssetCheckResult:
        beside = look_beside_all(tidemark_landing.open(), feed, start=start)
        return misplaced_result(beside, ObservationLedger(context.instance).waived(feed))

    return misplaced
