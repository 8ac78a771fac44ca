"""PagerDuty: Events API v2, with the incident's id as `dedup_key`."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import dagster as dg

from dagster_tidemark.incidents.channels.channel import (
    Channel,
    Delivery,
    post,
    raise_for,
    require_secret,
    require_url,
    unsendable,
)
from dagster_tidemark.incidents.incident import MessageKind

_ACTIONS = {
    MessageKind.OPENED: "trigger",
    MessageKind.CHANGED: "trigger",
    MessageKind.ACKNOWLEDGED: "acknowledge",
    MessageKind.CLOSED: "resolve",
}
_MOST_OF_A_SUMMARY = 1024


@dataclass(frozen=True, kw_only=True)
class PagerDuty(Channel):
    """A PagerDuty service. An incident triggers one alert, which it acknowledges and resolves.

    Args:
        routing_key: The variable with the integration key of the service (Events API v2).
        severity: Severity of the alert.
        url: Address of the API; `https://events.eu.pagerduty.com` for accounts in Europe.

    Raises:
        ChannelRefused: the key is not given as a variable.
    """

    routing_key: dg.EnvVar = field(repr=False)
    severity: Literal["critical", "error", "warning", "info"] = "error"
    url: str = "https://events.pagerduty.com"

    def __post_init__(self) -> None:
        require_secret("PagerDuty", "routing_key", self.routing_key)
        require_url("PagerDuty", self.url)

    @property
    def kind(self) -> str:
        return "pagerduty"

    @property
    def secrets(self) -> tuple[dg.EnvVar | None, ...]:
        return (self.routing_key,)

    def problem(self) -> str:
        return super().problem() or unsendable(self.routing_key)

    def send(self, delivery: Delivery) -> str:
        incident, report = delivery.message.incident, delivery.report
        action = _ACTIONS[delivery.message.kind]
        event: dict[str, object] = {
            "routing_key": self.routing_key.get_value(""),
            "event_action": action,
            "dedup_key": incident.id,
        }
        if action == "trigger":
            event["payload"] = {
                "summary": report.title[:_MOST_OF_A_SUMMARY],
                "source": delivery.settings.code_location,
                "severity": self.severity,
                "timestamp": datetime.fromtimestamp(incident.opened_at, UTC).isoformat(),
                "component": incident.cause.subject,
                "group": ", ".join(incident.owners),
                "class": incident.cause.kind,
                "custom_details": {"message_id": delivery.message.id, "report": report.text},
            }
            event["client"] = "Tidemark"
            if report.link:
                event["client_url"] = report.link
                event["links"] = [{"href": report.link, "text": "Open in Dagster"}]
        body = json.dumps(event).encode()
        raise_for(post(f"{self.url.rstrip('/')}/v2/enqueue", body, {"Content-Type": "application/json"}))
        return incident.id
