"""The state of release 0.1.0, made by its own code, is opened by this code: nothing is requested, nothing is lost.

`tests/proof/test_upgrade_live.py` does the same with the whole platform. Does not belong here: how the state was made
(`make_state.py`).
"""

import json
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from hashlib import md5
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEventType
from dagster._core.utils import make_new_run_id
from pyiceberg.catalog import load_catalog

from dagster_tidemark.cli import contract_rows
from dagster_tidemark.code_versions import lock_file
from dagster_tidemark.code_versions.assets import assets_of
from dagster_tidemark.code_versions.normal_form import FORMAT
from dagster_tidemark.code_versions.project import Project
from dagster_tidemark.engine import engine, saved_overview
from dagster_tidemark.engine.code_plan import plan_of
from dagster_tidemark.event_log import checkpoint, journal
from dagster_tidemark.local.cloud.server import ObjectFolder, StoredObject
from dagster_tidemark.local.dagster.home import end_unfinished_runs, opened_home
from dagster_tidemark.preview import manifest
from dagster_tidemark.preview.manifest import DEFAULT, Store, half_published
from dagster_tidemark.sensors.reconcile_schedules import reconcile_instance
from dagster_tidemark.settings import Settings
from dagster_tidemark.simulation.log import Clock, SimulatedLog
from dagster_tidemark.sources import s3
from tests.checkout import CHECKOUT
from tests.conftest import end_service, free_port, make_settings, start_service
from tests.previous_release.make_state import RECORDED, STATE, WAREHOUSE

HERE = Path(__file__).parent
TICKS = 4


class Upgraded:
    """The unpacked state, opened by this code at the moment when the former platform had stopped."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance, clock: Clock) -> None:
        from shop import feeds
        from shop.definitions import defs

        self.settings, self.instance, self.clock, self.defs, self.feeds = settings, instance, clock, defs, feeds.FEEDS
        self.recorded: dict[str, Any] = json.loads((settings.state_dir / RECORDED).read_text())
        self.repository = defs.get_repository_def()
        self.graph = self.repository.asset_graph
        states = instance.all_instigator_state()
        self.start_cloud()
        self.cursors = {s.instigator_name: getattr(s.instigator_data, "cursor", None) for s in states}

    def tick(self, name: str) -> list[dg.RunRequest]:
        """Evaluate a sensor once, with the cursor that the former release left."""
        sensor = self.repository.get_sensor_def(name)
        with dg.build_sensor_context(self.instance, self.cursors.get(name), repository_def=self.repository) as context:
            result = sensor.evaluate_tick(context)
        self.cursors[name] = result.cursor
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return list(result.run_requests or ())

    def requested(self, ticks: int = TICKS) -> list[tuple[str, str | None]]:
        """Return the partitions that the planner's sensors request within some ticks."""
        found = []
        for _ in range(ticks):
            for name in ("automation", "catch_up"):
                for run in self.tick(name):
                    found += [(key.to_user_string(), run.partition_key) for key in run.asset_selection or ()]
            self.clock.now += 5
        return found

    def built(self, asset: str, partition: str) -> None:
        """A run builds a partition, and its checks pass."""
        log, run_id = SimulatedLog(self.instance, self.clock, self.graph), make_new_run_id()
        log.created(run_id, [asset], {"dagster/partition": partition})
        log.state(run_id, DagsterEventType.RUN_START)
        self.clock.now += 1
        log.materialized(run_id, asset, {partition: run_id}, "1")
        for check in log.checks_of([asset]):
            log.checked(run_id, check, passed=True)
        log.state(run_id, DagsterEventType.RUN_SUCCESS)
        self.clock.now += 1

    def land(self, key: str, body: bytes, at: datetime) -> None:
        """A file lands at a time of the clock, which the local cloud does not know."""
        end_service(self.cloud)
        stored = StoredObject(key, body, md5(body).hexdigest(), at.replace(tzinfo=None).isoformat())
        ObjectFolder(self.settings.state_dir / "objects").write("landing", stored)
        self.start_cloud()

    def start_cloud(self) -> None:
        """Start the local cloud on the stored objects, on a port that no former cloud had."""
        port = free_port()
        update = {"port_cloud": port, "aws_endpoint_url": f"http://127.0.0.1:{port}"}
        self.settings = self.settings.model_copy(update=update)
        log = self.settings.state_dir / "cloud.log"
        self.cloud = start_service("dagster_tidemark.local.cloud.server", self.settings, port, log)

    def look(self) -> int:
        """List the bucket, as `tidemark up` does. Return the number of partitions that changed."""
        return len(reconcile_instance(self.settings, self.feeds, self.instance).changed)

    def table(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table."""
        options = {
            "uri": f"sqlite:///{self.settings.state_dir}/catalog.db",
            "warehouse": WAREHOUSE,
            "s3.endpoint": str(self.settings.aws_endpoint_url),
            "s3.access-key-id": "tidemark",
            "s3.secret-access-key": "tidemark",
            "s3.region": "us-east-1",
        }
        rows = load_catalog("lake", type="sql", **options).load_table(name).scan().to_arrow().to_pylist()
        found: list[dict[str, Any]] = json.loads(json.dumps(rows, default=str))
        return found

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the data of `tidemark status`, by asset."""
        return {row.asset: row.as_dict() for row in contract_rows.rows(self.instance, self.graph)}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked state of the former release."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(STATE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "state"


@pytest.fixture(scope="module")
def upgraded(packed: Path) -> Iterator[Upgraded]:
    """The state, opened by this code with a local cloud that serves its objects."""
    recorded = json.loads((packed / RECORDED).read_text())
    settings = make_settings(packed).model_copy(
        update={"warehouse": WAREHOUSE, "start_date": datetime(2026, 11, 23).date(), "code_location": "shop"}
    )
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in settings.exports().items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(HERE))
        cloud = start_service(
            "dagster_tidemark.local.cloud.server", settings, settings.port_cloud, packed / "cloud.log"
        )
        stack.callback(end_service, cloud)
        clock = Clock(recorded["stopped_at"] + 1)
        stack.enter_context(clock.frozen())
        patch.setattr(s3, "_answered_at", lambda headers: datetime.fromtimestamp(clock.now, UTC))  # the cloud's clock
        instance = stack.enter_context(opened_home(settings))
        end_unfinished_runs(instance)
        made = Upgraded(settings, instance, clock)
        stack.callback(lambda: end_service(made.cloud))
        yield made
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]


