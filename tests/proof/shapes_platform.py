"""`dagster dev` on the two locations of shapes, with a home and a room of its own; and what is seen of it from outside.

Belongs here: its start and stop, what lands, what the bodies wrote down, and how `tidemark status` tells of it. Does
not belong here: what is expected (`tests.proof.shape_stories`, `tests.proof.fault_stories`).
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import yaml

from dagster_tidemark.cli.contract_rows import ContractRow, rows
from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.engine.saved_overview import CHECK
from dagster_tidemark.local.dagster.home import end_unfinished_runs
from dagster_tidemark.local.dagster.run_launcher import server_answers
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.tags import ARRIVED_AT, DATA_VERSION, LISTED_AT
from tests.checkout import CHECKOUT
from tests.conftest import free_port
from tests.live.ui import Ui
from tests.live.waiting import eventually, holds_for
from tests.proof.shapes_bodies import named, put, value_of
from tests.proof.shapes_location import defs

T = TypeVar("T")
LOCATIONS = {"shapes": "shapes_location", "elsewhere": "shapes_elsewhere"}
SECONDS_TO_START = 30
_BETWEEN_LOOKS = 4.0
_FOLDERS = ("values", "closed", "broken", "killed", "unlaunched")

_LOCATIONS = """query Locations { workspaceOrError { ... on Workspace { locationEntries {
    name locationOrLoadError { __typename ... on PythonError { message } } } } } }"""
_WIPE = """mutation Wipe($ranges: [PartitionsByAssetSelector!]!) { wipeAssets(assetPartitionRanges: $ranges) {
    __typename ... on PythonError { message } } }"""


@dataclass(frozen=True)
class Note:
    """What a body wrote down: it was asked to build partitions, or has built them. Time in Unix seconds."""

    at: float
    asset: str
    partitions: tuple[str | None, ...]
    run: str
    values: tuple[str, ...] = ()


class ToyPlatform:
    """A platform on the shapes; it can be stopped and started again on its home."""

    def __init__(self, folder: Path, storage: dict[str, Any] | None, locations: Mapping[str, str] = LOCATIONS) -> None:
        self.home, self.room, self._folder = folder / "dagster", folder / "room", folder
        self.home.mkdir()
        for name in _FOLDERS:
            (self.room / name).mkdir(parents=True)
        (self.home / "dagster.yaml").write_text(yaml.safe_dump(_configuration(storage)))
        self.workspace = self.home / "workspace.yaml"
        files = [
            {"python_file": {"relative_path": str(CHECKOUT / f"tests/proof/{name}.py"), "location_name": location}}
            for location, name in locations.items()
        ]
        self.workspace.write_text(yaml.safe_dump({"load_from": files}))
        self.instance = dg.DagsterInstance.from_config(str(self.home))
        self.ui = Ui(free_port())
        self.mark = f"shapes-{uuid.uuid4().hex[:12]}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._looking = threading.Lock()
        self._rows: dict[str, ContractRow] = {}
        self._looked_at = float("-inf")

    def start(self) -> float:
        """Start, and wait for the UI; the seconds it took."""
        begun = time.monotonic()
        end_unfinished_runs(self.instance)
        self._run("-m", "dagster_tidemark.local.dagster.fork_server")
        port = self.ui.url.rpartition(":")[2]
        self._run("-m", "dagster", "dev", "-w", str(self.workspace), "-h", "127.0.0.1", "-p", port)

        def ready() -> None:
            try:
                urllib.request.urlopen(f"{self.ui.url}/server_info", timeout=2).close()
            except OSError as error:
                raise AssertionError(error) from error
            assert server_answers(self.home), "the fork server does not answer"

            for entry in self.ui.query(_LOCATIONS)["workspaceOrError"]["locationEntries"]:
                found = entry["locationOrLoadError"]
                assert found and found["__typename"] == "RepositoryLocation", entry

        eventually(ready, seconds=120)
        return time.monotonic() - begun

    def stop(self) -> None:
        """End what was started, and whatever that started."""
        for process in reversed(self._processes):
            process_tree.end_group(process, seconds=8)
        self._processes.clear()
        process_tree.end(lambda: process_tree.marked(self.mark), seconds=3)

    @property
    def log(self) -> str:
        """What the services said."""
        return (self._folder / "platform.log").read_text(errors="replace")

    @property
    def environment(self) -> dict[str, str]:
        """What its processes have, and a command that speaks with it."""
        return os.environ | {
            "DAGSTER_HOME": str(self.home),
            "TIDEMARK_STATE_DIR": str(self._folder),
            "TIDEMARK_PORT_UI": self.ui.url.rpartition(":")[2],
            "SHAPES_ROOM": str(self.room),
            "PYTHONPATH": str(CHECKOUT),
        }

    def _run(self, *arguments: str) -> None:
        environment = self.environment | {process_tree.MARK: self.mark}
        with (self._folder / "platform.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
                    cwd=self.home,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    # What happens to it.

    def land(self, source: str, partition: str | None = None, value: str = "1") -> None:
        """Data lands, and is observed as the landing sensor does it."""
        put(self.room, source, partition, value)
        now = f"{time.time():.3f}"
        tags = {DATA_VERSION: value, LISTED_AT: now, ARRIVED_AT: now}
        key = dg.AssetKey.from_user_string(source)
        self.instance.report_runless_asset_event(dg.AssetObservation(asset_key=key, partition=partition, tags=tags))

    def order(self, what: str, asset: str, partition: str | None = None) -> Path:
        """From now on a body waits (`closed`), fails (`broken`) or dies (`killed`); until the file is gone."""
        path = self.room / what / named(asset, partition)
        path.touch()
        return path

    def wipe(self, asset: str) -> None:
        """Press "Wipe" on an asset."""
        answer = self.ui.query(_WIPE, ranges=[{"assetKey": {"path": asset.split("/")}}])["wipeAssets"]
        assert answer["__typename"] == "AssetWipeSuccess", answer

    def sensors(self, location: str) -> dict[str, dict[str, Any]]:
        """The sensors of a location by name, with their ticks."""
        return self.ui.sensors(location)

    def stop_sensor(self, name: str) -> None:
        """Switch a sensor of the first location off."""
        self.ui.stop_sensor("shapes", name)

    def start_sensor(self, name: str) -> None:
        """Switch it on again."""
        self.ui.start_sensor("shapes", name)

    # What is seen of it.

    def asked(self, asset: str) -> list[Note]:
        """What bodies of an asset were asked for, in order."""
        return self._notes("asked", asset)

    def built(self, asset: str) -> list[Note]:
        """What bodies of an asset built, in order."""
        return self._notes("built", asset)

    def times_built(self, asset: str) -> Counter[str | None]:
        """How often each partition was built."""
        return Counter(partition for note in self.built(asset) for partition in note.partitions)

    def value(self, asset: str, partition: str | None = None) -> str | None:
        """The value of a partition."""
        return value_of(self.room, asset, partition)

    def wait(self, asset: str, partition: str | None = None, value: str = "1", *, seconds: float = 180) -> float:
        """Wait until a partition has a value; the seconds it took."""
        begun = time.monotonic()

        def check() -> None:
            found = self.value(asset, partition)
            assert found == value, f"{asset} {partition} is {found!r}, expected {value!r}"

        self._eventually(check, asset, seconds)
        return time.monotonic() - begun

    def wait_asked(self, asset: str, count: int = 1, *, seconds: float = 120) -> list[Note]:
        """Wait until so many bodies of an asset have begun."""

        def check() -> list[Note]:
            found = self.asked(asset)
            assert len(found) >= count, f"{asset}: {len(found)} runs, expected {count}"
            return found

        return self._eventually(check, asset, seconds)

    def _eventually(self, check: Callable[[], T], asset: str, seconds: float) -> T:
        try:
            return eventually(check, seconds=seconds, every=0.3)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.why(asset)}") from error

    def nothing_more(self, *assets: str, seconds: float = 20) -> None:
        """No body of these is asked for anything for so long."""
        before = {asset: self.asked(asset) for asset in assets}

        def check() -> None:
            for asset in assets:
                more = self.asked(asset)[len(before[asset]) :]
                assert not more, f"asked for again: {more}"

        holds_for(check, seconds=seconds, every=1)

    def rows(self) -> dict[str, ContractRow]:
        """`tidemark status` of the first location."""
        with self._looking:
            if time.monotonic() > self._looked_at + _BETWEEN_LOOKS:  # many stories look, and a look takes a second
                self._rows = {row.asset: row for row in rows(self.instance, defs.resolve_asset_graph())}
                self._looked_at = time.monotonic()
            return self._rows

    def why(self, asset: str) -> str:
        """What `tidemark status` says of an asset."""
        try:
            row = self.rows().get(asset)
        except Exception as error:
            return f"no status: {error!r}"
        return "no row in status" if row is None else f"{row.state}: {row.reason}; aside {row.set_aside}"

    def wait_row(self, asset: str, *words: str, seconds: float = 60) -> ContractRow:
        """Wait until `tidemark status` says all these words of an asset."""

        def check() -> ContractRow:
            row = self.rows().get(asset)
            assert row is not None, f"{asset} has no row"
            said = f"{row.state}: {row.reason}; {row.set_aside}"
            assert all(word in said for word in words), f"{asset} is {said!r}, which lacks one of {words}"
            return row

        return eventually(check, seconds=seconds, every=2)

    def contract(self, asset: str) -> dict[str, object]:
        """The latest result of the check `contract`."""
        key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), CHECK)
        return event_storage.latest_check_metadata(self.instance, key) or {}

    def runs(self, notes: Sequence[Note]) -> list[dg.DagsterRun]:
        """The runs of notes."""
        found = (self.instance.get_run_by_id(note.run) for note in notes)
        return [run for run in found if run is not None]

    def runs_of(self, asset: str) -> list[dg.DagsterRun]:
        """All runs that built, or were to build, an asset; the oldest first."""
        key = dg.AssetKey.from_user_string(asset)
        return [run for run in reversed(self.instance.get_runs()) if key in (run.asset_selection or ())]

    def _notes(self, what: str, asset: str) -> list[Note]:
        path = self.room / f"{what}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines if f'"{asset}"' in line and line.endswith("}")]
        return [
            Note(n["at"], n["asset"], tuple(n["partitions"]), n["run"], tuple(n.get("values", ())))
            for n in found
            if n["asset"] == asset
        ]


@contextmanager
def toy_platform(
    folder: Path, storage: dict[str, Any] | None, locations: Mapping[str, str] = LOCATIONS
) -> Iterator[ToyPlatform]:
    """A platform that runs, and is gone in the end."""
    made = ToyPlatform(folder, storage, locations)
    try:
        yield made
    finally:
        made.stop()
        made.instance.dispose()


def _configuration(storage: dict[str, Any] | None) -> dict[str, Any]:
    """The project's, with a launcher that can lose a run, and quicker to see one that does not start."""
    found: dict[str, Any] = yaml.safe_load((CHECKOUT / "dagster.yaml").read_text())
    found["run_launcher"] = {"module": "tests.proof.shapes_launcher", "class": "HalfLauncher"}
    found["run_monitoring"] |= {"start_timeout_seconds": SECONDS_TO_START, "poll_interval_seconds": 5}
    found["concurrency"]["runs"]["max_concurrent_runs"] = 4
    return found | ({"storage": {"postgres": {"postgres_db": storage}}} if storage else {})
