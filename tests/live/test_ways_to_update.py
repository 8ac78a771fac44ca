"""Each way to report an event of an asset, through a real webserver, and what a real daemon requests because of it.

`docs/asset-events.md` lists the ways; a test compares the list with the cases here. The location is
`tests.live.ways_location`; Spark and S3 have no part in this. All events are reported at once, each about partitions of
its own. Does not belong here: runs, *Materialize* and backfills (`tests.live.test_on_demand`), notifications of files
(`tests.live.test_arrivals`), and the queue of asset events (`tests.proof.test_two_deployments`).
"""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
import yaml

from dagster_tidemark.cli.contract_rows import rows
from dagster_tidemark.local.dagster.run_launcher import server_answers
from dagster_tidemark.local.host import process_tree
from tests import pages
from tests.checkout import CHECKOUT
from tests.conftest import free_port
from tests.live.ui import Ui
from tests.live.waiting import eventually, holds_for
from tests.live.ways_location import location

Builds = dict[tuple[str, str | None], int]
_NEVER = "2031-01-01"
"""A day that no asset of the location has."""


@dataclass(frozen=True)
class Way:
    """A way to report an event.

    Args:
        name: Its row in `docs/asset-events.md`.
        report: Reports.
        builds: How often a reader is built for a partition because of it; nothing else of the partition is built.
    """

    name: str
    report: Callable[[Ui], object]
    builds: Builds


def _run_command_of_docs(ui: Ui, asset: str) -> None:
    """Run the command with which `docs/asset-events.md` reports an event of an asset."""
    (shown,) = pages.blocks(pages.page("asset-events.md"), "sh")
    (command,) = [line for line in shown.replace("\\\n", "").splitlines() if f"/{asset} " in line]
    subprocess.run(["bash", "-c", command.replace("http://127.0.0.1:3000", ui.url)], check=True, capture_output=True)


def _days(reader: str, *days: int, times: int = 1) -> Builds:
    return {(reader, f"2026-10-{day:02}"): times for day in days}


WAYS = [
    Way(
        "a table of this code location, in the UI",
        lambda ui: ui.report_event("materialization", "core/customers"),
        {("marts/of_customers", None): 1},
    ),
    Way(
        "partitions of such a table, in the UI",
        lambda ui: ui.report_event("materialization", "core/orders", "2026-10-01", "2026-10-05"),
        _days("marts/of_orders", 1, 5),
    ),
    Way(
        "such a table, by REST",
        lambda ui: _run_command_of_docs(ui, "core/orders"),
        _days("marts/of_orders", 10),
    ),
    Way(
        "an external table, in the UI",
        lambda ui: ui.report_event("materialization", "ext/vendor", "2026-10-01"),
        _days("marts/of_vendor", 1),
    ),
    Way(
        "an external table, by REST",
        lambda ui: ui.post("materialization", "ext/vendor", partition="2026-10-05", data_version="1"),
        _days("marts/of_vendor", 5),
    ),
    Way(
        "an observation of an external table, in the UI",
        lambda ui: ui.report_event("observation", "ext/vendor", "2026-10-10"),
        _days("marts/of_vendor", 10),
    ),
    Way(
        "an observation of an external table, by REST",
        lambda ui: _run_command_of_docs(ui, "ext/rates"),
        {("marts/of_rates", None): 1},
    ),
    Way(
        "what an external table is made from",
        lambda ui: ui.post("materialization", "raw/upstream_of_vendor", partition="2026-10-15"),
        {},
    ),
    Way(
        "an observation of a table of this code location",
        lambda ui: ui.post("observation", "core/orders", partition="2026-10-15", data_version="1"),
        {},
    ),
    Way("a partition that the asset lacks", lambda ui: ui.post("materialization", "core/orders", partition=_NEVER), {}),
    Way("an asset that no code location has", lambda ui: ui.post("materialization", "core/unknown"), {}),
]


@dataclass(frozen=True)
class Played:
    """The platform after all events were reported and their runs have ended."""

    ui: Ui
    instance: dg.DagsterInstance

    def built(self) -> Builds:
        """How often runs have built each partition."""
        found: Counter[tuple[str, str | None]] = Counter()
        for asset in ("core/orders", "core/customers", *_READERS):
            for event in self.ui.materializations(asset):
                found[asset, event["partition"]] += event["runId"] != ""
        return dict(+found)


