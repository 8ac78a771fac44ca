"""From a notification to an observation: the landing sensor, and everybody else who looks at the bucket.

Whoever looks (the sensor, a person who presses "Observe", the look at everything when the platform starts)
lists, computes the same version, and reports the partitions whose version is another than the last observed.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import boto3
import dagster as dg
from dagster import DagsterInstance

from pipelines.automation import adapter
from pipelines.automation.catch_up import due_now
from pipelines.automation.engine import reporting
from pipelines.resources.aws import LandingResource, QueueResource
from pipelines.settings import Settings
from pipelines.sources.feed import Feed, Partition
from pipelines.sources.hints import NotOurs, hints_of
from pipelines.sources.listing import Bucket, Listing, arrival, data_version, look, look_at_all
from pipelines.sources.messages import Message, MessageSource
from pipelines.sources.s3 import S3Bucket

_WAIT_SECONDS = 20
_DRAIN_SECONDS = 10.0
_MOST_MESSAGES = 10_000


class FeedVanished(Exception):
    """A feed that had objects has none. Wrong bucket or endpoint? Nothing was reported, so nothing is removed."""


@dataclass
class Received:
    """What one tick took from the queue, and what it says."""

    messages: list[Message] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    notified: dict[tuple[Feed, Partition], datetime] = field(default_factory=dict)


def landing_sensor(feeds: Sequence[Feed]) -> dg.SensorDefinition:
    """The sensor on the queue of the landing bucket's notifications."""

    @dg.sensor(
        name="landing",
        asset_selection=dg.AssetSelection.all(),  # it also asks for the runs of what is due by its news
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def landing_events(
        context: dg.SensorEvaluationContext, events_queue: QueueResource, landing: LandingResource
    ) -> dg.SensorResult | dg.SkipReason:
        """Looks again at the partitions that notifications name, observes what changed and starts what is due."""
        queue = events_queue.open()
        bucket = landing.open()
        received = drain(queue, bucket.name, feeds)
        for reason in received.refused:
            context.log.warning(f"left for the dead-letter queue: {reason}")
        if not received.messages:
            return dg.SkipReason(f"no notification ({len(received.refused)} refused)")
        observed = observe(context.instance, bucket, received.notified)
        # Only now: what was received and not observed comes back.
        queue.delete(received.messages)
        told = (
            f"received {len(received.messages)}, partitions {len(received.notified)}, observed {observed}, "
            f"unchanged {len(received.notified) - observed}, refused {len(received.refused)}"
        )
        requests = due_now(context)
        if not requests:
            return dg.SkipReason(told)
        context.log.info(told)
        return dg.SensorResult(run_requests=requests)

    return landing_events


def drain(queue: MessageSource, bucket: str, feeds: Sequence[Feed]) -> Received:
    """Wait for a message and take what else is there, within bounds of time and number."""
    received = Received()
    batch = queue.receive(wait_seconds=_WAIT_SECONDS)
    deadline = time.monotonic() + _DRAIN_SECONDS
    while batch:
        for message in batch:
            try:
                hints = hints_of(message.body, bucket=bucket, feeds=feeds)
            except NotOurs as reason:
                received.refused.append(str(reason))
                continue
            received.messages.append(message)
            for hint in hints:
                at = (hint.feed, hint.partition)
                received.notified[at] = min(hint.notified_at, received.notified.get(at, hint.notified_at))
        if len(received.messages) >= _MOST_MESSAGES or time.monotonic() > deadline:
            break
        batch = queue.receive(wait_seconds=0)
    return received


def observe(instance: DagsterInstance, bucket: Bucket, notified: Mapping[tuple[Feed, Partition], datetime]) -> int:
    """Look at these partitions again and report those that changed; how many those are."""
    looked: dict[Feed, dict[Partition, Listing]] = {}
    for feed, partition in notified:
        looked.setdefault(feed, {})[partition] = look(bucket, feed, partition)
    changed: list[dg.AssetObservation] = []
    for feed, listings in looked.items():
        wanted = {p for p in listings if p is not None} or None
        seen = adapter.latest_observations(instance, source_key(feed), wanted)
        changed += changes(feed, listings, seen, {p: at for (f, p), at in notified.items() if f == feed})
    report(instance, changed)
    return len(changed)


def look_everywhere(settings: Settings, feeds: Iterable[Feed], instance: DagsterInstance) -> int:
    """Look at every prefix of every feed and report what no notification told; how many partitions those are.

    Raises:
        FeedVanished: a feed that had objects has none.
    """
    bucket = S3Bucket(boto3.client("s3", **settings.aws_options()), settings.landing_bucket)
    changed = [change for feed in feeds for change in feed_changes(feed, bucket, instance)]
    report(instance, changed)
    return len(changed)


def feed_changes(feed: Feed, bucket: Bucket, instance: DagsterInstance) -> list[dg.AssetObservation]:
    """An observation for each partition of a feed that is not as last observed, by one look at the whole feed.

    Raises:
        FeedVanished: the feed had objects and has none.
    """
    listings, listed_at = look_at_all(bucket, feed)
    seen = adapter.latest_observations(instance, source_key(feed))
    had_objects = any(tags.get(adapter.DATA_VERSION) != data_version([]) for tags in seen.values())
    if not listings and had_objects:
        raise FeedVanished(f"nothing lies below {feed.prefix}, where {len(seen)} partitions were: wrong bucket?")
    gone = {partition: Listing((), listed_at) for partition in seen if partition not in listings}
    return changes(feed, listings | gone, seen)


def log_changes(context: dg.OpExecutionContext, bucket: Bucket, feed: Feed) -> dg.DataVersionsByPartition:
    """Observe a feed on demand: the body of an observable source asset.

    Dagster writes an event for every entry of what is returned, and none of them could carry our tags. So the
    partitions that changed are logged here, and nothing is returned.
    """
    observed = feed_changes(feed, bucket, context.instance)
    for observation in observed:
        context.log_event(observation)
    context.log.info(f"{len(observed)} partitions changed")
    return dg.DataVersionsByPartition({})


def observe_file(bucket: Bucket, feed: Feed, instance: DagsterInstance) -> dg.ObserveResult:
    """Observe an unpartitioned feed on demand: the body of an observable source asset.

    Always an event, because Dagster allows no other answer; with the same version it is no news to anybody.
    """
    listing = look(bucket, feed, None)
    before = adapter.latest_observations(instance, source_key(feed)).get(None, {})
    found = changes(feed, {None: listing}, {None: before} if before else {})
    if not found:
        return dg.ObserveResult(tags=dict(before))
    return dg.ObserveResult(tags=found[0].tags, metadata=found[0].metadata)


def changes(
    feed: Feed,
    listings: Mapping[Partition, Listing],
    seen: Mapping[Partition, Mapping[str, str]],
    notified: Mapping[Partition, datetime] | None = None,
) -> list[dg.AssetObservation]:
    """An observation for each listed partition whose version is another than the last observed."""
    found = []
    for partition, listing in listings.items():
        before = seen.get(partition, {})
        version = data_version(listing.objects)
        if version == before.get(adapter.DATA_VERSION) or (not before and not listing.objects):
            continue
        listed_before = before.get(adapter.LISTED_AT)
        previously = datetime.fromtimestamp(float(listed_before), UTC) if listed_before else None
        if previously and listing.listed_at < previously:
            continue  # somebody looked later and was faster to say so
        arrived_at = arrival(listing, previously_listed_at=previously, notified_at=(notified or {}).get(partition))
        found.append(_observation(feed, partition, listing, version, arrived_at))
    return found


def report(instance: DagsterInstance, observations: Sequence[dg.AssetObservation]) -> None:
    """Write observations to the event log; they are durable when this returns."""
    with reporting():
        for observation in observations:
            instance.report_runless_asset_event(observation)


def source_key(feed: Feed) -> dg.AssetKey:
    """The source asset of a feed."""
    return dg.AssetKey(["raw", feed.name])


def _observation(
    feed: Feed, partition: Partition, listing: Listing, version: str, arrived_at: datetime
) -> dg.AssetObservation:
    newest = max(listing.objects, key=lambda o: (o.last_modified, o.key), default=None)
    return dg.AssetObservation(
        asset_key=source_key(feed),
        partition=partition,
        tags={
            adapter.DATA_VERSION: version,
            adapter.LISTED_AT: _stamp(listing.listed_at),
            adapter.ARRIVED_AT: _stamp(arrived_at),
        },
        metadata={
            "files": len(listing.objects),
            "bytes": sum(o.size for o in listing.objects),
            "newest file": newest.key if newest else "none",
            "arrived at": dg.MetadataValue.timestamp(arrived_at),
        },
    )


def _stamp(moment: datetime) -> str:
    # Unix seconds: a tag may hold neither the colons nor the plus of ISO 8601.
    return f"{moment.timestamp():.3f}"
