"""Scheduled listings of the landing zone, which find changes whose notifications were lost.

Belongs here: the parts of the zone that the schedules and `tidemark reconcile` list, and the times. Does not belong
here: the comparison with the last observations (`sensors.change_detection`).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.engine.complete_listings import note_listing, place_of
from dagster_tidemark.errors import Transient
from dagster_tidemark.event_log.executor import recorded_in_process
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.resources.aws import LandingResource
from dagster_tidemark.sensors.change_detection import DetectedChanges, look_at_days, look_at_feed
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import Bucket, BucketUnavailable
from dagster_tidemark.sources.s3 import landing_bucket

RECENT_DAYS = 3
_RECENT_EVERY = "*/10 * * * *"
_ALL_EVERY = "23 3 * * *"

Looked = Callable[[Feed, DetectedChanges], None]
"""Callback that receives the changes of each feed."""

Listed = Callable[[Feed, float], None]
"""Callback that receives each feed that was listed completely and whose changes are reported, and the start of its
listing (Unix seconds)."""


def reconcile(
    ledger: ObservationLedger,
    bucket: Bucket,
    feeds: Iterable[Feed],
    *,
    days: Sequence[date] | None = None,
    accept_removals: bool = False,
    looked: Looked = lambda feed, found: None,
    listed: Listed = lambda feed, at: None,
) -> DetectedChanges:
    """List feeds, or some days of each feed, and report changes without a notification. Without changes, write nothing.

    If one feed cannot be listed, the other feeds are still listed.

    Args:
        accept_removals: Report vanished partitions even if the bucket looks like the wrong one.

    Raises:
        BucketUnavailable: the bucket does not answer, or some feeds cannot be listed. All other feeds were listed.
    """
    found, faults = DetectedChanges(), dict[str, BucketUnavailable]()
    for feed in feeds:
        began = time.time()
        try:
            if days is None:
                of_feed = look_at_feed(ledger, bucket, feed, accept_removals=accept_removals)
            else:
                of_feed = look_at_days(ledger, bucket, feed, days, accept_removals=accept_removals)
        except BucketUnavailable as fault:
            faults[feed.name] = fault
            bucket.probe()
            continue
        looked(feed, of_feed)
        if days is None and not (of_feed.held or of_feed.alarms):
            listed(feed, began)
        found += of_feed
    if faults:
        said = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise BucketUnavailable(f"some feeds could not be listed: {said}")
    return found


def reconcile_instance(
    settings: Settings,
    feeds: Iterable[Feed],
    instance: DagsterInstance,
    *,
    days: Sequence[date] | None = None,
    accept_removals: bool = False,
    looked: Looked = lambda feed, found: None,
) -> DetectedChanges:
    """Reconcile the landing bucket of the settings with an instance, from outside Dagster's daemon.

    Raises:
        BucketUnavailable: the bucket does not answer, or some feeds cannot be listed.
    """
    bucket = landing_bucket(settings)
    return reconcile(
        ObservationLedger(instance, settings.start_date),
        bucket,
        feeds,
        days=days,
        accept_removals=accept_removals,
        looked=looked,
        listed=_noting(instance, settings.code_location, bucket.name, settings.start_date),
    )


def _noting(instance: DagsterInstance, location: str, bucket: str, start: date) -> Listed:
    """Return the callback that records complete listings as checks of the sources of a code location."""
    return lambda feed, at: note_listing(instance, location, feed.name, at, place_of(feed, bucket, start))


@contextmanager
def instance_of(settings: Settings) -> Iterator[DagsterInstance]:
    """Open the instance of `DAGSTER_HOME`, or of the platform on this machine.

    Raises:
        Transient: the instance does not exist yet.
    """
    home = settings.dagster_home or settings.for_platform().dagster_home
    # Dagster needs no dagster.yaml: its storages are there as soon as it runs.
    if home is None or not any((home / name).exists() for name in ("dagster.yaml", "storage", "history")):
        raise Transient(
            f"DAGSTER_HOME={home} has no dagster.yaml and no storage; set DAGSTER_HOME to the home of the running "
            "Dagster, or run `tidemark up`, which creates one on this machine"
        )
    with DagsterInstance.from_config(str(home)) as instance:
        yield instance


def last_days(count: int) -> list[date]:
    """Return today and the days before it, in UTC."""
    today = datetime.now(UTC).date()
    return [today - timedelta(days=n) for n in range(count)]


def reconcile_schedules(
    feeds: Sequence[Feed], start: date, *, scope: LocationScope = WHOLE_LOCATION
) -> list[dg.ScheduleDefinition]:
    """Return schedules that list recent days every ten minutes and everything once a night.

    Args:
        start: The first day of the feeds' partitions.
    """
    job = _reconcile_job(feeds, start, scope)

    @dg.schedule(
        name=scope.named("reconcile_recent"),
        description=f"Lists the last {RECENT_DAYS} days of every feed, to find changes whose notification was lost.",
        cron_schedule=_RECENT_EVERY,
        execution_timezone="UTC",
        job=job,  # never requested, because the tick itself lists the days
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def reconcile_recent(context: dg.ScheduleEvaluationContext, tidemark_landing: LandingResource) -> dg.SkipReason:
        found = reconcile(
            ObservationLedger(context.instance, start), tidemark_landing.open(), feeds, days=last_days(RECENT_DAYS)
        )
        for alarm in found.alarms.values():
            context.log.error(alarm)
        return dg.SkipReason("; ".join([f"{len(found.changed)} partitions changed", *found.alarms.values()]))

    reconcile_all = dg.ScheduleDefinition(
        name=scope.named("reconcile_all"),
        description="Lists every feed completely, once a night, and reports changes.",
        cron_schedule=_ALL_EVERY,
        execution_timezone="UTC",
        job=job,  # in a run, because listing a long history takes longer than a tick may
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    return [reconcile_recent, reconcile_all]


def _reconcile_job(feeds: Sequence[Feed], start: date, scope: LocationScope) -> dg.JobDefinition:
    """Return the job that lists every prefix of the landing bucket."""

    @dg.op(name=scope.named("look_at_every_prefix"))
    def look_at_every_prefix(context: dg.OpExecutionContext, tidemark_landing: LandingResource) -> None:
        """List every prefix, and report changes whose notification was lost."""

        def _tell(feed: Feed, found: DetectedChanges) -> None:
            context.log.info(f"{feed.name}: {len(found.changed)} partitions changed")

        bucket = tidemark_landing.open()
        found = reconcile(
            ObservationLedger(context.instance, start),
            bucket,
            feeds,
            looked=_tell,
            listed=_noting(context.instance, scope.location, bucket.name, start),
        )
        if found.alarms:
            raise dg.Failure("; ".join(found.alarms.values()), allow_retries=False)

    @dg.job(name=scope.named("reconcile"), executor_def=recorded_in_process)
    def _reconcile() -> None:
        look_at_every_prefix()

    return _reconcile
