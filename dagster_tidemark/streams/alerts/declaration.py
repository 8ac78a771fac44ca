"""The declaration of alerts on a stream. A code location imports it at no cost.

Does not belong here: the raising and sending of alerts (`worker`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.streams.alerts.identity import Episode
from dagster_tidemark.streams.stream_declaration import ReactionDeclaration, require_queue_name
from dagster_tidemark.streams.timeline import SessionRule


class Rule(SessionRule, Protocol):
    """A rule that finds episodes. It is a pure function of the messages of one key."""

    name: str

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> Sequence[Episode]:
        """Return the episodes that need an alert, in time order.

        Args:
            said: The fields of each message, in time order, at most one message per time.
        """
        ...


@dataclass(frozen=True)
class Alerting(ReactionDeclaration):
    """Declares alerts on a stream: a `reaction`.

    Args:
        rule: The rule that finds the episodes.
        table: The table of alerts. Its columns are `alert_id`, `rule`, the key, each of `facts`, `episode_started_at`,
            `raised_at`, `retracted_at`, `raised_in` and `retracted_in`.
        key: The field whose value groups the messages.
        queue: The name of the queue that alerts are sent to; see `from_env`.
        facts: The facts of an episode that an alert reports.

    Raises:
        StreamRefused: SQS does not allow the queue's name.
    """

    rule: Rule
    table: Table
    key: str
    queue: str
    facts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_queue_name(f"alerts in {self.table.name}", self.queue)
