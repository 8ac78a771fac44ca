"""A REST catalog whose tokens and storage credentials end after 60 s: loads, marts, a shift and a preview go on.

The catalog is Iceberg's reference server, and the warehouse is on the local cloud's S3. A gateway in front of both
issues the tokens and credentials, and refuses those that have ended (`tests.proof.rest_catalog.gateway`).

`PROOF_SECONDS=60` is the lifetime. `PROOF_LIFETIMES=2.5` is how long work goes on, in lifetimes.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from dagster import DagsterInstance

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.local.spark.jars import fetch_jars
from dagster_tidemark.settings import LOCAL_KEY, Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from tests.conftest import end_service, free_port, make_settings, start_service
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.proof.rest_catalog.gateway import CLIENT, SECRET, Gateway, gateway
from tests.proof.rest_catalog.server import VERSION, rest_server
from tests.tidemark.first_layer import OLD, Code, Layer
from tests.tidemark.streams import toy

pytestmark = [
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run"),
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
]

LIFETIME = float(os.environ.get("PROOF_SECONDS", 60))
LIFETIMES = float(os.environ.get("PROOF_LIFETIMES", 2.5))
NEW = Code("2", limit=410, factor=3, key=("id", "k"), more=True)
SLOW = Table("marts.slow", {"id": "bigint", "slept": "string"}, ("id",))
WAREHOUSE = "s3://lake/warehouse"


@contextmanager
def lake_of_short_lived_credentials(folder: Path) -> Iterator[tuple[Settings, Gateway]]:
    """Run the local cloud, the catalog, the gateway and a Spark server that knows only the gateway."""
    made = make_settings(folder)
    with ExitStack() as stack:
        cloud = start_service("tests.tidemark.counting_cloud", made, made.port_cloud, folder / "cloud.log")
        stack.callback(end_service, cloud)
        boto3.client("s3", **made.aws_options()).create_bucket(Bucket="lake")
        port = free_port()
        stack.enter_context(rest_server(port, folder, _options_of_the_server(made)))
        gate = stack.enter_context(gateway(port, made.port_cloud, LIFETIME))
        fields = (name for name in type(made).model_fields if name not in ("catalog", "catalog_uri", "warehouse"))
        settings = Settings(
            **{name: getattr(made, name) for name in fields},
            catalog={
                "type": "rest",
                "uri": gate.uri,
                "oauth2-server-uri": f"{gate.uri}/v1/oauth/tokens",
                "credential": f"{CLIENT}:{SECRET}",
            },
            warehouse=WAREHOUSE,
        )
        fetch_jars(settings)
        log = folder / "spark.log"
        server = start_service("dagster_tidemark.local.spark.server", settings, settings.port_spark, log, seconds=180)
        stack.callback(end_service, server)
        yield settings, gate


def _options_of_the_server(settings: Settings) -> dict[str, str]:
    """Return the options with which the catalog itself reads and writes metadata, past the gateway."""
    return {
        "warehouse": WAREHOUSE,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": str(settings.aws_endpoint_url),
        "s3.path-style-access": "true",
        "s3.access-key-id": LOCAL_KEY,
        "s3.secret-access-key": LOCAL_KEY,
        "client.region": settings.aws_region,
    }


def test_work_goes_on_beyond_expiries_of_tokens_and_storage_credentials(tmp_path: Path, report: Report) -> None:
    with ExitStack() as stack:
        settings, gate = stack.enter_context(lake_of_short_lived_credentials(tmp_path))
        spark = new_session(settings)
        stack.callback(spark.stop)
        instance = stack.enter_context(DagsterInstance.ephemeral())
        busy, still = (Layer(spark, settings, instance, tmp_path / name, hours=4) for name in ("busy", "still"))
        code = {layer.tag: _built(layer) for layer in (busy, still)}
        changed = still.code(NEW)
        still.preview(changed, NEW)
        at_work = stack.enter_context(_at_work(settings))
        slow = stack.enter_context(_in_thread(lambda: _write_slowly(settings)))
        began, loads, sent = time.monotonic(), 0, 0
        while time.monotonic() - began < LIFETIME * LIFETIMES:
            hour = busy.partitions()[loads % 4]
            busy.put(hour, f"more-{loads}.csv", f"id,n,k\n{1_000 + loads},{loads},0\n")
            busy.observe()
            busy.run(code[busy.tag], "core", [hour])
            busy.run(code[busy.tag], "daily", busy.days())
            loads += 1
            # Silent for longer than a lifetime, so that the shift's tables are older than their credentials.
            if not LIFETIME * 0.4 < time.monotonic() - began < LIFETIME * 1.6:
                at_work.send(sent)
                sent += 1
        passed = time.monotonic() - began
        slow()
        published = still.publish(changed, NEW)
        gadgets = [f"gadget-{n:04}" for n in range(sent)]
        eventually(lambda: _require(at_work.kept(at_work.stream.table) == sorted(gadgets * 2)), seconds=60)
        eventually(lambda: _require(at_work.kept(toy.alerts(at_work.stream.name)) == gadgets), seconds=60)
        counts = Counter(gate.counts)
        report(
            "expiring-credentials",
            {
                "catalog": f"iceberg-core {VERSION}, tokens and credentials of a gateway",
                "lifetime in seconds": LIFETIME,
                "seconds of work": round(passed),
                "loads, each with a mart": loads,
                "messages of the stream": sent,
                "seconds of one Spark job": round(LIFETIME * 1.3),
                "tables of the preview that were fast-forwarded": len(published.forwarded),
                "ended credentials refused": 0,
                **counts,
            },
        )
        assert busy.found() == busy.expected(OLD)
        assert still.found() == still.expected(NEW)
        assert f"{still.tag}/core" in published.forwarded and not published.left
        rows = spark.table(SLOW.identifier).count()
        assert rows == _rows_of_the_slow_table(), "a job that takes longer than its credentials live"
        assert not counts["other keys refused"], "only credentials of the catalog were used"
        assert counts["tokens issued"] > LIFETIMES and counts["credentials renewed by the client"]


def _built(layer: Layer) -> Any:
    layer.folder.mkdir()
    layer.fill()
    return layer.built()


def _rows_of_the_slow_table() -> int:
    return round(LIFETIME * 1.3)


def _write_slowly(settings: Settings) -> None:
    """Write a table in one task, which takes longer than credentials live."""
    session = new_session(settings)
    try:
        catalog.ensure(session, SLOW)
        rows = session.range(0, _rows_of_the_slow_table(), 1, 1)
        slept = rows.selectExpr("id", "reflect('java.lang.Thread', 'sleep', 1000L) AS slept")
        write.overwrite(slept, SLOW, None, run_id="slow")
    finally:
        session.stop()


@contextmanager
def _in_thread(work: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Run work in a thread. The yielded function waits for its end, and raises its error."""
    failed: list[BaseException] = []

    def _run() -> None:
        try:
            work()
        except BaseException as error:  # raised in the test's own thread
            failed.append(error)

    thread = threading.Thread(target=_run)
    thread.start()

    def _wait() -> None:
        thread.join(LIFETIME * 5)
        assert not thread.is_alive(), "the work did not end"
        if failed:
            raise failed[0]

    try:
        yield _wait
    finally:
        thread.join(LIFETIME * 5)


