"""The channels against servers that speak their protocols: what is on the wire, and what each answer means."""

import base64
import hashlib
import hmac
import json
import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_string
from email.policy import default
from typing import Any

import dagster as dg
import pytest
from jsonschema import validate

from dagster_tidemark import ContractLog, Email, PagerDuty, QuietHours, Slack, Webhook
from dagster_tidemark.incidents.channels.channel import (
    Channel,
    ChannelUnavailable,
    Delivery,
    FakeChannel,
    MessageRefused,
    distinct,
)
from dagster_tidemark.incidents.incident import (
    CauseKind,
    Incident,
    IncidentMessage,
    LateAsset,
    MessageKind,
    RootCause,
)
from dagster_tidemark.incidents.routing import ChannelRefused
from dagster_tidemark.settings import Settings, load_settings
from tests import pages
from tests.tidemark.incidents.servers import HttpServer, SmtpServer, http_server, smtp_server

NOW = 1_790_000_000.0
SECRET = "s3cr3t-value"
CAUSE = RootCause(
    CauseKind.FAILING,
    "core/orders",
    "core/orders fails: <b> & 3 failed attempts",
    NOW - 400,
    "core/orders",
    "see its log",
    True,
    NOW,
)
INCIDENT = Incident(
    "i-0123456789",
    CAUSE,
    NOW - 300,
    (
        LateAsset("core/orders", ("2026-10-05-07:00",), 1, NOW - 700, NOW - 400, True, ("team:core",), "core"),
        LateAsset("marts/sales", ("2026-10-05",), 4, NOW - 700, NOW + 900, False, ("team:sales",), "marts"),
    ),
)


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", SECRET)


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings()


def delivery(
    settings: Settings, kind: MessageKind = MessageKind.OPENED, thread: str = "", now: float = NOW
) -> Delivery:
    incident = replace(INCIDENT, closed_at=NOW) if kind is MessageKind.CLOSED else INCIDENT
    number = list(MessageKind).index(kind) + 1
    return Delivery(IncidentMessage(f"{INCIDENT.id}-{number}", kind, "any", NOW - 2, incident), thread, now, settings)


@pytest.fixture
def slack() -> Iterator[HttpServer]:
    with http_server((200, {}, json.dumps({"ok": True, "ts": "171.001", "channel": "C1"}))) as server:
        yield server


@pytest.fixture
def pagerduty() -> Iterator[HttpServer]:
    accepted = {"status": "success", "message": "Event processed", "dedup_key": INCIDENT.id}
    with http_server((202, {}, json.dumps(accepted))) as server:
        yield server


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    with smtp_server() as server:
        yield server


def test_slack_channel_sends_opening_and_closing_in_one_thread(slack: HttpServer, settings: Settings) -> None:
    channel = Slack(token=dg.EnvVar("A_SECRET"), channel="#data", url=slack.url)
    thread = channel.send(delivery(settings))
    assert thread == "171.001"
    assert channel.send(delivery(settings, MessageKind.CLOSED, thread)) == thread
    opened, closed = (post.json() for post in slack.posts)
    assert slack.posts[0].path == "/chat.postMessage"
    assert slack.posts[0].headers["authorization"] == f"Bearer {SECRET}" and SECRET not in json.dumps(opened)
    assert "thread_ts" not in opened and closed["thread_ts"] == thread
    text = opened["blocks"][1]["text"]["text"]
    assert "&lt;b&gt; &amp;" in text and "*late soon* marts/sales 2026-10-05 and 3 more" in text
    assert opened["metadata"]["event_payload"]["message_id"] == "i-0123456789-1"
    assert all(len(block["text"]["text"]) <= 3000 for post in (opened, closed) for block in post["blocks"])


