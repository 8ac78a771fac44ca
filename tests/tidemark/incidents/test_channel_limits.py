"""Limits and odd answers of the services behind the channels, as their documentation states them.

Slack: 3,000 characters in a section, escapes of three characters, and errors of `chat.postMessage`. PagerDuty: a
summary of 1,024 characters and events of 512 KB. SQS: 256 KB. HTTP: `Retry-After` as a number or a date. SMTP: a reply
before `MAIL` is about the server, and one after the end of `DATA` changes nothing.
"""

import base64
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_string
from email.policy import default
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import boto3
import dagster as dg
import pytest
from botocore.exceptions import ClientError

from dagster_tidemark import ContractQueue, Email, PagerDuty, Slack, Webhook
from dagster_tidemark.incidents.channels.channel import (
    Channel,
    ChannelUnavailable,
    Delivery,
    FakeChannel,
    HttpAnswer,
    MessageRefused,
    post,
)
from dagster_tidemark.incidents.channels.webhook import described, document
from dagster_tidemark.incidents.incident import (
    CauseKind,
    Incident,
    IncidentMessage,
    LateAsset,
    MessageKind,
    RootCause,
)
from dagster_tidemark.incidents.sender import sent_by
from dagster_tidemark.settings import Settings, load_settings
from tests.tidemark.incidents.servers import HttpServer, SmtpServer, http_server, smtp_server

NOW = 1_790_000_000.0
SECRET = "xoxb-12345-secret"
TOKEN = dg.EnvVar("A_SECRET")
OK = (200, {}, json.dumps({"ok": True, "ts": "171.001"}))
HOSTILE = (
    "set aside: ValueError: <@U1> <!channel> @here & *bold* _x_\nfound 'ü€𐍈\u202e'\r\n\x00\x1b[31m\ud800 \u2028" * 40
)


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", SECRET)


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings().model_copy(update={"ui_url": "https://dagster.example/"})


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server(OK) as served:
        yield served


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    with smtp_server() as served:
        yield served


def delivery(settings: Settings, said: str = "it fails", thread: str = "", assets: int = 1) -> Delivery:
    cause = RootCause(CauseKind.SET_ASIDE, "core/orders", said, 0.0, "core/orders", "correct it")
    late = tuple(
        LateAsset(
            f"marts/table_{n:05}", ("2026-10-05|berlin",) * 3, 3, NOW, NOW - 60, True, ("team:data",) * 3, "marts"
        )
        for n in range(assets)
    )
    incident = Incident("i-0123456789", cause, NOW - 300, late)
    message = IncidentMessage("i-0123456789-1", MessageKind.OPENED, "any", NOW - 2, incident)
    return Delivery(message, thread, NOW, settings)


def slack(server: HttpServer) -> Slack:
    return Slack(token=TOKEN, channel="#data", url=server.url)


def mail(smtp: SmtpServer, **more: Any) -> Email:
    more = {"to": ["ada@acme.test"], "sender": "alerts@acme.test", "security": "none"} | more
    return Email(host="127.0.0.1", port=smtp.port, **more)


# HTTP.


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Retry-After": "120"}, 120),
        ({"retry-after": " 7 "}, 7),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:27:15 GMT"}, 45),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:29:00 GMT"}, 0),
        ({"Retry-After": "Wednesday, 21-Oct-26 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:27:00 GMT"}, 60),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "\u00b2"}, None),
        ({"Retry-After": "1e3"}, None),
    ],
)
def test_retry_after_is_a_number_or_a_date_by_the_clock_of_the_server(
    headers: dict[str, str], expected: float | None
) -> None:
    assert HttpAnswer(429, headers, "").retry_after == expected


def test_retry_after_date_without_a_date_header_counts_from_now() -> None:
    asked = HttpAnswer(503, {"Retry-After": formatdate(time.time() + 90, usegmt=True)}, "").retry_after
    assert asked is not None and 80 < asked <= 90


@pytest.mark.parametrize("status", [301, 303, 307, 308, 401, 403, 404, 408, 410, 429, 500, 502, 504])
def test_status_that_is_not_about_the_message_makes_the_channel_unavailable(
    server: HttpServer, settings: Settings, status: int
) -> None:
    server.usual = (status, {"Location": "http://127.0.0.1:1/elsewhere"}, "no")
    with pytest.raises(ChannelUnavailable, match=str(status)):
        Webhook(url=server.url, secret=TOKEN).send(delivery(settings))
    assert len(server.posts) == 1, "no redirect is followed"


