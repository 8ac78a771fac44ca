"""The loop of the sample feed: `tidemark feed`.

Belongs here: writing planned files to the landing bucket, once or until the feed is stopped. Does not belong
here: the choice of files (`pipelines.demo.plan`).
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from dagster_tidemark import Settings

from pipelines.demo.plan import FileToWrite, live_file, mishaps, plan_between, plan_hours
from pipelines.demo.post import Post

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

DEFAULT_HOURS = 73
"""Three days and the current hour, so that at any time of day three days with orders have ended. The demand model needs
two days that are each followed by another."""
DEFAULT_RATE = 6.0
MAX_RATE = 600.0
_THREADS = 8
_LONGEST_WAIT_SECONDS = 30.0
_WORTH_TELLING = 100

Report = Callable[[str], None]
Clock = Callable[[], datetime]


class LandingUnreachable(Exception):
    """The landing bucket cannot be listed or written. A retry helps when the bucket is available."""

    def __init__(self, bucket: str, endpoint: str | None, reason: object) -> None:
        super().__init__(
            f"cannot write to bucket {bucket!r} at {endpoint or 'AWS'} ({reason}); "
            "is it running? See AWS_ENDPOINT_URL and TIDEMARK_LANDING_BUCKET"
        )


@dataclass(frozen=True)
class Written:
    """Numbers of planned files that were put, and that were already present with the same content."""

    put: int
    present: int


def run_feed(
    settings: Settings,
    *,
    start: datetime | None = None,
    hours: int = DEFAULT_HOURS,
    rate: float = DEFAULT_RATE,
    once: bool = False,
    seed: int = 0,
    post: Post | None = None,
    report: Report | None = None,
    clock: Clock | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Write the grocer's files for some hours and, unless `once`, keep adding files until SIGTERM or SIGINT.

    Args:
        settings: Settings with the bucket and its endpoint.
        start: The first hour, UTC if it has no offset. By default the current hour is the last one.
        hours: Number of hours to write.
        rate: Files per minute afterwards, into the current hour.
        once: Write all files of the hours, including future ones, and return. No file is damaged.
        seed: The world's seed; the same seed gives the same objects.
        post: Sender of messages; by default no messages are sent.
        report: Function that receives each line of progress; by default `print`.
        clock: Function that returns the current time in UTC.
        stop: Event that ends the feed when it is set; the two signals set it too.

    Raises:
        ValueError: `rate` or `hours` is out of range.
        LandingUnreachable: with `once` only; otherwise the error is reported and the write is retried.
    """
    if not 0 < rate <= MAX_RATE:
        raise ValueError(f"rate: expected more than 0 and at most {MAX_RATE:g} files per minute, found {rate}")
    if hours < 1:
        raise ValueError(f"hours: expected at least 1, found {hours}")
    report, clock = report or partial(print, flush=True), clock or partial(datetime.now, UTC)
    landing, now = Landing.connect(settings), clock()
    first = _as_utc(start) if start else _default_start(settings, now, hours)
    if once:
        report(_summary(landing.write(plan_hours(first, hours, seed))))
        return

    def due(since: datetime | None, until: datetime) -> list[FileToWrite]:
        if since is None:
            files = plan_hours(first, hours, seed) + mishaps(first, hours, seed)
            return [file for file in files if file.due <= until]
        return plan_between(since, until, seed)

    with _stopped_by_signals(stop or threading.Event()) as stopped:
        _keep_writing(landing, due, rate=rate, seed=seed, post=post, report=report, clock=clock, stop=stopped)
    report("feed: stopped")


def first_round(settings: Settings) -> str:
    """Write the files that are due by now, once.

    Returns:
        The line that reports the number of files written.
    """
    lines: list[str] = []
    stop = threading.Event()

    def after_first_round(line: str) -> None:
        lines.append(line)
        stop.set()

    # In a thread, because the feed would install its signal handlers in the main thread.
    with ThreadPoolExecutor(1) as pool:
        filled = pool.submit(run_feed, settings, report=after_first_round, stop=stop)
        try:
            filled.result()
        finally:
            stop.set()
    return lines[0]


