"""Fixtures every folder of tests may use, and how processes share the tests (`make test`).

A local cloud and a Spark Connect server are real processes on free ports of 127.0.0.1 with a temporary state folder,
started once by a process that needs them; tests share them, so each takes its own prefix, table or partition.
"""

import ctypes
import gc
import logging
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from alembic.config import Config
from alembic.script import ScriptDirectory

from dagster_tidemark.settings import Settings
from tests import warm_python
from tests.checkout import CHECKOUT
from tests.long_tests import long_tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadScopeScheduling

    from tests.tidemark.kafka import Broker


_LIVE = "tests/live/"
_OWN_HOST = (
    "tests/live/test_nothing_lost.py",
    "tests/live/test_warm_runs.py",
    "tests/live/test_ways_to_update.py",
)
"""Live tests that start their own Dagster. They need not wait for the platform of the other live tests."""
_ON_KAFKA = (
    "tests/tidemark/lakehouse/test_topic_range.py",
    "tests/tidemark/sources/test_kafka.py",
    "tests/tidemark/streams/test_kills.py",
    "tests/tidemark/streams/test_topic_backlog.py",
)
"""One process runs them, so only one starts a broker."""
_LONG = frozenset(
    {
        *_OWN_HOST,
        *_ON_KAFKA,
        "tests/test_bench.py",
        "tests/test_plan_code.py",
        "tests/test_without_grocer.py",
        "tests/tidemark/code_versions/code_plan/test_plan.py",
        "tests/tidemark/checks/test_doubts.py",
        "tests/tidemark/local/test_spark_server.py",
        "tests/tidemark/local/test_supervision.py",
    }
)
"""Files that take long and begin first: they wait much, or use no server of these fixtures."""
_SERVERS = frozenset({"cloud", "kafka", "platform", "spark", "spark_server"})
"""Fixtures that start a JVM or a server. Other fixtures use these, or start a process themselves."""
_SMALL = frozenset({"git", "ruff", "uname"})
"""Programs that a quick test may start."""
_GARBAGE = (20_000, 20, 20)
"""Python's 700 is for programs of few objects. The tests hold a million, and most of what they drop has no cycle."""
_figures: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`, which `make quick` uses."""
    parser.addoption("--quick", action="store_true", help="few tests: no JVM, server or other process")


def pytest_configure(config: pytest.Config) -> None:
    """Watch which processes quick tests start, and let tests and what they start heed signals."""
    if config.option.quick:
        sys.addaudithook(_skip_what_starts_a_process)
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", _write_without_waiting)
    ScriptDirectory.from_config = _read_once  # type: ignore[method-assign,assignment]
    # A shell lets background jobs ignore SIGINT, and each run of Dagster copies SIGINT's handler to SIGTERM. The tests
    # and the processes that they start would then ignore both signals, and be killed after a wait.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_read_migrations = ScriptDirectory.from_config
_migrations: dict[str | None, ScriptDirectory] = {}


def _read_once(config: Config) -> ScriptDirectory:
    """Read Dagster's 89 migrations once. Each new instance looks for the newest: four fifths of the time it takes."""
    folder = config.get_main_option("script_location")
    if folder not in _migrations:
        _migrations[folder] = _read_migrations(config)
    return _migrations[folder]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while libraries and tests are loaded, and never look for it among them: a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*_GARBAGE)
        gc.enable()


def _write_without_waiting(connection: Any, _: object) -> None:
    """Let SQLite leave writes to the kernel: no test takes the machine's power away, and processes may be killed."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def _skip_what_starts_a_process(event: str, arguments: tuple[Any, ...]) -> None:
    """Skip the test that starts a process. So a new test needs no marker."""
    if event == "subprocess.Popen" and "PYTEST_CURRENT_TEST" in os.environ:
        program = Path(os.fsdecode(arguments[0])).name
        if program not in _SMALL:
            pytest.skip(f"starts a process: {program}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling | None":
    """Give one process all tests on the one live platform, one those on Kafka, and the rest by file.

    The tests of a file share fixtures.
    """
    if config.option.quick:
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByPlatform(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if _is_on_platform(nodeid):
                return _LIVE
            return "Kafka" if nodeid.startswith(_ON_KAFKA) else nodeid.partition("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            """Take the last file for the process that had the platform: it uses no server, so none is started there."""
            if _LIVE in self.assigned_work[node]:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return ByPlatform(config, log)


def _is_on_platform(nodeid: str) -> bool:
    return nodeid.startswith(_LIVE) and not nodeid.startswith(_OWN_HOST)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave proofs alone unless `-m proof` asks for them: to import them takes seconds in each process."""
    left_out = ["proof"] if "proof" not in config.option.markexpr else []
    left_out += ["live"] if config.option.quick else []
    return True if any(collection_path == CHECKOUT / "tests" / name for name in left_out) else None


@pytest.hookimpl(trylast=True)  # folders have marked theirs by then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select what the options ask for. Processes that share the tests begin with the longest files."""
    if "proof" not in config.option.markexpr:
        _deselect(config, items, lambda item: item.get_closest_marker("proof") is not None)
    if config.option.quick:
        long = long_tests()
        _deselect(config, items, lambda item: _needs_server(item) or _name(item) in long)
        kept = _few_examples(items)
        _deselect(config, items, lambda item: item not in kept)
    if hasattr(config, "workerinput") and not config.option.quick:
        on_servers = {item.path for item in items if _needs_server(item)}
        items.sort(key=lambda item: _place(item, is_on_server=item.path in on_servers))


def _deselect(config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]) -> None:
    left_out = {item for item in items if is_left_out(item)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _needs_server(item: pytest.Item) -> bool:
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return not _SERVERS.isdisjoint(fixtures)


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _few_examples(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return of each test the first example, the last one and one between them."""
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(_name(item), []).append(item)
    return {examples[n] for examples in by_test.values() for n in (0, len(examples) // 2, -1)}


def _place(item: pytest.Item, *, is_on_server: bool) -> tuple[int, int]:
    """Return when an item's turn is.

    Short files come last, so that the processes end at about the same time. Files of one rank come in an order that
    looks random and is always the same: neighbours in a folder do the same, so all processes would compute at one time
    and wait at another. The tests on the platform keep their order.
    """
    if _is_on_platform(item.nodeid):
        return 0, 0
    file = item.path.relative_to(CHECKOUT).as_posix()
    rank = 1 if file in _LONG else 2 if is_on_server else 3
    return rank, zlib.crc32(file.encode())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the figures to the process that prints them, and end the process with the libraries."""
    warm_python.stop()
    handed: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if handed is not None:
        handed["figures"] = _figures


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the figures of a process that has ended; one that died has none."""
    _figures.extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    if _figures:
        terminalreporter.section("figures of the live tests")
        for line in _figures:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _log_warnings() -> None:
    """Undo what a command left: `tidemark doctor` hides warnings until its process ends, here that of the tests."""
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def _keep_signals() -> Iterator[None]:
    """Undo what a run of Dagster left. A test that leaves a signal ignored is named: what it starts would ignore it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    left = {number: signal.getsignal(number) for number in before}
    for number in (number for number in before if left[number] is not before[number]):
        signal.signal(number, before[number])
    assert signal.SIG_IGN not in left.values(), f"the test leaves a signal ignored: {left}"


@pytest.fixture(scope="session")
def note() -> Callable[[str], None]:
    """Note a figure, to be looked at and not judged: it is printed at the end."""
    return _figures.append


def free_port() -> int:
    """A port nobody listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports nobody listens on now. Asked for one after the other, two can be the same."""
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]


JARS = Path(os.environ.get("TIDEMARK_JARS_DIR") or CHECKOUT / ".tidemark" / "jars")

# Tests run each statement a few times. To compile it as for a million rows costs more than to run it, twice in all; and
# Java keeps too little room for code that is compiled once, and spends the rest of the time in making some.
QUICKLY_COMPILED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false"
"""Spark generates no code for a stage: tests of small frames take a third less time. Proofs and live tests do."""
MANY_STATEMENTS = "-Dspark.sql.codegen.cache.maxEntries=5000 -XX:+UseSerialGC"
"""A tenth less work for a server that runs all kinds of statements. Spark keeps the code of 100 by default, and its
collector has threads of its own, for which two busy cores have no time."""


@pytest.fixture(scope="session")
def jars() -> Path:
    """Where Spark's jars are, or will be."""
    return JARS


def make_settings(state_dir: Path) -> Settings:
    """Settings of a platform of its own: free ports, this state folder, the checkout's jars."""
    port_ui, port_cloud, port_spark, port_kafka = free_ports(4)
    # Model fields are passed by name, so that nothing of the developer's environment gets in.
    return Settings(
        environment="local",
        state_dir=state_dir,
        jars_dir=JARS,
        catalog_uri=f"jdbc:sqlite:{state_dir}/catalog.db?journal_mode=WAL&busy_timeout=30000",
        warehouse=str(state_dir / "warehouse"),
        landing_bucket="landing",
        events_queue="landing-events",
        start_date=date(2026, 9, 28),
        aws_region="us-east-1",
        aws_endpoint_url=f"http://127.0.0.1:{port_cloud}",
        spark_remote=f"sc://127.0.0.1:{port_spark}",
        dagster_home=state_dir / "dagster",
        port_ui=port_ui,
        port_cloud=port_cloud,
        port_spark=port_spark,
        port_kafka=port_kafka,
    )


def start_service(
    module: str, settings: Settings, port: int, log: Path, *, seconds: float = 60, **variables: str
) -> subprocess.Popen[bytes]:
    """Run a module as a process and wait until its port answers. On Linux it ends when the tests are killed."""
    environment = os.environ | settings.exports() | variables
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    port_answers_within(process, port, log, seconds=seconds)
    return process


def copied_checkout(target: Path) -> Path:
    """The project as git has it, in another folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, target / name)
    return target


def _end_with_parent() -> None:
    """Of a child that is about to begin: the kernel asks it to end when its parent has died, however that was."""
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", _write_without_waiting)
    # What a shell starts in the background ignores SIGINT, and Dagster has SIGTERM treated as SIGINT is.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def port_answers_within(process: subprocess.Popen[bytes], port: int, log: Path, *, seconds: float) -> None:
    """Wait until a process listens; one that does not is ended, and its log told."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode}:\n{log.read_text()[-4000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    end_service(process)
    raise RuntimeError(f"{process.args} did not listen on {port} within {seconds} s:\n{log.read_text()[-4000:]}")


def end_service(process: subprocess.Popen[bytes]) -> None:
    """End a process that `start_service` started, and wait for it."""
    process.terminate()
    try:
        process.wait(4)  # what a Spark server still does is lost on nobody
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(15)


@pytest.fixture(scope="session")
def platform_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The settings `cloud` and `spark_server` share."""
    return make_settings(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def cloud(platform_settings: Settings) -> Iterator[Settings]:
    """A running local cloud: S3 and SQS, the landing bucket, its queue and the notification between them."""
    log = platform_settings.state_dir / "cloud.log"
    process = start_service("tests.tidemark.counting_cloud", platform_settings, platform_settings.port_cloud, log)
    yield platform_settings
    end_service(process)


@pytest.fixture(scope="session")
def spark_server(platform_settings: Settings, pytestconfig: pytest.Config) -> Iterator[Settings]:
    """A running Spark Connect server on a catalog and warehouse of its own; fetches the jars if they are missing.

    It can read Kafka's topics: with the archive of classes that was recorded without.
    """
    from dagster_tidemark.local.spark.class_archive import record_classes
    from dagster_tidemark.local.spark.jars import KAFKA, fetch_jars

    fetch_jars(platform_settings)
    fetch_jars(platform_settings, KAFKA)
    record_classes(platform_settings)
    is_proof = "proof" in pytestconfig.option.markexpr
    log = platform_settings.state_dir / "spark.log"
    process = start_service(
        "dagster_tidemark.local.spark.server",
        platform_settings,
        platform_settings.port_spark,
        log,
        SPARK_SUBMIT_OPTS=QUICKLY_COMPILED if is_proof else f"{QUICKLY_COMPILED} {INTERPRETED} {MANY_STATEMENTS}",
        TIDEMARK_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:9092",  # whichever: that one is named turns it on
    )
    yield platform_settings
    end_service(process)


@pytest.fixture(scope="session")
def spark(spark_server: Settings) -> "Iterator[SparkSession]":
    """One session for all tests that only transform frames."""
    from dagster_tidemark.lakehouse.session import new_session

    session = new_session(spark_server)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A running Kafka broker; fetches its jars if they are missing. A test that kills it starts it again."""
    from dagster_tidemark.local.kafka_server import JARS as BROKER_JARS
    from dagster_tidemark.local.spark.jars import fetch_jars
    from tests.tidemark.kafka import Broker

    settings = make_settings(tmp_path_factory.mktemp("kafka"))
    fetch_jars(settings, BROKER_JARS)
    broker = Broker(settings)
    broker.start()
    yield broker
    broker.stop()