def test_every_contract_stands_as_the_former_release_left_it(upgraded: Upgraded) -> None:
    before = {row["asset"]: row for row in upgraded.recorded["status"]}
    found = upgraded.status()
    assert found.keys() == before.keys()
    same = ("contract", "state", "pending", "due", "last_run", "last_built", "set_aside", "source", "files_rejected",
            "rows_rejected", "asap")  # fmt: skip
    for asset, row in before.items():
        kept = {name: row[name] for name in same}
        now = {name: found[asset][name] for name in same}
        assert json.loads(json.dumps(now)) == kept, asset


def test_nothing_is_requested_and_no_table_is_planned(upgraded: Upgraded) -> None:
    assert upgraded.look() == 0, "no file counts as changed"
    assert upgraded.requested() == []
    plan = plan_of(upgraded.defs, upgraded.instance, contract_scale=1.0)
    assert {asset.key: asset.rebuilds for asset in plan.assets if asset.rebuilds} == {}


def test_the_built_partitions_of_a_deleted_run_are_known(upgraded: Upgraded) -> None:
    assert upgraded.instance.get_run_by_id(upgraded.recorded["deleted_run"]) is None
    history = engine.engine_for(upgraded.instance, upgraded.graph).planner.history
    rows = upgraded.recorded["tables"]["core.sales"]
    hours = {row["hour"].replace(" ", "T")[:16].replace("T", "-") for row in rows}
    assert hours <= {partition for asset, partition in history.facts.builds() if asset == "core/sales"}


def test_tables_and_quarantine_are_read_as_they_were(upgraded: Upgraded) -> None:
    for name, rows in upgraded.recorded["tables"].items():
        assert sorted(map(str, upgraded.table(name))) == sorted(map(str, rows)), name
    reasons = Counter(row["reason"] for row in upgraded.table("ops.quarantine"))
    assert {"negative", "absurd"} <= reasons.keys() and len(reasons) >= 3


def test_the_preview_is_read_and_can_be_dropped(upgraded: Upgraded) -> None:
    folder = upgraded.settings.state_dir
    assert Store.names(folder) == [DEFAULT] and half_published(folder) == []
    found = Store(folder).read()
    assert found is not None and found.is_built and next(own.asset for own in found.tables) == "marts/daily"
    assert found.form == manifest._FORM


def test_the_lock_is_read_and_asks_to_be_written_again(upgraded: Upgraded) -> None:
    lock = lock_file.read(upgraded.settings.state_dir / lock_file.NAME)
    assert lock.assets["core/sales"].code_version == "1"
    project = Project(HERE, "shop")
    assets = assets_of(upgraded.defs.assets or (), project)
    kinds = {finding.difference for finding in lock_file.differences(lock, assets) if finding.asset in assets}
    assert lock.format == FORMAT or kinds <= {lock_file.Difference.OUTDATED}


def test_a_file_that_lands_afterwards_is_built_once(upgraded: Upgraded) -> None:
    at = datetime.fromtimestamp(upgraded.clock.now, UTC)
    hour = at - timedelta(hours=5)
    upgraded.land(f"sales/dt={hour:%Y-%m-%d}/hour={hour:%H}/late.csv", b"sale_id,amount_usd\n9,9.00\n", at)
    assert upgraded.look() == 1
    partition, day = f"{hour:%Y-%m-%d-%H:00}", f"{hour:%Y-%m-%d}"
    assert upgraded.requested() == [("core/sales", partition)]
    upgraded.built("core/sales", partition)
    assert upgraded.requested() == [("marts/daily", day)]
    upgraded.built("marts/daily", day)
    upgraded.clock.now += 120
    assert upgraded.requested() == []


def test_the_page_on_upgrading_names_what_is_stored_and_its_form() -> None:
    page = (CHECKOUT / "docs" / "upgrading.md").read_text()
    tags = (CHECKOUT / "dagster_tidemark" / "tags.py").read_text()
    stored = re.findall(r'^[A-Z_]+ = "((?:\.dagster/)?tidemark/[\w/-]+)"', tags, re.M)
    assert len(stored) > 25
    assert [name for name in stored if f"`{name}`" not in page] == []
    code = "".join(path.read_text() for path in (CHECKOUT / "dagster_tidemark").rglob("*.py"))
    properties = set(re.findall(r'"(tidemark\.[\w-]+)"', code))
    assert len(properties) >= 8
    for name in properties:
        assert f"`{name}`" in page, name
    row: Mapping[str, str] = {
        line.split("|")[1].split("**")[1]: line.split("|")[-2] for line in page.splitlines() if line.startswith("| **")
    }
    assert row["Checkpoint"].startswith(f" {checkpoint._FORM}, in parts {checkpoint.FORM_IN_PARTS};")
    assert row["Journal"] == f" {journal._FORM} "
    assert row["Branches and manifests of previews"].startswith(f" {manifest._FORM};")
    assert row["The lock"].startswith(f" {FORMAT};")
    assert row["Looks and beats"].startswith(f" overview {saved_overview._VERSION};")