class Landing:
    """The landing bucket, for listing and writing the feed's files."""

    def __init__(self, client: S3Client, bucket: str, endpoint: str | None = None) -> None:
        self._client = client
        self._bucket = bucket
        self._endpoint = endpoint

    @classmethod
    def connect(cls, settings: Settings) -> Landing:
        """Return a client of the settings' bucket, without sending a request."""
        client = boto3.client(
            "s3",
            **settings.aws_options(),
            config=Config(max_pool_connections=_THREADS, connect_timeout=5, retries={"max_attempts": 3}),
        )
        return cls(client, settings.landing_bucket, settings.aws_endpoint_url)

    def write(self, files: Sequence[FileToWrite]) -> Written:
        """Put the files that are missing or have other content, corrections last.

        Raises:
            LandingUnreachable: the bucket cannot be listed or written.
        """
        try:
            present = self._etags({_listed_prefix(file.key) for file in files})
            put = 0
            with ThreadPoolExecutor(_THREADS) as pool:
                for wave in (False, True):
                    chosen = [file for file in files if file.is_correction is wave]
                    put += sum(pool.map(lambda file: self._put(file, present.get(file.key)), chosen))
        except (BotoCoreError, ClientError) as error:
            raise LandingUnreachable(self._bucket, self._endpoint, error) from error
        return Written(put=put, present=len(files) - put)

    def _etags(self, prefixes: Iterable[str]) -> dict[str, str]:
        pages = self._client.get_paginator("list_objects_v2")
        return {
            entry["Key"]: entry["ETag"].strip('"')
            for prefix in sorted(prefixes)
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix)
            for entry in page.get("Contents", [])
        }

    def _put(self, file: FileToWrite, present: str | None) -> bool:
        body = file.content()
        # The ETag of an object put in one piece is the MD5 of its content.
        if present == hashlib.md5(body, usedforsecurity=False).hexdigest():
            return False
        self._client.put_object(Bucket=self._bucket, Key=file.key, Body=body)
        return True


def _keep_writing(
    landing: Landing,
    due: Callable[[datetime | None, datetime], list[FileToWrite]],
    *,
    rate: float,
    seed: int,
    post: Post | None,
    report: Report,
    clock: Clock,
    stop: threading.Event,
) -> None:
    written_until: datetime | None = None
    wait = 0.0
    while not stop.wait(wait):
        now = clock()
        files = due(written_until, now)
        moment = [] if written_until is None else [live_file(now, seed)]
        try:
            written = landing.write([*files, *moment])
        except LandingUnreachable as error:
            wait = min(max(1.0, wait * 2), _LONGEST_WAIT_SECONDS)
            report(f"feed: {error}; next try in {wait:g} s")
            continue
        if post is not None:
            _send(post, report, now)
        if files:
            report(_summary(written))
        if not moment:
            report(f"feed: adding {rate:g} files a minute to the current hour")
        # Files stay due until they are written, so `written_until` moves only after success.
        wait, written_until = (60.0 / rate if moment else 0.0), now


def _send(post: Post, report: Report, now: datetime) -> None:
    try:
        sent = post.send_due(now)
    except (BotoCoreError, ClientError) as error:
        report(f"feed: messages wait, because the queues do not answer: {error}")
        return
    if sent > _WORTH_TELLING:
        report(f"feed: {sent} messages sent")


def _summary(written: Written) -> str:
    return f"feed: {written.put} files written, {written.present} already present"


def _default_start(settings: Settings, now: datetime, hours: int) -> datetime:
    opened = datetime(settings.start_date.year, settings.start_date.month, settings.start_date.day, tzinfo=UTC)
    return max(now - timedelta(hours=hours - 1), opened)


def _as_utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _listed_prefix(key: str) -> str:
    """Return the prefix of a key up to the day, so that one listing covers a day's hours."""
    feed, _, rest = key.partition("/")
    return f"{feed}/{rest.partition('/')[0]}"


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[threading.Event]:
    """Set `stop` on SIGTERM or SIGINT, and restore the previous handlers afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may handle signals: the caller sets the event
        return
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