def test_slack_channel_honours_the_rate_limit_and_distinguishes_error_answers(
    slack: HttpServer, settings: Settings
) -> None:
    channel = Slack(token=dg.EnvVar("A_SECRET"), channel="#data", url=slack.url)
    slack.answers = [
        (429, {"Retry-After": "30"}, json.dumps({"ok": False, "error": "ratelimited"})),
        (200, {}, json.dumps({"ok": False, "error": "invalid_auth"})),
        (200, {}, json.dumps({"ok": False, "error": "msg_too_long"})),
        (503, {}, "away"),
        (200, {}, "<html>"),
    ]
    with pytest.raises(ChannelUnavailable) as busy:
        channel.send(delivery(settings))
    assert busy.value.retry_after == 30 and busy.value.is_busy
    with pytest.raises(ChannelUnavailable, match="invalid_auth") as refused:
        channel.send(delivery(settings))
    assert not refused.value.is_busy, "a wrong token is a dead channel"
    with pytest.raises(MessageRefused, match="msg_too_long"):
        channel.send(delivery(settings))
    for said in ("503: away", "expected JSON"):
        with pytest.raises(ChannelUnavailable, match=said):
            channel.send(delivery(settings))


EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["routing_key", "event_action"],
    "properties": {
        "routing_key": {"type": "string", "minLength": 1},
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": {"type": "string", "maxLength": 255},
        "client": {"type": "string"},
        "client_url": {"type": "string"},
        "links": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["href"],
                "properties": {"href": {"type": "string"}, "text": {"type": "string"}},
            },
        },
        "payload": {
            "type": "object",
            "required": ["summary", "source", "severity"],
            "properties": {
                "summary": {"type": "string", "maxLength": 1024},
                "source": {"type": "string", "minLength": 1},
                "severity": {"enum": ["critical", "error", "warning", "info"]},
                "timestamp": {"type": "string"},
                "component": {"type": "string"},
                "group": {"type": "string"},
                "class": {"type": "string"},
                "custom_details": {"type": "object"},
            },
            "additionalProperties": False,
        },
    },
    "if": {"properties": {"event_action": {"const": "trigger"}}},
    "then": {"required": ["payload"]},
    "else": {"required": ["dedup_key"]},
    "additionalProperties": False,
}
"""The members of an event of PagerDuty's Events API v2, as its reference lists them."""


def test_pagerduty_channel_triggers_acknowledges_and_resolves_one_alert(
    pagerduty: HttpServer, settings: Settings
) -> None:
    channel = PagerDuty(routing_key=dg.EnvVar("A_SECRET"), url=pagerduty.url)
    for kind in MessageKind:
        channel.send(delivery(settings, kind))
    events = [post.json() for post in pagerduty.posts]
    assert [event["event_action"] for event in events] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert {event["dedup_key"] for event in events} == {INCIDENT.id}
    assert pagerduty.posts[0].path == "/v2/enqueue"
    for event in events:
        validate(event, EVENT)


def test_pagerduty_channel_distinguishes_a_refused_message_from_a_rate_limit(
    pagerduty: HttpServer, settings: Settings
) -> None:
    channel = PagerDuty(routing_key=dg.EnvVar("A_SECRET"), url=pagerduty.url)
    wrong = {"status": "invalid event", "message": "Event object is invalid", "errors": ["'routing_key' is wrong"]}
    pagerduty.answers = [(400, {}, json.dumps(wrong)), (429, {}, ""), (500, {}, "")]
    with pytest.raises(MessageRefused, match="routing_key"):
        channel.send(delivery(settings))
    with pytest.raises(ChannelUnavailable) as busy:
        channel.send(delivery(settings))
    assert busy.value.is_busy and busy.value.retry_after is None
    with pytest.raises(ChannelUnavailable, match="500"):
        channel.send(delivery(settings))


