"""The log of the process that sends: one record for each message."""

import logging
from dataclasses import dataclass

from dagster_tidemark.incidents.channels.channel import Channel, Delivery
from dagster_tidemark.incidents.incident import MessageKind

logger = logging.getLogger("dagster_tidemark.incidents")


@dataclass(frozen=True, kw_only=True)
class ContractLog(Channel):
    """The logger `dagster_tidemark.incidents`: a warning for each message, at level INFO for a closed incident."""

    @property
    def kind(self) -> str:
        return "log"

    def send(self, delivery: Delivery) -> str:
        level = logging.INFO if delivery.message.kind is MessageKind.CLOSED else logging.WARNING
        logger.log(level, "%s", delivery.report.text.replace("\n", "\n  "), extra={"message_id": delivery.message.id})
        return delivery.message.incident.id
