"""Each verdict of a check, time limits, and the report, with parts that are functions."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from typer.testing import CliRunner

from dagster_tidemark import doctor, location
from dagster_tidemark.cli.app import app
from dagster_tidemark.doctor.checks import (
    Check,
    CheckFailed,
    needing,
    one_line,
    outcome,
    outcomes,
    permission_in,
    same_clock,
    secrets_of,
)
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.listing import BucketUnavailable


def denied(code: str = "AccessDenied", message: str = "Access Denied") -> ClientError:
    """The error of a call that a role does not permit."""
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetObject")


def _raising(error: BaseException) -> Any:
    def ask() -> str:
        raise error

    return ask


@pytest.mark.parametrize(
    ("error", "verdict", "found", "remedy"),
    [
        (CheckFailed("two clocks", "synchronize"), "failed", "two clocks", "synchronize"),
        (ModuleNotFoundError("no", name="psycopg2"), "failed", "psycopg2 is not installed", "[production]"),
        (EndpointConnectionError(endpoint_url="http://x"), "failed", "http://x", "start it"),
        (ConnectionRefusedError(111, "Connection refused"), "failed", "Connection refused", "start it"),
        (BucketUnavailable("bucket a cannot be listed"), "failed", "bucket a", "start it"),
        (
            OSError("ACCESS_DENIED during PutObject operation"),
            "failed",
            "s3:PutObject",
            "add s3:PutObject",
        ),
        (KeyError("at"), "undecided", "at", "start it"),
    ],
)
def test_the_verdict_follows_from_the_error(error: Exception, verdict: str, found: str, remedy: str) -> None:
    said = outcome(Check("part", _raising(error), "start it"))
    assert (said.check, said.verdict) == ("part", verdict)
    assert found in said.found and remedy in said.remedy


def test_a_denied_call_names_its_permission() -> None:
    for code in ("AccessDenied", "AccessDeniedException", "403"):
        with (
            pytest.raises(CheckFailed, match="s3:GetObject on acme is missing"),
            needing("s3:GetObject", "acme"),
        ):
            raise denied(code)
    with pytest.raises(CheckFailed, match="permission kms:Decrypt on acme"), needing("s3:GetObject", "acme"):
        raise denied(message="User: a is not authorized to perform: kms:Decrypt on resource: b")
    with pytest.raises(ClientError), needing("s3:GetObject", "acme"):
        raise denied("NoSuchBucket")
    caused = BucketUnavailable("it cannot be listed")
    caused.__cause__ = denied()
    with pytest.raises(CheckFailed, match="s3:ListBucket"), needing("s3:ListBucket", "acme"):
        raise caused
    assert permission_in("ACCESS_DENIED during HeadObject operation") == "s3:GetObject"
    assert permission_in("disk full") == ""


def test_a_part_that_hangs_does_not_stop_the_others() -> None:
    go_on = threading.Event()
    begun = time.monotonic()
    hanging = Check("hanging", lambda: str(go_on.wait(20)), "start it again")
    found = outcomes([hanging, Check("quick", lambda: "there", ""), hanging], seconds=0.3)
    assert [each.verdict for each in found] == ["undecided", "ok", "undecided"]
    assert found[0].found == "no answer within 0.3 s" and found[0].remedy == "start it again"
    assert time.monotonic() - begun < 5
    go_on.set()


def test_clocks_are_compared_within_the_time_of_the_call() -> None:
    with same_clock("S3") as compared:
        assert compared(datetime.now(UTC)) == "same clock"
        assert compared(datetime.now(UTC) - timedelta(seconds=3)) == "clocks differ by 3 s"
        for seconds in (-61, 61):
            with pytest.raises(CheckFailed, match="clocks of S3 and of this machine differ by 6"):
                compared(datetime.now(UTC) + timedelta(seconds=seconds))


def test_an_outcome_is_one_line_without_the_token() -> None:
    assert (
        one_line("lost sc://spark/;token=abc\nJVM stacktrace:\n\n at x") == "lost sc://spark/;token=*** JVM stacktrace:"
    )
    assert len(one_line("a" * 1000)) == 300


def test_an_outcome_shows_no_secret_not_even_the_begin_of_one() -> None:
    settings = Settings(
        catalog={"type": "rest", "uri": "https://c", "token": "hunter2hunter2"},
        warehouse="s3://lake/house",
        catalog_uri="",
        kafka_password="p%20w0rd",
    )
    secrets = secrets_of(settings)
    assert secrets >= {"hunter2hunter2", "p%20w0rd", "p w0rd"} and not [each for each in secrets if len(each) < 6]
    said = f"{'a' * 290} Bearer hunter2hunter2, p w0rd"
    [found] = outcomes([Check("catalog", _raising(OSError(said)), "start it")], secrets=secrets)
    assert "hunter" not in found.found and "w0rd" not in found.found


def test_a_code_location_that_hangs_while_it_is_read_does_not_stop_the_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(location, "streams", lambda _: go_on.wait(20))
    monkeypatch.setattr(doctor, "checks_of", lambda *_: [Check("a", lambda: "there", "")])
    monkeypatch.setattr("dagster_tidemark.doctor.checks.end_now", lambda code: None)
    shown = CliRunner().invoke(app, ["doctor", "--seconds", "1"])
    go_on.set()
    first, second = shown.stdout.splitlines()
    assert first.startswith("undecided code location: no answer within 1 s. Remedy: look for calls of services")
    assert (second, shown.exit_code) == ("ok        a: there", 1)


@pytest.mark.parametrize(("error", "code"), [(None, 0), (CheckFailed("broken", "mend it"), 1), (KeyError("x"), 1)])
def test_the_command_prints_a_line_for_each_check(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, code: int
) -> None:
    checks = [Check("a", lambda: "there", ""), Check("b", _raising(error) if error else lambda: "there", "mend it")]
    monkeypatch.setattr(doctor, "checks_of", lambda *_: checks)
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == code and shown.stdout.count("\n") == 2
    assert shown.stdout.startswith("ok        a: there\n")
    assert (code == 0) == ("Remedy: mend it" not in shown.stdout)
    as_json = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert [each["check"] for each in as_json] == ["a", "b"] and as_json[0]["verdict"] == "ok"
