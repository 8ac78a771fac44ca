"""The whole platform on the state of the previous release: nothing is built again, and a new file is built once.

Belongs here: daemon, Spark and the local cloud on that state. Does not belong here: what is read of it without them
(`tests/previous_release/test_upgrade.py`).
"""

import json
import shutil
import tarfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from tests.checkout import CHECKOUT
from tests.live.waiting import eventually, holds_for
from tests.previous_release.make_state import HERE, RECORDED, STATE, Release, require
from tests.proof.conftest import Report

QUIET_SECONDS = 90
MAY_RUN = {"marts/weekly"}
"""Its deadline may have passed since the state was made: then it is due, by either release."""


def project(folder: Path) -> Release:
    """The shop as a user has it after the upgrade, and the state of the previous release."""
    code = folder / "code"
    shutil.copytree(HERE / "shop", code / "shop")
    shutil.copy(CHECKOUT / "dagster.yaml", code)
    workspace = (CHECKOUT / "workspace.yaml").read_text().replace("pipelines.definitions", "shop.definitions")
    (code / "workspace.yaml").write_text(workspace)
    (code / "pyproject.toml").write_text('[tool.tidemark]\npackage = "shop"\n')
    with tarfile.open(STATE) as archive:
        archive.extractall(folder, filter="data")
    shutil.copy(folder / "state" / "code-versions.lock", code)
    return Release(code, folder / "state", "dagster_tidemark")


def test_upgraded_platform_builds_nothing_again_and_loads_new_files_once(tmp_path: Path, report: Report) -> None:
    release = project(tmp_path)
    recorded = json.loads((release.state / RECORDED).read_text())
    with dg.DagsterInstance.from_config(str(release.state / "dagster"), "none.yaml") as instance:
        before = {run.run_id for run in instance.get_runs()}

        def built() -> Counter[str]:
            new = [run for run in instance.get_runs() if run.run_id not in before and run.asset_selection]
            return Counter(key.to_user_string() for run in new for key in run.asset_selection or ())

        begun = time.monotonic()
        with release.running(tmp_path / "platform.log"):
            started = time.monotonic() - begun
            holds_for(lambda: require(built().keys() <= MAY_RUN, built()), seconds=QUIET_SECONDS, every=3)
            for name in ("core.sales", "raw.readings", "alerts.warm", "ops.quarantine"):
                assert sorted(map(str, release.rows(name))) == sorted(map(str, recorded["tables"][name])), name
            states = {
                row["asset"]: row["state"] for row in json.loads(release.command("status", "--json", may_fail=True))
            }
            assert "unknown" not in states.values() and states["core/sales"] == "met", states

            at = datetime.now(UTC) - timedelta(hours=3)
            key = f"sales/dt={at:%Y-%m-%d}/hour={at:%H}/late.csv"
            release.client("s3").put_object(Bucket="landing", Key=key, Body=b"sale_id,amount_usd\n9,9.00\n")
            eventually(lambda: require(_amounts(release) == ["9.00"]), seconds=240, every=2)
            eventually(lambda: require(built()["marts/daily"] == 1, built()), seconds=240, every=2)
            holds_for(lambda: require(built()["core/sales"] == 1 == built()["marts/daily"]), seconds=40, every=3)

            queue = release.client("sqs").get_queue_url(QueueName="alerts")["QueueUrl"]
            sent = release.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
            assert sent == [], "an alert that was sent is not sent again"
        figures = {
            "release": recorded["version"],
            "ready_seconds": round(started, 1),
            "seconds_without_a_run": QUIET_SECONDS,
            "runs_after_a_new_file": dict(built()),
        }
        report("upgrade", figures)


def _amounts(release: Release) -> list[str]:
    return [row["amount_usd"] for row in release.rows("core.sales") if row["sale_id"] == 9]
