"""Observing when a person presses "Observe": the bodies of the observable source assets.

Does not belong here: what a look finds (`sensors.change_detection`).
"""

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.event_log.observations import EventLog
from dagster_tidemark.resources.aws import LandingResource
from dagster_tidemark.sensors.change_detection import changes, look_at_feed
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import Bucket
from dagster_tidemark.sources.partition_listing import look


def observe_partitions(
    context: dg.OpExecutionContext, landing: LandingResource, feed: Feed
) -> dg.DataVersionsByPartition:
    """Observe a feed on demand: the body of an observable source asset.

    Dagster writes an event for every entry of what is returned, and none of them could carry our tags. So the
    partitions that changed are reported here, and nothing is returned. They are no events of this run: deleted with
    it, nobody would know any more that there were files which are gone now.
    """
    found = look_at_feed(EventLog(context.instance, landing.start), landing.open(), feed)
    context.log.info(f"{len(found.changed)} partitions changed")
    for alarm in found.alarms.values():
        context.log.error(alarm)
    return dg.DataVersionsByPartition({})


def observe_file(bucket: Bucket, feed: Feed, instance: DagsterInstance) -> dg.ObserveResult:
    """Observe an unpartitioned feed on demand: the body of an observable source asset.

    Always an event, because Dagster allows no other answer; with the same version it is no news to anybody. What is
    news is reported beside it, and stays when this run is deleted.
    """
    ledger = EventLog(instance)
    seen = ledger.latest(feed)
    found = changes(feed, {None: look(bucket, feed, None)}, seen, ledger)
    if not found.changed:
        return dg.ObserveResult(tags=dict(seen.get(None, {})))
    ledger.report(found.changed)
    return dg.ObserveResult(tags=found.changed[0].tags, metadata=found.changed[0].metadata)