@pytest.mark.parametrize("key", [SECRET, "whsec_" + base64.b64encode(b"binary \x00 key").decode()])
def test_webhook_channel_signs_requests_as_standard_webhooks(
    key: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", key)
    with http_server((204, {}, "")) as server:
        Webhook(url=f"{server.url}/hooks/1", secret=dg.EnvVar("A_SECRET")).send(delivery(settings))
    (post,) = server.posts
    id_, at, said = (post.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    secret = b"binary \x00 key" if key.startswith("whsec_") else key.encode()
    signed = hmac.new(secret, b".".join([id_.encode(), at.encode(), post.body]), hashlib.sha256).digest()
    assert said == "v1," + base64.b64encode(signed).decode()
    document = post.json()
    assert (document["id"], document["kind"]) == (id_, "opened") and document["incident"]["id"] == INCIDENT.id
    assert document["incident"]["assets"][0]["owners"] == ["team:core"]


def test_webhook_receiver_of_the_docs_accepts_only_signed_requests(settings: Settings) -> None:
    (code,) = (block for block in pages.blocks(pages.page("alerts.md"), "python") if "is_authentic" in block)
    page: dict[str, Any] = {}
    exec(compile(code, "docs/alerts.md", "exec", dont_inherit=True), page)
    with http_server((200, {}, "")) as server:
        Webhook(url=server.url, secret=dg.EnvVar("A_SECRET")).send(delivery(settings))
    (post,) = server.posts
    assert page["is_authentic"](post.headers, post.body, SECRET)
    assert not page["is_authentic"](post.headers, post.body + b" ", SECRET)


def test_webhook_channel_follows_no_redirect_and_reveals_no_secret(settings: Settings) -> None:
    with http_server((302, {"Location": "http://127.0.0.1:1/"}, f"go away, {SECRET}")) as server:
        channel = Webhook(url=server.url, secret=dg.EnvVar("A_SECRET"))
        with pytest.raises(ChannelUnavailable, match="302") as error:
            channel.send(delivery(settings))
    assert SECRET not in channel.redacted(str(error.value)) and SECRET not in repr(channel)
    assert len(server.posts) == 1


def test_email_that_one_of_two_receivers_refuses_is_not_sent(smtp: SmtpServer, settings: Settings) -> None:
    to = ["ada@acme.test", "bob@acme.test"]
    channel = Email(host="127.0.0.1", port=smtp.port, security="none", to=to, sender="alerts@acme.test")
    smtp.refuse_to = {"bob@acme.test": "451 try again later"}  # as servers do that delay unknown senders
    with pytest.raises(ChannelUnavailable, match=r"bob@acme\.test: 451"):
        channel.send(delivery(settings))
    smtp.refuse_to |= {"ada@acme.test": "550 no such user"}
    with pytest.raises(ChannelUnavailable, match=r"ada@acme\.test: 550 no such user; bob@acme\.test: 451"):
        channel.send(delivery(settings))
    smtp.refuse_to.pop("bob@acme.test")
    with pytest.raises(MessageRefused, match=r"ada@acme\.test: 550"):
        channel.send(delivery(settings))
    assert len(smtp.mails) == 2, "the other receiver got it each time"


def test_email_has_a_subject_in_one_line(smtp: SmtpServer, settings: Settings) -> None:
    channel = Email(host="127.0.0.1", port=smtp.port, security="none", to=["ada@acme.test"], sender="a@acme.test")
    given = delivery(settings)
    cause = replace(CAUSE, said="core/orders is set aside: expected a day,\r\nfound\r'noon'")
    incident = replace(given.message.incident, cause=cause)
    channel.send(replace(given, message=replace(given.message, incident=incident)))
    (mail,) = smtp.mails
    assert "expected a day, found 'noon'" in message_from_string(mail, policy=default)["Subject"]


def test_email_channel_sends_an_incident_as_one_thread(smtp: SmtpServer, settings: Settings) -> None:
    channel = Email(
        host="127.0.0.1",
        port=smtp.port,
        security="none",
        to=["ada@acme.test", "team@acme.test"],
        sender="Tidemark <alerts@acme.test>",
        username=dg.EnvVar("A_SECRET"),
        password=dg.EnvVar("A_SECRET"),
    )
    thread = channel.send(delivery(settings))
    channel.send(delivery(settings, MessageKind.CLOSED, thread, now=NOW + 3600))
    opened, closed = (message_from_string(mail, policy=default) for mail in smtp.mails)
    assert opened["Message-ID"] == "<i-0123456789-1@acme.test>" and closed["In-Reply-To"] == opened["Message-ID"]
    assert opened["Subject"].startswith("[Tidemark] core/orders is late, marts/sales will be late: ")
    text = opened.get_content()
    for part in ("core/orders", "due ", "owners: team:core, team:sales", "data as of", "to do: see its log"):
        assert part in text
    assert "sent late: this message was written 1 h" in closed.get_content()
    assert SECRET not in "".join(smtp.mails) and len(smtp.logins) == 2


@pytest.mark.parametrize(
    ("command", "answer", "error"),
    [
        ("RCPT", "550 no such user", MessageRefused),
        ("RCPT", "450 try later", ChannelUnavailable),
        ("DATA", "552 too large", MessageRefused),
        ("DATA", "554 5.6.0 content rejected", MessageRefused),
        ("DATA", "451 try again", ChannelUnavailable),
        ("AUTH", "535 wrong password", ChannelUnavailable),
        # A code is about the mail only after the session began.
        ("EHLO", "554 no service for you", ChannelUnavailable),
        ("MAIL", "530 5.7.0 must issue STARTTLS first", ChannelUnavailable),
        ("MAIL", "535 5.7.8 login needed", ChannelUnavailable),
        ("MAIL", "452 out of storage", ChannelUnavailable),
        ("MAIL", "552 message size exceeds limit", MessageRefused),
    ],
)
def test_email_channel_distinguishes_refused_messages_from_an_unavailable_server(
    smtp: SmtpServer, settings: Settings, command: str, answer: str, error: type[Exception]
) -> None:
    smtp.refuse[command] = answer
    if command == "EHLO":
        smtp.refuse["HELO"] = answer
    secret = dg.EnvVar("A_SECRET")
    channel = Email(
        host="127.0.0.1",
        port=smtp.port,
        security="none",
        to=["ada@acme.test"],
        sender="a@acme.test",
        username=secret,
        password=secret,
    )
    with pytest.raises(error, match=answer[:3]):
        channel.send(delivery(settings))


def test_every_channel_is_unavailable_when_its_server_is_down(settings: Settings) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, secret = f"http://127.0.0.1:{port}", dg.EnvVar("A_SECRET")
    channels: list[Channel] = [
        Slack(token=secret, channel="#data", url=url),
        PagerDuty(routing_key=secret, url=url),
        Webhook(url=url, secret=secret),
        Email(host="127.0.0.1", port=port, security="none", to=["a@b.test"], sender="a@b.test"),
    ]
    for channel in channels:
        with pytest.raises(ChannelUnavailable):
            channel.send(delivery(settings))


def test_log_channel_writes_one_record_per_message(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dagster_tidemark.incidents"):
        ContractLog().send(delivery(settings))
        ContractLog().send(delivery(settings, MessageKind.CLOSED))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "core/orders" in caplog.records[0].getMessage()


def test_invalid_channel_declarations_are_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = dg.EnvVar("A_SECRET")
    for declare, said in (
        (lambda: Slack(token="xoxb-1", channel="#data"), "not in the code"),  # type: ignore[arg-type]
        (lambda: Webhook(url="ftp://x", secret=secret), "begins with https"),
        (lambda: Email(host="h", to="ada@acme.test", sender="s"), "expected a list"),
        (lambda: Email(host="h", to=["a@b.c"], sender="s", username=secret), "both username and password"),
        (
            lambda: Email(host="h", to=["a@b.c"], sender="s", username=secret, password=secret, security="none"),
            "sends the password to h without TLS",
        ),
        (lambda: QuietHours("25:00", "07:00"), "write times as 22:00"),
        (lambda: QuietHours("22:00+02:00", "07:00"), "it has an offset"),
        (lambda: QuietHours("22:00", "07:00", timezone="Mars/North"), "zone"),
        (lambda: QuietHours("22:00", "07:00", days=("Monday",)), "unknown day"),
        (lambda: distinct([FakeChannel(), FakeChannel()]), "two channels are named 'fake'"),
        (lambda: distinct(["slack"]), "expected channels"),  # type: ignore[list-item]
    ):
        with pytest.raises(ChannelRefused, match=said):
            declare()
    monkeypatch.delenv("A_SECRET")
    assert Slack(token=secret, channel="#data").problem() == "A_SECRET is not set; set it for the code server"
