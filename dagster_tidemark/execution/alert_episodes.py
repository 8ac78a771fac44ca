"""Re-evaluation of alerts over the whole stream table, after the rule has changed: the body of an asset.

The shift keeps running. The slow part, in which Spark finds the episodes in the whole history, happens once. It uses
the snapshot that the alerts are based on. Later messages are then added within milliseconds, as in a shift; this fast
part is repeated if another writer commits first. The re-evaluation does not send the changes: the shift sends them from
the outbox. Does not belong here: matching alerts with episodes (`streams.alerts.identity`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.deployed import code_of
from dagster_tidemark.execution.metadata import partition_metadata, table_state
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.content import content_of
from dagster_tidemark.lakehouse.read import naming_an_expired_snapshot, read_as_of
from dagster_tidemark.lakehouse.session import naming_the_server
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.notification_queue import MessageSink, QueueOutlet
from dagster_tidemark.streams import rejected_messages
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.identity import AlertChanges, Episode, reconcile
from dagster_tidemark.streams.alerts.worker import INCORPORATES, Alerts
from dagster_tidemark.streams.decode import Fault
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from dagster_tidemark.streams.user_rules import RULE_RAISES

Episodes = Mapping[str, Sequence[Episode]]
"""Episodes that need an alert, by key and in time order."""


@dataclass(frozen=True)
class Reevaluated:
    """Result of a re-evaluation, as numbers of alerts.

    Args:
        alerts: The number of alerts ever raised.
        snapshot_id: The newest snapshot of the table of alerts; None if the table has none.
        incorporates: The snapshot of the stream's table that the alerts are based on.
    """

    raised: int
    moved: int
    retracted: int
    alerts: int
    snapshot_id: int | None
    incorporates: int | None


class Reevaluation(Alerts):
    """The alerts of a stream, evaluated again over the stream's whole history."""

    def work(self, episodes_of: Callable[[int | None], Episodes]) -> Reevaluated:
        """Raise, move and retract alerts until they match the current rule.

        Args:
            episodes_of: Finds the episodes in the stream's table as of a snapshot; None means an empty table.

        Raises:
            CommitConflict: at each try, another writer has committed first.
        """
        self._table.refresh()
        self._messages.refresh()
        self._through = self._known_to_alerts()
        before = episodes_of(self._through)

        def _reevaluated() -> Reevaluated:
            nonlocal before
            # A writer that commits first has evaluated a state between these two, and knew the episodes in both.
            earlier, before = before, self._with_news(before)
            return self._commit(earlier, before)

        return until_committed(_reevaluated, self.declared.table.name, look_again=self._table.refresh)

    def _known_to_alerts(self) -> int | None:
        """Return the snapshot that the alerts are based on. If it is unknown or has expired, return the newest one."""
        known = self.needs_since()
        return known if known is not None and self._messages.has(known) else self._messages.head

    def _with_news(self, known: Episodes) -> Episodes:
        """Return the known episodes, updated with the messages that were added to the stream's table since then."""
        self._messages.refresh()
        if self._messages.head == self._through:
            return known
        found = {key: list(episodes) for key, episodes in known.items()}
        for stretch, _, after in self._evaluated(self._news()):
            others = [e for e in found.get(stretch.key, ()) if not stretch.holds(e.started_at)]
            both = [*others, *after]
            found[stretch.key] = sorted(both, key=lambda episode: episode.started_at)
        self._through = self._messages.head
        return found

    def _commit(self, before: Episodes, after: Episodes) -> Reevaluated:
        standing, used, now = self._table.standing(), self._table.ids(), datetime.now(UTC)
        changes = {
            key: reconcile(
                self.declared.rule.name,
                key,
                standing.get(key, ()),
                before=before.get(key, ()),
                after=after.get(key, ()),
            )
            for key in sorted({*standing, *after})
        }
        made = {key: [self._table.as_raised(c, key, now, used.__contains__)] for key, c in changes.items() if c}
        if made or self._through != self.needs_since():
            marks = {} if self._through is None else {INCORPORATES: str(self._through)}
            self._table.commit(made, now, marks)
        return self._told([change for every in made.values() for change in every], len(used))

    def _told(self, made: Sequence[AlertChanges], alerts_before: int) -> Reevaluated:
        raised = sum(len(change.raised) for change in made)
        return Reevaluated(
            raised,
            sum(len(change.moved) for change in made),
            sum(len(change.retracted) for change in made),
            alerts_before + raised,
            self._table.table.head,
            self._through,
        )


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

    work = Reevaluation(declared, StreamContext(settings, lake, stream, refuse), QueueOutlet(_sends_nothing))

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
