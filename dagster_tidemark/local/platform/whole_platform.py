"""`tidemark up`: start the whole platform, watch it, and stop it.

Belongs here: the preconditions of a start, each with an error that names the setting; the order, the waits and their
messages on the console; the downloads of a first start. Does not belong here: how a part is started (its own module).
"""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from dagster_tidemark import location
from dagster_tidemark.environment import declared_variables
from dagster_tidemark.errors import Transient
from dagster_tidemark.local.dagster.home import end_unfinished_runs, opened_home
from dagster_tidemark.local.host import machine, process_tree
from dagster_tidemark.local.kafka_server import JARS as BROKER_JARS
from dagster_tidemark.local.platform.instance_lock import publish_environment, running
from dagster_tidemark.local.platform.services import all_services, log_file
from dagster_tidemark.local.platform.supervision import ServiceFailed, Supervisor
from dagster_tidemark.local.spark.class_archive import recording
from dagster_tidemark.local.spark.jars import KAFKA, LAKE, Report, fetch_jars
from dagster_tidemark.settings import Settings, refuse_undeclared_names
from dagster_tidemark.sources.kafka_errors import KafkaMissing
from dagster_tidemark.sources.listing import BucketUnavailable
from dagster_tidemark.streams.transport import create_missing

_SECONDS_BETWEEN_LOOKS = 3.0
_MB = 2**20
_FIRST_MB, _LATER_MB = 1_000, 300  # first: jars, Spark's class archive, logs and some tables; later: new data
_NAMED = {errno.EROFS: "it is read-only", errno.EACCES: "no permission", errno.ENOSPC: "the disk is full"}
_FOREIGN_ACCOUNT = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN")
"""Variables that would lead an AWS client away from the local cloud."""
SAMPLE = timedelta(days=3)
"""Longest time before now that a sample feed may write data for."""


class _Stopped(BaseException):
    """A signal asked the platform to stop."""


def run_platform(
    settings: Settings, *, with_feed: bool, verbose: bool, console: Console, with_kafka: bool = False
) -> None:
    """Start everything, print the UI's address, and stop everything on SIGINT, SIGTERM or SIGHUP.

    Raises:
        Transient, KafkaMissing: it could not be started; no process is left.
    """
    settings = settings.for_platform(with_kafka=with_kafka)
    require_machine()
    if with_kafka:
        require_kafka_client()
    require_folder(settings)
    has_sample = with_feed and location.has_sample_feed(settings)
    with _stopping_by_signal(), running(settings):
        settings = with_first_day(settings, has_sample=has_sample, now=datetime.now(UTC))
        supervisor = Supervisor(settings, all_services(settings))
        try:
            if supervisor.end_leftovers():
                console.print("ended the processes that an earlier `tidemark up` had left")
            with followed_logs(settings, list(supervisor.services)) if verbose else nullcontext():
                own_kafka = with_kafka and settings.own_kafka
                _start(settings, supervisor, with_feed=with_feed, own_kafka=own_kafka, console=console)
                with recording(settings) if settings.own_spark else nullcontext():
                    _watch(supervisor, settings, console)
        except _Stopped:
            console.print("stopping ...")
        finally:
            _ignore_signals()  # a second Ctrl-C must not leave processes running
            supervisor.stop()
    console.print("stopped, no process is left")


@contextmanager
def followed_logs(settings: Settings, names: Sequence[str]) -> Iterator[None]:
    """Print new lines of the services' logs until the end of the block."""
    logs = [str(log_file(settings, name)) for name in names]
    # With the mark, the next start ends it if this process is killed.
    marked = os.environ | {process_tree.MARK: str(settings.state_dir)}
    with subprocess.Popen(["tail", "-n", "0", "-F", *logs], env=marked, stderr=subprocess.DEVNULL) as tail:
        try:
            yield
        finally:
            tail.kill()  # it may have inherited that SIGTERM is ignored


