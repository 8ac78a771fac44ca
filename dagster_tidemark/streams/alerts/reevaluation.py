"""Re-evaluation of alerts over the whole stream table, after the rule has changed.

The shift keeps running. The slow part, the search for episodes in the whole history, happens once. It uses the snapshot
that the alerts are based on. Later messages are then added within milliseconds, as in a shift; this fast part is
repeated if another writer commits first. The re-evaluation does not send the changes: the shift sends them from the
outbox. Does not belong here: the search for episodes, and the reports to Dagster (`execution.alert_episodes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.streams.alerts.identity import AlertChanges, Episode, reconcile
from dagster_tidemark.streams.alerts.worker import INCORPORATES, Alerts

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
