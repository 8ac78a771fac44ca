"""From the breach to the message, on real processes: daemon, code server, Spark, cloud and PostgreSQL.

Twenty files are missing, each due at a known second. Slack's protocol is spoken by a local server, whose first answer
asks for a pause; the queue `contract-alerts` is a queue of the platform's cloud.
"""

import json
import os
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from tests.proof.alert_location import SOURCES, due_at, name
from tests.proof.bare_platform import bare_platform
from tests.proof.conftest import Report
from tests.tidemark.incidents.servers import http_server

SECONDS_TO_START = 240.0
"""Until the first file is due: the platform starts, and its sensors have looked."""
P95_SECONDS = 30.0


def test_a_message_leaves_within_thirty_seconds_of_the_breach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    jars = Path(os.environ.get("TIDEMARK_JARS_DIR") or ".tidemark/jars").absolute()
    with http_server((200, {}, '{"ok": true, "ts": "1.0"}')) as slack:
        slack.answers.append((429, {"Retry-After": "2"}, '{"ok": false, "error": "ratelimited"}'))
        monkeypatch.setenv("ALERT_TOKEN", "xoxb-0")
        monkeypatch.setenv("ALERT_SLACK_URL", slack.url)
        begin = round(time.time() + SECONDS_TO_START)
        monkeypatch.setenv("ALERT_BEGIN", str(begin))
        due = {name(number): due_at(number, begin) for number in range(SOURCES)}
        with bare_platform(tmp_path, jars, module="tests.proof.alert_location") as platform:
            queue = platform.aws("sqs").create_queue(QueueName="contract-alerts")["QueueUrl"]
            began, seen, taken = time.time(), 0, dict[str, float]()
            while time.time() < max(due.values()) + 2 * P95_SECONDS and len(taken) < len(due):
                time.sleep(0.1)
                for post in slack.posts[seen:]:
                    seen += 1
                    body = post.json()
                    if seen > 1 and body["metadata"]["event_payload"]["kind"] == "opened":  # the first is refused
                        source = next(key for key in due if key in body["text"])
                        taken.setdefault(source, time.time())
            queued = _documents(platform.aws("sqs"), queue, len(due))
        lags = sorted(at - due[source] for source, at in taken.items())
        figures = {
            "files missing": len(due),
            "messages by Slack's protocol": len(taken),
            "messages in the queue": len(queued),
            "seconds from the start to the first due time": round(min(due.values()) - began),
            "from breach to message, s": [round(lag, 1) for lag in lags],
            "p95, s": round(quantiles(lags, n=20)[-1], 1) if len(lags) > 1 else None,
        }
        report("alert-latency", figures)
    assert set(taken) == set(due), "a file that is missing has no message"
    assert set(queued) == set(due) and all(lag >= 0 for lag in lags)
    assert quantiles(lags, n=20)[-1] <= P95_SECONDS


def _documents(sqs: Any, url: str, count: int) -> set[str]:
    """Return the sources at fault of the opening messages in the queue."""
    found, until = set[str](), time.time() + 30
    while len(found) < count and time.time() < until:
        got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        for message in got.get("Messages", ()):
            document = json.loads(message["Body"])
            if document["kind"] == "opened":
                found.add(document["incident"]["cause"]["subject"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found