@pytest.mark.parametrize("secret", [SECRET + "\n", SECRET + "\r\n", " " + SECRET, "xoxb two words", "xoxb\ttab"])
def test_secret_with_a_line_break_is_named_by_its_variable_and_never_shown(
    server: HttpServer, settings: Settings, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("A_SECRET", secret)
    url = f"{server.url}/T000/B000"
    monkeypatch.setenv("A_URL", url + secret)
    channels: list[Channel] = [
        slack(server),
        PagerDuty(routing_key=TOKEN, url=server.url),
        Webhook(url=dg.EnvVar("A_URL"), secret=TOKEN),
    ]
    for channel in channels:
        name = "A_URL" if isinstance(channel, Webhook) else "A_SECRET"
        assert channel.problem().startswith(f"{name} is not set to one word"), channel.label
        error = sent_by(channel, settings, NOW)
        assert name in error and secret.strip() not in error


@pytest.mark.parametrize(
    "url", ["hooks/T000/sekret", "file:///sekret", "http://[::1/sekret", "http://127.0.0.1/a sekret"]
)
def test_address_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ChannelUnavailable, match=r"expected an address") as error:
        post(url, b"", {"Authorization": "Bearer sekret\n"})
    assert "sekret" not in str(error.value)


def test_signing_key_that_is_not_base64_is_a_problem_of_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Webhook(url="https://hooks.example/1", secret=TOKEN)
    assert channel.problem() == "", "any text is a key"
    monkeypatch.setenv("A_SECRET", "whsec_" + base64.b64encode(b"key").decode())
    assert channel.problem() == ""
    for wrong in ("whsec_not base64", "whsec_a", "whsec_ü"):
        monkeypatch.setenv("A_SECRET", wrong)
        assert "A_SECRET is not set to whsec_ and Base64" in channel.problem()


def test_alert_test_reports_any_error_of_a_channel(settings: Settings) -> None:
    def _raises(_: Delivery) -> None:
        raise KeyError("a bug of a user's channel")

    assert sent_by(FakeChannel(before=_raises), settings, NOW) == 'KeyError: "a bug of a user\'s channel"'


# Slack.


@pytest.mark.parametrize("error", ["thread_not_found", "cannot_reply_to_message", "restricted_action_thread_locked"])
def test_slack_thread_that_a_person_deleted_or_locked_is_replaced_by_a_new_one(
    server: HttpServer, settings: Settings, error: str
) -> None:
    server.answers = [(200, {}, json.dumps({"ok": False, "error": error}))]
    assert slack(server).send(delivery(settings, thread="99.9")) == "171.001", "later messages go to the new thread"
    first, second = (each.json() for each in server.posts)
    assert first["thread_ts"] == "99.9" and "thread_ts" not in second
    assert first["metadata"] == second["metadata"]


def test_slack_error_about_a_thread_of_a_message_without_one_is_not_repeated(
    server: HttpServer, settings: Settings
) -> None:
    server.usual = (200, {}, json.dumps({"ok": False, "error": "thread_not_found"}))
    with pytest.raises(ChannelUnavailable, match="thread_not_found"):
        slack(server).send(delivery(settings))
    assert len(server.posts) == 1


@pytest.mark.parametrize(
    ("error", "means"),
    [
        ("msg_blocks_too_long", MessageRefused),
        ("metadata_too_large", MessageRefused),
        ("invalid_blocks_format", MessageRefused),
        ("channel_not_found", ChannelUnavailable),
        ("is_archived", ChannelUnavailable),
        ("not_in_channel", ChannelUnavailable),
        ("token_expired", ChannelUnavailable),
        ("internal_error", ChannelUnavailable),
        # The workspace has sent too many messages: a later attempt may succeed.
        ("message_limit_exceeded", ChannelUnavailable),
    ],
)
def test_slack_error_gives_a_message_up_only_if_it_is_about_the_message(
    server: HttpServer, settings: Settings, error: str, means: type[Exception]
) -> None:
    server.usual = (200, {}, json.dumps({"ok": False, "error": error}))
    with pytest.raises(means, match=error):
        slack(server).send(delivery(settings))


@pytest.mark.parametrize("body", ["null", "[]", '"ok"', "", "<html>502</html>", "true"])
def test_slack_answer_that_is_no_json_object_makes_the_channel_unavailable(
    server: HttpServer, settings: Settings, body: str
) -> None:
    server.usual = (200, {}, body)
    with pytest.raises(ChannelUnavailable, match="expected JSON from Slack"):
        slack(server).send(delivery(settings))


