"""The schedule `prune`: deletes old records that no decision needs.

It works in a run, because a long log takes longer to read than a tick may. Its own runs are pruned too. Does not belong
here: the choice of records (`retention`).
"""

from collections.abc import Collection
from datetime import timedelta

import dagster as dg

from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.event_log.executor import recorded_in_process
from dagster_tidemark.resources.aws import LandingResource
from dagster_tidemark.retention.choice import OWN_JOB
from dagster_tidemark.retention.prune import SHORTEST, TooShort, prune
from dagster_tidemark.sensors.freshness_sensor import reports_need
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.tags import REQUESTED_BY

ON_A_LAPTOP = timedelta(hours=30)
"""Age of records that the laptop platform deletes. The lags of the last 24 hours stay whole, and those of each day."""

_HOURLY, _NIGHTLY = "17 * * * *", "47 3 * * *"
_OFTEN = timedelta(days=2)
"""Ages below this are pruned every hour, others once a night."""


def age_of(settings: Settings, retention: timedelta | None, *, is_alone: bool) -> timedelta | None:
    """Return the age of records to delete; None to keep all.

    Args:
        is_alone: True if the code location has only Tidemark's assets. Others prune only if they ask for it.

    Raises:
        TooShort: the age is shorter than an hour.
    """
    if retention is not None and retention < SHORTEST:
        raise TooShort(f"retention={retention}: expected at least {SHORTEST}; keep records for longer")
    is_laptop = is_alone and settings.environment == "local"
    return ON_A_LAPTOP if retention is None and is_laptop else retention


def prune_schedules(
    age: timedelta | None, scope: LocationScope, feeds: Collection[Feed] = ()
) -> list[dg.ScheduleDefinition]:
    """Return the schedule that deletes records of this age; none without an age.

    Args:
        feeds: Feeds of the code location. Quarantine entries of their gone files are deleted, too.
    """
    if age is None:
        return []
    return [
        dg.ScheduleDefinition(
            name=scope.named(OWN_JOB),
            description=f"Deletes records and quarantine entries older than {age} that nothing needs.",
            cron_schedule=_HOURLY if age < _OFTEN else _NIGHTLY,
            execution_timezone="UTC",
            job=_prune_job(age, scope, feeds),
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]


def _prune_job(age: timedelta, scope: LocationScope, feeds: Collection[Feed]) -> dg.JobDefinition:
    @dg.op(name=f"{scope.prefix}delete_old_records")
    def delete_old_records(context: dg.OpExecutionContext) -> None:
        """Delete old records, and log what stays."""
        assets = context.repository_def.asset_graph
        scale = scope.settings.contract_scale if scope.settings else 1.0
        found = prune(
            context.instance,
            lambda: planner_graph.graph_of(assets, contract_scale=scale),
            max(age, reports_need(context.instance, scope.location, assets)),
            apply=True,
            sensors={sensor.name for sensor in context.repository_def.sensor_defs},
            progress=context.log.info,
        )
        for kind, amount in found.amounts.items():
            context.log.info(f"{amount.count} {kind} deleted, {amount.size} bytes")
        for why, count in found.kept.items():
            context.log.info(f"{count} old runs stay, which {why}")
        if found.unproven:
            names = ", ".join(found.unproven)
            raise dg.Failure(
                f"records of {names} stay: a restarted planner would know something else without them",
                allow_retries=False,
            )

    @dg.op(name=f"{scope.prefix}delete_entries_of_gone_files")
    def delete_entries_of_gone_files(context: dg.OpExecutionContext, tidemark_landing: LandingResource) -> None:
        """Delete quarantine entries of files that are gone. If the bucket cannot be listed, the op fails."""
        from dagster_tidemark.retention.gone_files import prune_entries  # pyiceberg, which code servers load late

        assert scope.settings is not None
        before = event_time.now() - age.total_seconds()
        graph = context.repository_def.asset_graph
        bucket = tidemark_landing.open()
        deleted = prune_entries(scope.settings, bucket, context.instance, graph, feeds, before, apply=True)
        context.log.info(f"{deleted} quarantine entries of files that are gone deleted")

    @dg.job(name=scope.named(OWN_JOB), tags={REQUESTED_BY: OWN_JOB}, executor_def=recorded_in_process)
    def _prune() -> None:
        delete_old_records()
        if feeds and scope.settings is not None:
            delete_entries_of_gone_files()

    return _prune