def platform_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of all processes that the platform starts."""
    inherited = dict(os.environ)
    if settings.own_cloud:
        inherited = {name: value for name, value in inherited.items() if name not in _FOREIGN_ACCOUNT}
    # The command may be started as .venv/bin/tidemark, without an activated environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)])
    # Arrow's own allocator keeps 70 MB that the small batches of a shift have freed.
    allocator = {"ARROW_DEFAULT_MEMORY_POOL": inherited.get("ARROW_DEFAULT_MEMORY_POOL", "system")}
    return inherited | allocator | settings.exports() | {"PATH": path, "PYTHONUNBUFFERED": "1"}


def _start(settings: Settings, supervisor: Supervisor, *, with_feed: bool, own_kafka: bool, console: Console) -> None:
    started = time.monotonic()
    require_ports(settings, with_kafka=own_kafka)
    fetch_all_jars(settings, console, own_kafka=own_kafka)
    environment = platform_environment(settings)
    # This process uses the same clients as the services; they read the same environment.
    os.environ.clear()
    os.environ.update(environment)
    supervisor.start(environment)
    if settings.own_cloud:
        supervisor.start_service("cloud")
    if settings.own_spark:
        supervisor.start_service("spark")  # the slowest: it gets ready while the others start
    if own_kafka:
        supervisor.start_service("kafka")
    supervisor.start_service("runs")
    with _step(console, "Dagster home"), opened_home(settings) as instance:
        end_unfinished_runs(instance)
    if settings.own_cloud:
        with _step(console, "local cloud (S3, SQS)"):
            supervisor.wait_ready("cloud", 120)
    if own_kafka:
        with _step(console, "Kafka broker"):
            supervisor.wait_ready("kafka", 120)
    with _step(console, "queues and topics of the code location"):
        _create_missing(settings)
    publish_environment(settings, declared_variables() | settings.exports())
    if with_feed and not location.has_sample_feed(settings):
        console.print(f"no sample feed: {settings.code_location} has no module `demo.feed`", highlight=False)
    elif with_feed:
        with _step(console, "sample feed"):
            summary = location.first_round(settings)
        console.print(f"  {summary}", highlight=False)
        if location.has_feed_command(settings):
            supervisor.start_service("feed")
    with _step(console, "first listing of every prefix"):
        seen = _look(settings)
    console.print(f"  {seen}", highlight=False)
    if settings.own_spark:
        with _step(console, "Spark Connect server"):
            supervisor.wait_ready("spark", 120)
    with _step(console, "dagster dev"):
        supervisor.start_service("dagster")
        supervisor.wait_ready("dagster", 180)
    console.print(_greeting(settings, time.monotonic() - started), highlight=False, soft_wrap=True)


def _greeting(settings: Settings, seconds: float) -> str:
    return (
        f"\nready after {seconds:.0f} s: [bold]http://127.0.0.1:{settings.port_ui}[/bold]\n"
        f"  files uploaded to s3://{settings.landing_bucket} are loaded into tables automatically\n"
        f"{_kafka(settings)}"
        f"{_pace(settings.contract_scale)}"
        f"  logs are in {settings.state_dir}/logs\n"
        '  in another shell, eval "$(tidemark env)" connects any AWS client, pyiceberg or dagster command\n'
        "  Ctrl-C stops everything"
    )


def _kafka(settings: Settings) -> str:
    return f"  Kafka is at {settings.kafka_bootstrap_servers}\n" if settings.kafka_bootstrap_servers else ""


def _pace(scale: float) -> str:
    if scale == 1:
        return ""
    return f"  contract times are scaled by {scale:g}: an hour is {60 * scale:g} minutes (TIDEMARK_CONTRACT_SCALE)\n"


def _create_missing(settings: Settings) -> None:
    with location.without_broken_parts():
        create_missing(location.streams(settings), settings)
    if not location.broken_parts(settings):  # a broken module may declare a variable
        refuse_undeclared_names()


def _look(settings: Settings) -> str:
    """Report changes in the bucket since the last listing. Return a summary for the console."""
    from dagster_tidemark.sensors.reconcile_schedules import reconcile_instance

    with opened_home(settings) as instance, location.without_broken_parts():
        found = reconcile_instance(settings, location.feeds(settings), instance)
    left_out = [f"left out: {line}" for line in location.broken_parts(settings)]
    return "; ".join(
        [f"{len(found.changed)} partitions changed since the last listing", *found.alarms.values(), *left_out]
    )


def _look_again(settings: Settings, supervisor: Supervisor) -> str:
    try:
        supervisor.wait_ready("cloud", 60)
        _create_missing(settings)
        return _look(settings)
    except (BucketUnavailable, ServiceFailed) as error:
        return str(error)  # it died again; its next start repeats this


def _watch(supervisor: Supervisor, settings: Settings, console: Console) -> None:
    """Print when a service dies or is back, until a signal arrives. List the bucket again if its queues were lost."""
    pids = {state.name: state.pid for state in supervisor.states()}
    looked = 0.0
    while True:
        time.sleep(1)
        if time.monotonic() - looked > _SECONDS_BETWEEN_LOOKS:
            looked = time.monotonic()
            for lack in supervisor.restart_lacking(looked):
                console.print(f"{time.strftime('%H:%M:%S')} {lack}, and is restarted", highlight=False, soft_wrap=True)
        for state in supervisor.states():
            if state.pid == pids[state.name]:
                continue
            pids[state.name] = state.pid
            title, log = supervisor.services[state.name].title, log_file(settings, state.name)
            news = "was restarted" if state.pid else f"died and will be restarted; see {log}"
            console.print(f"{time.strftime('%H:%M:%S')} {title} {news}", highlight=False, soft_wrap=True)
            if state.name == "cloud" and state.pid:
                seen = _look_again(settings, supervisor)
                console.print(f"  its queues were lost; {seen}", highlight=False, soft_wrap=True)


@contextmanager
def _step(console: Console, title: str) -> Iterator[None]:
    started = time.monotonic()
    with console.status(f"{title} ..."):
        yield
    console.print(f"{title} ({time.monotonic() - started:.1f} s)", highlight=False)


@contextmanager
def _stopping_by_signal() -> Iterator[None]:
    previous = {number: signal.signal(number, _raise_stopped) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _raise_stopped(number: int, frame: FrameType | None) -> NoReturn:
    _ignore_signals()
    raise _Stopped


def _ignore_signals() -> None:
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def with_first_day(settings: Settings, *, has_sample: bool, now: datetime) -> Settings:
    """Return the settings of a platform that is about to start, with the first day of its partitions.

    It is the Monday before the sample, so that the UI shows few empty partitions. It is chosen once for a new state
    folder and stored there: a different day would change the set of partitions. `TIDEMARK_START_DATE` takes precedence.

    Args:
        has_sample: True if it starts with the sample feed.
        now: The time in UTC.
    """
    if "start_date" in settings.model_fields_set:
        return settings
    kept = settings.state_dir / "first_day"
    if not kept.exists():
        if not has_sample or settings.platform_home.exists():
            return settings
        begins = (now - SAMPLE).date()
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        kept.write_text((begins - timedelta(days=begins.weekday())).isoformat())
    return settings.model_copy(update={"start_date": date.fromisoformat(kept.read_text())})


def fetch_all_jars(settings: Settings, console: Console, *, own_kafka: bool) -> None:
    """Fetch the missing jars for each service that will start.

    Raises:
        JarsMissing: some could not be fetched.
    """
    for bundle, title, size, is_needed in (
        (LAKE, "Spark's jars", "80 MB", True),
        (BROKER_JARS, "Kafka's jars", "37 MB", own_kafka),
        (KAFKA, "Spark's jars for Kafka", "10 MB", settings.own_spark and settings.kafka_bootstrap_servers),
    ):
        if is_needed and not bundle.is_complete(settings):
            _fetch(console, title, size, partial(fetch_jars, settings, bundle))


def _fetch(console: Console, title: str, size: str, fetch: Callable[[Report], object]) -> None:
    with console.status(f"{title} (about {size}, once)") as status:
        shown = -1

        def report(count: int, total: int) -> None:
            nonlocal shown
            status.update(f"{title}: {count} of {total}")
            if not console.is_terminal and count // 10 > shown // 10:
                console.print(f"{title}: {count} of {total}")
            shown = max(shown, count)

        started = time.monotonic()
        fetch(report)
    console.print(f"{title} ({time.monotonic() - started:.1f} s)", highlight=False)


def require_machine() -> None:
    """Raise if Java or Python is missing or of an unsupported version.

    Raises:
        Transient: either is.
    """
    if complaint := machine.complaint():
        raise Transient(complaint)


def require_folder(settings: Settings) -> None:
    """Raise if the state folder cannot be written, or its disk has too little room.

    Raises:
        Transient: it cannot, or has too little.
    """
    folder = settings.state_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        reason = _NAMED.get(error.errno or 0) or error.strerror
        raise Transient(f"TIDEMARK_STATE_DIR={folder} cannot be written ({reason}); set another folder") from error
    needed = _LATER_MB if LAKE.is_complete(settings) else _FIRST_MB
    free = shutil.disk_usage(folder).free // _MB
    if free < needed:
        raise Transient(
            f"TIDEMARK_STATE_DIR={folder}: expected {needed} MB of free disk space, found {free} MB; "
            "free some space, or set another folder"
        )


def require_kafka_client() -> None:
    """Raise if the Kafka client library is not installed.

    Raises:
        KafkaMissing: it is not.
    """
    if find_spec("confluent_kafka") is None:
        raise KafkaMissing


def require_ports(settings: Settings, *, with_kafka: bool = False) -> None:
    """Raise if a port of the platform is not free.

    Raises:
        Transient: another program listens on it.
    """
    ports = {"UI": settings.port_ui}
    if settings.own_cloud:
        ports["CLOUD"] = settings.port_cloud
    if settings.own_spark:
        ports["SPARK"] = settings.port_spark
    if with_kafka:
        ports["KAFKA"] = settings.port_kafka
    for name, port in ports.items():
        with socket.socket() as probe:
            # As servers do: closing connections of a predecessor do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise Transient(
                    f"TIDEMARK_PORT_{name}={port}: another program uses this port ({error.strerror}); set another port"
                ) from error
