"""A check, its outcome, and running many at once: a part that hangs does not stop the others.

Belongs here: verdicts, time limits, and reading errors. Does not belong here: any question to a service.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.lakehouse.session import without_token
from dagster_tidemark.secret_values import secrets_in
from dagster_tidemark.settings import LOCAL_KEY, Settings

SECONDS = 90.0
"""Time limit of all checks. The first statements of a cold Spark server take half a minute on a small machine."""
CLOCK_SECONDS = 5.0
"""Largest accepted difference between two clocks. S3 gives its time in whole seconds."""
PRODUCTION_EXTRA = "pip install 'dagster-tidemark[production]'"

Verdict = Literal["ok", "failed", "undecided"]

_OF_SERVICES = {
    "botocore", "dagster", "dagster_postgres", "grpc", "psycopg2", "pyiceberg", "pyspark", "requests", "sqlalchemy",
}  # fmt: skip
"""Packages whose exceptions are the answer of a service, or its silence."""
_DENIED = ("AccessDenied", "AccessDeniedException", "AllAccessDisabled", "AuthorizationError", "Forbidden", "403")
_LONGEST_LINE = 300
_SHORTEST_SECRET = 6
"""A shorter password is also a part of other words."""
_NAMED_BY_AWS = re.compile(r"not authorized to perform: ([a-z0-9]+:\w+)")
_NAMED_BY_ARROW = re.compile(r"ACCESS_DENIED during (\w+) operation")


class CheckFailed(Exception):
    """A check failed.

    Args:
        said: The finding.
        remedy: The remedy.
    """

    def __init__(self, said: str, remedy: str) -> None:
        super().__init__(said)
        self.said, self.remedy = said, remedy


@dataclass(frozen=True)
class Check:
    """A question to one part.

    Args:
        name: The part.
        ask: Returns the finding. Raises `CheckFailed`, or any error of the part.
        remedy: The remedy if the part does not answer.
    """

    name: str
    ask: Callable[[], str]
    remedy: str


@dataclass(frozen=True)
class CheckOutcome:
    """Verdict, finding and remedy of a check."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""
    seconds: float = 0.0


def outcomes(checks: Iterable[Check], seconds: float = SECONDS, secrets: Iterable[str] = ()) -> list[CheckOutcome]:
    """Run all checks at the same time. Return their outcomes in the same order.

    A check that has not answered after `seconds` is undecided. Its thread stays behind and does not keep the process
    from ending.

    Args:
        secrets: Texts that no outcome shows.
    """
    running = [(check, *_started(check, secrets)) for check in checks]
    deadline = time.monotonic() + seconds
    found = []
    for check, thread, answer in running:
        thread.join(max(0.0, deadline - time.monotonic()))
        silent = CheckOutcome(check.name, "undecided", f"no answer within {seconds:g} s", check.remedy, seconds)
        found.append(answer[0] if answer else silent)
    return found


def _started(check: Check, secrets: Iterable[str]) -> tuple[threading.Thread, list[CheckOutcome]]:
    answer: list[CheckOutcome] = []
    thread = threading.Thread(
        target=lambda: answer.append(outcome(check, secrets)), name=f"doctor {check.name}", daemon=True
    )
    thread.start()
    return thread, answer


def outcome(check: Check, secrets: Iterable[str] = ()) -> CheckOutcome:
    """Run one check without a time limit. The outcome shows none of these secrets."""
    begun = time.monotonic()
    try:
        verdict, said, remedy = _verdict(check)
    except Exception as error:  # a check must not stop the others
        verdict, said, remedy = "undecided", f"{type(error).__name__}: {error}", check.remedy
    return CheckOutcome(check.name, verdict, one_line(said, secrets), remedy, round(time.monotonic() - begun, 1))


