"""Observation on demand (the button "Observe"): the bodies of the observable source assets.

Does not belong here: the comparison with the bucket (`sensors.change_detection`).
"""

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.resources.aws import LandingResource
from dagster_tidemark.sensors.change_detection import changes, look_at_feed
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import Bucket
from dagster_tidemark.sources.partition_listing import look


def observe_partitions(
    context: dg.OpExecutionContext, landing: LandingResource, feed: Feed
) -> dg.DataVersionsByPartition:
    """Observe a feed on demand: the body of an observable source asset.

    Dagster writes an event without tags for every returned entry. Therefore this function itself reports the changed
    partitions, and returns none. The reports are not events of this run: deleting the run would delete them, and with
    them the record of files that vanished later.
    """
    found = look_at_feed(ObservationLedger(context.instance, landing.start), landing.open(), feed)
    context.log.info(f"{len(found.changed)} partitions changed")
    for alarm in found.alarms.values():
        context.log.error(alarm)
    return dg.DataVersionsByPartition({})


def observe_file(bucket: Bucket, feed: Feed, instance: DagsterInstance) -> dg.ObserveResult:
    """Observe an unpartitioned feed on demand: the body of an observable source asset.

    The result is always an event, because Dagster allows nothing else; with an unchanged version it has no effect. A
    change is also reported outside this run, so that the report remains if the run is deleted.
    """
    ledger = ObservationLedger(instance)
    seen = ledger.latest(feed)
    found = changes(feed, {None: look(bucket, feed, None)}, seen, ledger)
    if not found.changed:
        return dg.ObserveResult(tags=dict(seen.get(None, {})))
    ledger.report(found.changed)
    return dg.ObserveResult(tags=found.changed[0].tags, metadata=found.changed[0].metadata)