_READERS = ("marts/of_customers", "marts/of_orders", "marts/of_rates", "marts/of_vendor")
_EXPECTED: Builds = {key: count for way in WAYS for key, count in way.builds.items()}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, note: Callable[[str], None]) -> Iterator[Played]:
    """Webserver, daemon and code server of a home of their own, after every event was reported."""
    folder = tmp_path_factory.mktemp("ways")
    home = folder / "dagster"  # where the fork server expects it
    home.mkdir()
    (home / "dagster.yaml").symlink_to(CHECKOUT / "dagster.yaml")
    place = {"relative_path": str(Path(__file__).with_name("ways_location.py")), "location_name": "ways"}
    (home / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"python_file": place}]}))
    ui = Ui(free_port())
    own = {"DAGSTER_HOME": str(home), "WAYS_HOME": str(home), "TIDEMARK_STATE_DIR": str(folder)}
    own |= {"PYTHONPATH": str(CHECKOUT), "PYTHONWARNINGS": "ignore"}
    dev = ["dagster", "dev", "-w", str(home / "workspace.yaml"), "-h", "127.0.0.1", "-p", ui.url.rpartition(":")[2]]
    processes = []
    with dg.DagsterInstance.from_config(str(home)) as instance, (folder / "log").open("wb") as log:
        try:
            for module in (["dagster_tidemark.local.dagster.fork_server"], dev):
                command = [sys.executable, "-m", *module]
                processes.append(
                    subprocess.Popen(
                        command,
                        cwd=home,
                        env=os.environ | own,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
            eventually(lambda: _is_ready(ui, home), seconds=240)
            for way in WAYS:
                way.report(ui)
            found = Played(ui, instance)
            eventually(lambda: _is_built(found), seconds=120)
            yield found
        finally:
            for process in reversed(processes):
                process_tree.end_group(process, seconds=8)


def _is_ready(ui: Ui, home: Path) -> None:
    try:
        urllib.request.urlopen(f"{ui.url}/server_info", timeout=2).close()
    except OSError as error:
        raise AssertionError(error) from error
    assert server_answers(home), "the fork server does not answer"
    assert ui.partition_keys("ext/vendor"), "the code location is not loaded"


def _is_built(played: Played) -> None:
    built = played.built()
    assert not [key for key in _EXPECTED if key not in built], f"built so far: {built}"


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
def test_reported_event_requests_the_readers_of_the_asset(played: Played, way: Way) -> None:
    built = played.built()
    assert {key: built.get(key) for key in way.builds} == way.builds


def test_reported_events_request_nothing_else(played: Played) -> None:
    holds_for(lambda: _is_exactly_built(played), seconds=5)


def _is_exactly_built(played: Played) -> None:
    assert played.built() == _EXPECTED


def test_unknown_partition_is_set_aside_by_name_and_its_asset_goes_on(played: Played) -> None:
    found = {row.asset: row for row in rows(played.instance, location().resolve_asset_graph())}
    assert any(_NEVER in said for said in found["core/orders"].set_aside), found["core/orders"]
    assert found["marts/of_orders"].state == "met"


def test_equal_version_counts_once_as_an_observation_and_each_time_as_a_materialization(played: Played) -> None:
    played.ui.post("observation", "ext/rates", data_version="1")
    played.ui.post("materialization", "ext/vendor", partition="2026-10-05", data_version="1")

    def is_built_again() -> None:
        assert played.built()["marts/of_vendor", "2026-10-05"] == 2

    eventually(is_built_again, seconds=60)
    assert played.built()["marts/of_rates", None] == 1


def test_malformed_reports_are_refused_by_the_webserver(played: Played) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        played.ui.post("materialization", "ext/vendor", metadata="no object")
    assert played.ui.post("materialization", "ext/vendor", partition=_NEVER) == {}, "Dagster accepts any partition"


def test_docs_list_every_way_that_is_tested() -> None:
    (table,) = re.findall(r"^\| reported event \|.*?\n\n", pages.page("asset-events.md"), re.M | re.S)
    listed = [line.split("|")[1].strip() for line in table.splitlines()[2:] if line]
    assert listed == [way.name for way in WAYS]