class _Stream:
    """A shift of the toy stream, at work in a thread."""

    def __init__(self, settings: Settings) -> None:
        name = toy.new_name()
        self._settings = settings
        self.stream: Stream = toy.stream_with_alerts(name)
        self.queue: SqsQueue = toy.make_queue(settings, f"queue-{name}")
        toy.make_queue(settings, f"out-{name}")
        self._end = threading.Event()

    def send(self, number: int) -> None:
        """Send two strong pings of a gadget, which raise an alert."""
        self.queue.send([toy.ping(f"gadget-{number:04}", minute=minute, strength=6.0) for minute in (0, 1)])

    def kept(self, table: Table) -> list[str]:
        found = Appendable(open_lake(self._settings), table).rows(columns=("gadget",))
        return sorted(found["gadget"].to_pylist())

    def work(self) -> None:
        place = StreamContext(self._settings, open_lake(self._settings), self.stream)
        inlet = QueueInlet(f"sqs:{self.stream.queue}", lambda: self.queue)
        reports = Reports(self.stream, toy.Heard())
        Shift(place, [inlet], reports, "code-1", lambda: "the proof ends" if self._end.is_set() else None).work()

    def end(self) -> None:
        self._end.set()


@contextmanager
def _at_work(settings: Settings) -> Iterator[_Stream]:
    stream = _Stream(settings)
    with _in_thread(stream.work) as wait:
        try:
            yield stream
        finally:
            stream.end()
            wait()


def _require(holds: bool) -> None:
    assert holds
