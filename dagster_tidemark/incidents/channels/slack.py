"""Slack: one thread for each incident, by `chat.postMessage`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from dagster_tidemark.incidents.channels.channel import (
    Channel,
    ChannelUnavailable,
    Delivery,
    HttpAnswer,
    MessageRefused,
    post,
    raise_for,
    require_secret,
    require_url,
    unsendable,
)

_REFUSED = {
    "invalid_arguments",
    "invalid_blocks",
    "invalid_blocks_format",
    "invalid_metadata_format",
    "invalid_metadata_schema",
    "metadata_too_large",
    "msg_blocks_too_long",
    "msg_too_long",
    "no_text",
}
"""Errors about the message itself. All others may end when the token, the channel or Slack is repaired."""
_OF_THE_THREAD = {
    "cannot_reply_to_message",
    "message_not_found",
    "restricted_action_non_threadable_channel",
    "restricted_action_thread_locked",
    "thread_not_found",
}
"""Errors about the thread: a person may have deleted or locked it. Then the incident begins a new one."""
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

    def problem(self) -> str:
        return super().problem() or unsendable(self.token)

    def send(self, delivery: Delivery) -> str:
        answer, said = self._posted(delivery, delivery.thread)
        thread = delivery.thread
        if thread and said.get("error") in _OF_THE_THREAD:
            thread = ""
            answer, said = self._posted(delivery, thread)
        if said.get("ok"):
            return thread or str(said.get("ts", ""))
        why = str(said.get("error"))
        if why in _REFUSED:
            raise MessageRefused(f"Slack refuses the message: {why}")
        raise ChannelUnavailable(
            f"Slack refuses: {why}", retry_after=answer.retry_after, is_busy=why in ("ratelimited", "rate_limited")
        )

    def _posted(self, delivery: Delivery, thread: str) -> tuple[HttpAnswer, Mapping[str, object]]:
        """Send a message to a thread, or as a new one. Return Slack's answer, which has a status of success."""
        headers = {
            "Authorization": f"Bearer {self.token.get_value('')}",
            "Content-Type": "application/json; charset=utf-8",
        }
        body = json.dumps(self._body(delivery, thread)).encode()
        answer = post(f"{self.url.rstrip('/')}/chat.postMessage", body, headers)
        raise_for(answer)
        try:
            said = json.loads(answer.body)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise ChannelUnavailable(f"expected JSON from Slack, found {answer.body[:80]!r}")
        return answer, said

    def _body(self, delivery: Delivery, thread: str) -> dict[str, object]:
        report, message = delivery.report, delivery.message
        facts = "\n".join(f"*{_escaped(name)}* {_escaped(value)}" for name, value in report.facts)
        # The link is a separate block, so that long facts do not cut it off.
        links = [f"<{report.link}|Open in Dagster>"] if report.link else []
        body: dict[str, object] = {
            "channel": self.channel,
            "text": _escaped(report.title),
            "blocks": [
                # `verbatim`: a name such as @here or #general in a text must not notify a channel.
                {"type": "section", "text": {"type": "mrkdwn", "text": _cut(text), "verbatim": True}}
                for text in (f"*{_escaped(report.title)}*", facts, *links)
            ],
            "metadata": {
                "event_type": "tidemark_incident",
                "event_payload": {"message_id": message.id, "incident_id": message.incident.id, "kind": message.kind},
            },
            "unfurl_links": False,
        }
        if thread:
            body["thread_ts"] = thread
        return body


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str) -> str:
    """Return a text that fits a block. No escape such as `&amp;` is cut in two."""
    if len(text) <= _MOST_OF_A_BLOCK:
        return text
    return re.sub(r"&[a-z]*\Z", "", text[:_MOST_OF_A_BLOCK]) + "..."