def _verdict(check: Check) -> tuple[Verdict, str, str]:
    try:
        return "ok", check.ask(), ""
    except CheckFailed as error:
        return "failed", error.said, error.remedy
    except ModuleNotFoundError as error:
        return "failed", f"the package {error.name} is not installed", PRODUCTION_EXTRA
    except Exception as error:  # services have many error classes
        said = str(_first_cause(error) if _package(type(error)) == "dagster" else error) or type(error).__name__
        if permission := permission_in(said):
            return (
                "failed",
                f"the permission {permission} is missing",
                f"add {permission} to the role (the page Production has the policies)",
            )
        is_answer = isinstance(error, TidemarkError | OSError)
        is_answer = is_answer or any(_package(each) in _OF_SERVICES for each in type(error).__mro__)
        return ("failed" if is_answer else "undecided"), said, check.remedy


def _first_cause(error: BaseException) -> BaseException:
    """Return the first cause: Dagster reports a lost database as "too many retries"."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _package(of: type) -> str:
    return of.__module__.partition(".")[0]


@contextmanager
def needing(permission: str, on: str) -> Iterator[None]:
    """Name the permission that an AWS call needs if the call is denied.

    Args:
        permission: The action, such as s3:GetObject.
        on: The bucket or queue.

    Raises:
        CheckFailed: the call was denied.
    """
    try:
        yield
    except (ClientError, BotoCoreError, TidemarkError) as error:
        cause = error if isinstance(error, ClientError) else error.__cause__
        if is_denied(cause):
            raise missing(permission_in(str(cause)) or permission, on) from error
        raise


def missing(permission: str, on: str) -> CheckFailed:
    """Return the failure of a check that lacks a permission."""
    return CheckFailed(
        f"the permission {permission} on {on} is missing", "add it to the role (the page Production has the policies)"
    )


def is_denied(error: BaseException | None) -> bool:
    """Return True if AWS refused a call because a permission is missing."""
    return isinstance(error, ClientError) and str(error.response.get("Error", {}).get("Code", "")).endswith(_DENIED)


def permission_in(text: str) -> str:
    """Return the permission that an error of a service names as missing; empty if it names none."""
    if found := _NAMED_BY_AWS.search(text):
        return found[1]
    if found := _NAMED_BY_ARROW.search(text):
        operation = {"HeadObject": "GetObject", "ListObjectsV2": "ListBucket"}.get(found[1], found[1])
        return f"s3:{operation}"
    return ""


def one_line(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text as one line without the token of a connection, and without these secrets."""
    text = without_token(text)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    said = " ".join(text.split("\n\n")[0].split())
    return said if len(said) <= _LONGEST_LINE else f"{said[: _LONGEST_LINE - 3]}..."


def secrets_of(settings: Settings) -> frozenset[str]:
    """Return the secrets in these settings, which clients quote in some errors."""
    found = {each for name, value in settings.exports().items() for each in secrets_in(name, value)}
    return frozenset(each for each in found if len(each) >= _SHORTEST_SECRET and each != LOCAL_KEY)


@contextmanager
def same_clock(part: str) -> Iterator[Callable[[datetime], str]]:
    """Compare the clock of a part with that of this machine.

    Yields:
        A function that takes the part's time, which was read within the block, and returns the difference in words.
    """
    begun = datetime.now(UTC)

    def compared(theirs: datetime) -> str:
        # The part has read its clock at some time between begin and end.
        ended = datetime.now(UTC)
        apart = max((begun - theirs).total_seconds(), (theirs - ended).total_seconds(), 0.0)
        if apart > CLOCK_SECONDS:
            raise CheckFailed(
                f"the clocks of {part} and of this machine differ by {apart:.0f} s",
                "synchronize both clocks (NTP): times of arrival are compared with times of runs",
            )
        return f"clocks differ by {apart:.0f} s" if apart >= 1 else "same clock"

    yield compared


def end_now(code: int) -> None:
    """End the process at once, if a check still hangs: Python would wait for its connections at exit."""
    if any(thread.name.startswith("doctor ") for thread in threading.enumerate()):
        os._exit(code)
