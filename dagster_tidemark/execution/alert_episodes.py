"""Reevaluates alerts from an asset: Spark finds the episodes in a stream's messages, and Dagster gets the counts.

Does not belong here: matching alerts with episodes, and the commit (`streams.alerts.reevaluation`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import dagster as dg
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.loaded_code import code_of
from dagster_tidemark.execution.metadata import partition_metadata, table_state
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.lakehouse.content import content_of
from dagster_tidemark.lakehouse.read import naming_an_expired_snapshot, read_as_of
from dagster_tidemark.lakehouse.session import naming_the_server
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.notification_queue import MessageSink
from dagster_tidemark.streams import rejected_messages
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.identity import Episode
from dagster_tidemark.streams.alerts.reevaluation import Episodes, Reevaluation
from dagster_tidemark.streams.decode import Fault
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from dagster_tidemark.streams.user_rules import RULE_RAISES


class NoAlerts(Terminal):
    """The stream has no alerts. Declare `reaction=Alerting(...)` on the stream."""


def reevaluate(
    context: dg.AssetExecutionContext,
    spark: SparkSession,
    settings: Settings,
    stream: Stream,
    episodes: Callable[[DataFrame], DataFrame],
) -> dg.MaterializeResult[None]:
    """Update the alerts on a stream to today's rule; see `LakehouseResource.reevaluate`.

    Raises:
        NoAlerts: the stream has no alerts.
    """
    declared = stream.reaction
    if not isinstance(declared, Alerting):
        raise NoAlerts(f"stream {stream.name} has no alerts: declare reaction=Alerting(...)")
    lake = open_lake(settings)

    def refuse(faults: Sequence[Fault]) -> None:
        rejected_messages.enter(lake, stream.asset, faults, (), code_of(settings))

    work = Reevaluation(declared, StreamContext(settings, lake, stream, refuse), _sends_nothing)

    def found(snapshot_id: int | None) -> Episodes:
        with naming_an_expired_snapshot(stream.table):
            messages = read_as_of(spark, stream.table, snapshot_id)
            try:
                return _by_key(episodes(messages), declared)
            except PythonException:
                left_out = rejected_messages.message_ids(lake, stream.asset, RULE_RAISES)
                if not left_out:
                    raise
                context.log.warning(f"the rule raised an error; retrying without {len(left_out)} quarantined messages")
                return _by_key(episodes(messages.where(~F.col("message_id").isin(left_out))), declared)

    with naming_the_server(spark):
        done = work.work(found)
        content = content_of(spark, declared.table, None, done.snapshot_id)
    context.log.info(f"{done.raised} alerts raised, {done.moved} moved, {done.retracted} retracted")
    return dg.MaterializeResult(
        metadata={
            **table_state(done.snapshot_id, done.alerts),
            **partition_metadata(None, content[None]),
            "raised": done.raised,
            "moved": done.moved,
            "retracted": done.retracted,
            "snapshots read": {stream.table.name: str(done.incorporates)},
        }
    )


def _by_key(episodes: DataFrame, declared: Alerting) -> Episodes:
    found: dict[str, list[Episode]] = defaultdict(list)
    # Through Arrow, times do not depend on the time zone of this machine.
    for row in episodes.toArrow().to_pylist():
        facts = {name: row[name] for name in declared.facts}
        found[str(row[declared.key])].append(Episode(row["started_at"], row["last_at"], facts))
    return {key: sorted(of_key, key=lambda episode: episode.started_at) for key, of_key in found.items()}


def _sends_nothing() -> MessageSink:
    raise NotImplementedError("a re-evaluation sends nothing; the runs of the stream send the changed alerts")