@pytest.mark.parametrize("said", [HOSTILE, "&" * 4_000, "<" * 580, "x" * 100_000])
@pytest.mark.parametrize("assets", [1, 40])
def test_slack_blocks_keep_their_limit_without_cut_escapes_and_keep_the_link(
    server: HttpServer, settings: Settings, said: str, assets: int
) -> None:
    slack(server).send(delivery(settings, said, assets=assets))
    blocks = [each["text"] for each in server.posts[0].json()["blocks"]]
    title, facts, link = (each["text"] for each in blocks)
    for text in (title, facts):
        assert len(text) <= 3_000
        assert not re.search(r"&(?!amp;|lt;|gt;)", text), "an escape is cut in two"
        assert not re.search("[<>\x00\x1b\u2028\u202e\ud800]", text)
    assert title.startswith("*") and title.endswith("*") and "\n" not in title, "bold in one line"
    assert link == "<https://dagster.example/assets/core/orders|Open in Dagster>"
    assert all(each["verbatim"] for each in blocks), "@here in a text notifies nobody"


# PagerDuty.


@pytest.mark.parametrize("said", [HOSTILE, "ü" * 700_000])
def test_pagerduty_event_keeps_its_limits(server: HttpServer, settings: Settings, said: str) -> None:
    server.usual = (202, {}, "{}")
    PagerDuty(routing_key=TOKEN, url=server.url).send(delivery(settings, said, assets=5_000))
    (sent,) = server.posts
    event = sent.json()
    assert len(sent.body) < 512 * 1024 and len(event["dedup_key"]) <= 255
    assert 0 < len(event["payload"]["summary"]) <= 1_024 and event["payload"]["summary"].isprintable()


# Webhook and queue.


def test_message_about_thousands_of_assets_fits_a_queue_and_counts_the_others(settings: Settings) -> None:
    given = delivery(settings, "ü" * 700, assets=5_000)
    found = document(given)
    assert len(json.dumps(found).encode()) < 262_144
    assert len(found["incident"]["assets"]) == 200 and found["incident"]["assets_left_out"] == 4_800
    everything = described(given.message.incident)
    assert len(everything["assets"]) == 5_000 and "assets_left_out" not in everything


def test_assets_that_are_still_late_are_described_first(settings: Settings) -> None:
    incident = delivery(settings, assets=300).message.incident
    recovered = tuple(replace(each, recovered_at=NOW) for each in incident.assets[:250])
    found = described(replace(incident, assets=(*recovered, *incident.assets[250:])), most_assets=50)
    assert {each["recovered_at"] for each in found["assets"]} == {None}


@pytest.mark.parametrize(
    ("code", "means"),
    [
        ("InvalidParameterValue", MessageRefused),
        ("AWS.SimpleQueueService.InvalidMessageContents", MessageRefused),
        ("AWS.SimpleQueueService.NonExistentQueue", ChannelUnavailable),
        ("RequestThrottled", ChannelUnavailable),
        ("AccessDenied", ChannelUnavailable),
    ],
)
def test_queue_channel_gives_up_only_messages_that_sqs_never_takes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, code: str, means: type[Exception]
) -> None:
    def _refuses(**_: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "SendMessage")

    client = SimpleNamespace(get_queue_url=lambda **_: {"QueueUrl": "q"}, send_message=_refuses)
    monkeypatch.setattr(boto3, "Session", lambda: SimpleNamespace(client=lambda *_, **__: client))
    with pytest.raises(means, match=re.escape(code)):
        ContractQueue().send(delivery(settings))


# E-mail.


@pytest.mark.parametrize("said", [HOSTILE, "ü" * 4_000, "Größe überschritten: 訂單 is late"])
def test_mail_with_any_text_has_a_subject_in_one_line(smtp: SmtpServer, settings: Settings, said: str) -> None:
    mail(smtp).send(delivery(settings, said))
    (sent,) = smtp.mails
    assert sent.isascii() and all(len(line) <= 998 for line in sent.split("\n"))
    subject = message_from_string(sent, policy=default)["Subject"]
    assert subject.isprintable() and ("Größe" in subject or "Gr" not in said)


@pytest.mark.parametrize("goodbye", ["421 shutting down", "500 unknown command", "554 go away"])
def test_mail_that_was_taken_is_sent_whatever_the_server_says_to_quit(
    smtp: SmtpServer, settings: Settings, goodbye: str
) -> None:
    smtp.refuse["QUIT"] = goodbye
    assert mail(smtp).send(delivery(settings)) == "<i-0123456789-1@acme.test>"
    assert len(smtp.mails) == 1


def test_smtp_server_that_greets_with_a_refusal_is_unavailable(smtp: SmtpServer, settings: Settings) -> None:
    smtp.greeting = "554 no SMTP service here"
    with pytest.raises(ChannelUnavailable, match="takes no mail: 554"):
        mail(smtp).send(delivery(settings))


def test_smtp_server_without_tls_gets_no_mail(smtp: SmtpServer, settings: Settings) -> None:
    with pytest.raises(ChannelUnavailable, match="STARTTLS"):
        mail(smtp, security="starttls").send(delivery(settings))
    assert not smtp.mails
