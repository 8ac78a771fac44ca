"""What alerts on a stream are: the declaration, which costs a code location nothing to load.

Does not belong here: how they are raised and sent (`alert_reaction`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.streams.alert_identity import Episode
from dagster_tidemark.streams.stream_declaration import Workplace, require_queue_name
from dagster_tidemark.streams.timeline import Cuts

if TYPE_CHECKING:
    from dagster_tidemark.streams.alert_reaction import Alerts


class Rule(Cuts, Protocol):
    """What is alerted of. A pure function of what the messages of one key say."""

    name: str

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> Sequence[Episode]:
        """The episodes that are worth an alert, in their order.

        Args:
            said: The fields of each message, in the order of their time, one a time.
        """
        ...


@dataclass(frozen=True)
class Alerting:
    """Declares alerts on a stream: a `reaction`.

    Args:
        rule: What is alerted of.
        table: Has `alert_id`, `rule`, a column for the key, one for each of `facts`, `episode_started_at`,
            `raised_at`, `retracted_at`, `raised_in` and `retracted_in`.
        key: The field that says whose messages belong together.
        queue: The name of the queue that alerts are sent to; see `from_env`.
        facts: Fields of an episode that an alert tells.

    Raises:
        StreamRefused: no queue can have that name.
    """

    rule: Rule
    table: Table
    key: str
    queue: str
    facts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_queue_name(f"alerts in {self.table.name}", self.queue)

    def __call__(self, place: Workplace) -> Alerts:
        """The reaction, at work."""
        from dagster_tidemark.streams.alert_reaction import Alerts
        from dagster_tidemark.streams.transport import declared_queue

        return Alerts(self, place, lambda: declared_queue(self.queue, place.settings))
