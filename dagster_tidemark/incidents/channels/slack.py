"""Slack: one thread for each incident, by `chat.postMessage`."""

import json
from dataclasses import dataclass, field

import dagster as dg

from dagster_tidemark.incidents.channels.channel import (
    Channel,
    ChannelUnavailable,
    Delivery,
    MessageRefused,
    post,
    raise_for,
    require_secret,
    require_url,
)

_REFUSED = {"invalid_blocks", "invalid_arguments", "msg_too_long", "no_text", "message_limit_exceeded"}
"""Errors about the message itself. All others may end when the token, the channel or Slack is repaired."""
_MOST_OF_A_BLOCK = 2900  # Slack allows 3,000 characters


@dataclass(frozen=True, kw_only=True)
class Slack(Channel):
    """A Slack channel. Each incident is one thread: opened, changed, closed.

    The id of the message is in its metadata: event type `tidemark_incident`, member `message_id`.

    Args:
        token: The variable with a bot token (`xoxb-...`) that has the scope `chat:write`.
        channel: Name or id of a channel that the bot is in: `#data`, `C0123456789`.
        url: Address of the API.

    Raises:
        ChannelRefused: the token is not given as a variable.
    """

    token: dg.EnvVar = field(repr=False)
    channel: str
    url: str = "https://slack.com/api"

    def __post_init__(self) -> None:
        require_secret("Slack", "token", self.token)
        require_url("Slack", self.url)

    @property
    def kind(self) -> str:
        return f"slack {self.channel}"

    @property
    def secrets(self) -> tuple[dg.EnvVar | None, ...]:
        return (self.token,)

    def send(self, delivery: Delivery) -> str:
        headers = {
            "Authorization": f"Bearer {self.token.get_value('')}",
            "Content-Type": "application/json; charset=utf-8",
        }
        answer = post(f"{self.url.rstrip('/')}/chat.postMessage", json.dumps(self._body(delivery)).encode(), headers)
        raise_for(answer)
        try:
            said = json.loads(answer.body)
        except ValueError as error:
            raise ChannelUnavailable(f"expected JSON from Slack, found {answer.body[:80]!r}") from error
        if said.get("ok"):
            return delivery.thread or str(said.get("ts", ""))
        why = str(said.get("error"))
        if why in _REFUSED:
            raise MessageRefused(f"Slack refuses the message: {why}")
        raise ChannelUnavailable(
            f"Slack refuses: {why}", retry_after=answer.retry_after, is_busy=why in ("ratelimited", "rate_limited")
        )

    def _body(self, delivery: Delivery) -> dict[str, object]:
        report, message = delivery.report, delivery.message
        lines = [f"*{_escaped(name)}* {_escaped(value)}" for name, value in report.facts]
        if report.link:
            lines.append(f"<{report.link}|Open in Dagster>")
        body: dict[str, object] = {
            "channel": self.channel,
            "text": _escaped(report.title),
            "blocks": [
                {"type": "section", "text": {"type": "mrkdwn", "text": text[:_MOST_OF_A_BLOCK]}}
                for text in (f"*{_escaped(report.title)}*", "\n".join(lines))
            ],
            "metadata": {
                "event_type": "tidemark_incident",
                "event_payload": {"message_id": message.id, "incident_id": message.incident.id, "kind": message.kind},
            },
            "unfurl_links": False,
        }
        if delivery.thread:
            body["thread_ts"] = delivery.thread
        return body


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
