"""One cell of the kill matrix: a file's way, cut by SIGKILL at one boundary, and what a fresh daemon makes of it.

The daemon, its code server and runs, the Spark server and the S3 and SQS server are processes of their own. A cell has
a bucket, a queue, a Dagster home and an hour of core/orders to itself; so cells can be played side by side.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import psutil
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog, load_catalog

from dagster_tidemark.engine.complete_listings import note_listing, place_of
from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.write import RUN_ID
from dagster_tidemark.local.dagster.home import end_unfinished_runs, opened_home
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.settings import Boundary, Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.live.waiting import eventually, holds_for
from tests.oracle import assert_same, download, expected_tables
from tests.tidemark.kill.defects import Defect
from tests.toys import schemas
from tests.toys.assets import core_orders
from tests.toys.feeds import ORDERS
from tests.toys.schemas import order_lines

_HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at"
_FILLERS = 30_000  # lines of a large file beside those of the cell: more than `small_files.SMALL` bytes
_SECONDS_TO_DIE = 300
_SECONDS_TO_RECOVER = 400
_SECONDS_TO_STAY_WRONG = 60  # three redeliveries; what a defect has lost does not come back
_making_tables = threading.Lock()
_IS_OF_A_TASK = re.compile(r"/[0-9a-f]{32}-[-0-9a-f]{36}\.parquet$").search  # Spark's own begin with its task's number
_ENTRY = ("source_file", "source_version", "row_number", "content", "reason")
_UNFINISHED = [s for s in dg.DagsterRunStatus if s.value in ("QUEUED", "NOT_STARTED", "STARTING", "STARTED")]


@dataclass(frozen=True)
class Cell:
    """Where the process dies.

    Args:
        overwrites: Whether a file known before is overwritten too, so that the partition is replaced and not merged.
        is_large: Whether Spark reads the files, and tasks write the data files.
        defect: What is wrong on purpose.
    """

    boundary: Boundary
    count: int = 1
    overwrites: bool = False
    defect: Defect | None = None
    is_large: bool = False

    def __str__(self) -> str:
        said = f"{self.boundary}:{self.count}" + (", a file overwritten" if self.overwrites else "")
        said += ", large files" if self.is_large else ""
        return said + (f", {self.defect}" if self.defect else "")


@dataclass
class Outcome:
    """What became of a cell. It is right if there is no fault."""

    cell: str
    killed: str = ""  # what the hook said
    exit_signal: int | None = None
    snapshots_before: int = 0
    snapshots_after: int = 0
    lost: int = 0
    doubled: int = 0
    seconds: float = 0
    faults: list[str] = field(default_factory=list)


class Place:
    """A cell's bucket, queue, Dagster home and hour, and the daemon there."""

    def __init__(self, cell: Cell, shared: Settings, number: int, folder: Path) -> None:
        self.cell = cell
        self.hour = f"2026-10-{1 + number // 24:02}-{number % 24:02}:00"
        name = f"kill-{uuid.uuid4().hex[:12]}"
        folder.mkdir(parents=True)
        self.log = folder / "daemon.log"
        self.settings = shared.model_copy(
            update={
                "landing_bucket": name,
                "events_queue": name,
                "state_dir": folder,
                "dagster_home": folder / "dagster",
            }
        )
        self._mark = name
        self.s3 = boto3.client("s3", **shared.aws_options())
        self.sqs = boto3.client("sqs", **shared.aws_options())
        self.queue_url = self.sqs.create_queue(QueueName=name)["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["QueueArn"])["Attributes"]
        told = {"QueueArn": arn["QueueArn"], "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        self.s3.create_bucket(Bucket=name)
        self.s3.put_bucket_notification_configuration(
            Bucket=name,
            NotificationConfiguration={"QueueConfigurations": [told]},  # type: ignore[list-item]
        )
        exports = self.settings.exports().items()
        prefix = "PYICEBERG_CATALOG__LAKE__"
        catalog = {n.removeprefix(prefix).lower(): v for n, v in exports if n.startswith(prefix)}
        with _making_tables:  # the first to open the catalog makes its tables too
            self._catalog: Catalog = load_catalog("lake", **catalog)

    def put(self, name: str, *rows: str, body: bytes | None = None) -> None:
        """Put a file of order lines; a row is "order_id,quantity,discount"."""
        at = f"{self.hour[:10]}T{self.hour[11:13]}:15:00Z"
        lines = [f"{o},1,3,4,5,{quantity},1.25,{share},{at}" for o, quantity, share in (r.split(",") for r in rows)]
        if self.cell.is_large:
            begin = sum(name.encode()) * _FILLERS
            lines += [f"{o},1,3,4,5,{o % 9},1.25,0.1,{at}" for o in range(begin, begin + _FILLERS)]
        text = "\n".join([_HEADER, *lines, ""]).encode()
        self.s3.put_object(
            Bucket=self.settings.landing_bucket, Key=ORDERS.prefix_of(self.hour) + name, Body=body or text
        )

    def load(self, load: Load) -> str:
        """Run a load from here; its run id."""
        spark, run_id = new_session(self.settings), f"{self._mark}-{uuid.uuid4().hex}"
        try:
            run_load(spark, S3Bucket(lambda: self.s3, self.settings.landing_bucket), load, [self.hour], run_id=run_id)
        finally:
            spark.stop()
        return run_id

    @contextmanager
    def daemon(self, **more: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A daemon, cleared up after as the platform does it; whatever it started is gone in the end."""
        with opened_home(self.settings) as instance:
            end_unfinished_runs(instance)
            # Only notifications are tested here: the first listing of a feed would find a file without them.
            bucket, start = self.settings.landing_bucket, self.settings.start_date
            note_listing(
                instance, self.settings.code_location, ORDERS.name, time.time(), place_of(ORDERS, bucket, start)
            )
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = os.environ | self.settings.exports() | {"PATH": path, process_tree.MARK: self._mark} | more
        location = str(Path(__file__).with_name("location.py"))
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dagster._daemon", "run", "-f", location, "-d", str(Path.cwd())],
                cwd=self.settings.state_dir / "dagster",
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process_tree.end(lambda: process_tree.marked(self._mark), seconds=1)

    def death(self, daemon: "subprocess.Popen[bytes]") -> tuple[str, int]:
        """Wait until somebody died at the boundary: what the hook said, and the signal that ended the process."""

        def said() -> re.Match[str]:
            # What a run says goes to a file of its own, and a process that dies with the run copies it to the log.
            logs = [self.log, *self.settings.state_dir.glob("dagster/storage/*/compute_logs/*.err")]
            words = "\n".join(log.read_text() for log in logs)
            found = re.search(r"killed at \S+, process (\d+) of group (\d+)", words)
            assert found, f"{self.cell.boundary} was not reached"
            return found

        found = eventually(said, seconds=_SECONDS_TO_DIE, every=0.02)
        group = int(found[2])
        if group == daemon.pid:
            return found[0], -daemon.wait(10)
        # A run leads a group of its own, and stays a zombie until the daemon asks after it.
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            eventually(lambda: _assert_dead(group), seconds=10, every=0.01)
            return found[0], int(Path(f"/proc/{group}/stat").read_text().rsplit(")", 1)[1].split()[49]) & 0x7F
        return found[0], -1

    def snapshots(self) -> int:
        """How many commits to core/orders are this cell's own."""
        with opened_home(self.settings) as instance:
            ours = {run.run_id for run in instance.get_runs()}
        found = self._catalog.load_table("core.orders").snapshots()
        runs = [str((s.summary or {}).additional_properties.get(RUN_ID)) for s in found]  # type: ignore[union-attr]
        return sum(run in ours or run.startswith(self._mark) for run in runs)

    def rows(self) -> Any:
        """The hour's rows of core/orders."""
        table = self._catalog.load_table("core.orders").scan(row_filter=f"hour == '{_iso(self.hour)}'").to_arrow()
        return table

    def data_files(self) -> list[str]:
        """The paths of the hour's data files of core/orders."""
        scan = self._catalog.load_table("core.orders").scan(row_filter=f"hour == '{_iso(self.hour)}'")
        return [task.file.file_path for task in scan.plan_files()]

    def entries(self, asset: str) -> Counter[tuple[Any, ...]]:
        """The hour's entries in ops/quarantine of an asset."""
        table = self._catalog.load_table("ops.quarantine").scan().to_arrow()
        table = table.filter((pc.field("asset") == asset) & (pc.field("partition") == self.hour))
        return Counter(zip(*(table.column(name).to_pylist() for name in _ENTRY), strict=True))

    def messages(self) -> int:
        """How many messages the queue holds, those in flight included."""
        names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def runs(self) -> Counter[str]:
        """How many runs there are, by status."""
        with dg.DagsterInstance.from_config(str(self.settings.dagster_home)) as instance:
            return Counter(run.status.value for run in instance.get_runs())


def play(cell: Cell, shared: Settings, number: int, folder: Path) -> Outcome:
    """Kill, start again, and compare with a full load of the bucket."""
    outcome = Outcome(str(cell))
    begun = time.monotonic()
    try:
        _play(Place(cell, shared, number, folder / f"{number:02}"), outcome)
    except Exception as error:  # the others go on, and this one is red
        outcome.faults.append(f"{type(error).__name__}: {error}"[:1500])
    outcome.seconds = round(time.monotonic() - begun, 1)
    return outcome


def _play(place: Place, outcome: Outcome) -> None:
    cell = place.cell
    code_version = core_orders.code_versions_by_key[core_orders.key]
    load = Load(ORDERS, schemas.ORDERS, order_lines, str(code_version))
    place.put("a.csv", "1,5,0.1", "2,6,0")
    place.put("b.csv", "3,7,0", "4,7,1.5")
    with _making_tables:  # of two first loads on an empty lake one may fail, and is then tried again
        place.load(load)
    outcome.snapshots_before = place.snapshots()
    again = "8" if cell.is_large else "3"  # rows of one key are ranked, which tasks that write data files do not do
    added = f"{again},8,0.2", "5,9,0", "6,9,-1"
    place.put("c.csv", *added)
    place.put("junk.parquet", body=b"no parquet")
    place.put("c.csv", *added)  # told twice
    if cell.overwrites:
        place.put("a.csv", "1,50,0.1", "7,6,0")
    defect = {"SEEDED_DEFECT": cell.defect} if cell.defect else {}
    try:
        with place.daemon(TIDEMARK_KILL_AT=f"{cell.boundary}:{cell.count}", **defect) as daemon:
            outcome.killed, outcome.exit_signal = place.death(daemon)
    except AssertionError as fault:
        outcome.faults.append(str(fault))
        return
    if outcome.exit_signal != signal.SIGKILL:
        outcome.faults.append(f"ended by signal {outcome.exit_signal}, not SIGKILL")
    with place.daemon(**defect):
        _recover(place, load, outcome)
    if cell.is_large and cell.overwrites and not any(map(_IS_OF_A_TASK, place.data_files())):
        outcome.faults.append("Spark's writer wrote all data files")
    outcome.snapshots_after = place.snapshots()


def _recover(place: Place, load: Load, outcome: Outcome) -> None:
    fresh = replace(load, table=replace(schemas.ORDERS, name=f"test.{place.settings.landing_bucket.replace('-', '_')}"))
    place.load(fresh)
    bucket = place.settings.landing_bucket
    landed = download(place.s3, bucket, place.settings.state_dir / "landed")
    expected = expected_tables(landed).tables["core.orders"]
    entries = place.entries(fresh.asset)
    assert expected.num_rows and entries, "nothing is expected"

    def right() -> None:
        runs = place.runs()
        assert not any(runs[s.value] for s in _UNFINISHED), f"runs {dict(runs)}"
        assert place.messages() == 0, f"{place.messages()} messages are left"
        assert_same("core.orders", expected, place.rows())
        assert place.entries(load.asset) == entries, f"quarantine: {place.entries(load.asset)}, expected {entries}"

    def stays_right() -> None:
        right()
        holds_for(right, seconds=2)

    try:
        eventually(stays_right, seconds=_SECONDS_TO_STAY_WRONG if place.cell.defect else _SECONDS_TO_RECOVER, every=1)
    except AssertionError as fault:
        outcome.faults.append(str(fault)[:1500])
    rows = Counter(map(json.dumps, _keys(place.rows())))
    wanted = Counter(map(json.dumps, _keys(expected)))
    missing_entries = entries - place.entries(load.asset)
    outcome.lost = (wanted - rows).total() + missing_entries.total()
    outcome.doubled = (rows - wanted).total()


def _keys(table: Any) -> list[tuple[Any, ...]]:
    names = ("order_id", "line_number", "quantity", "source_file")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _iso(hour: str) -> str:
    return f"{hour[:10]}T{hour[11:13]}:00:00+00:00"


def _assert_dead(pid: int) -> None:
    assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, f"process {pid} lives"
