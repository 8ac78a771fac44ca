"""`tidemark reconcile` against a real bucket: what it prints, and how it ends."""

import json
import time
import uuid
from collections.abc import Iterator

import boto3
import pytest
from typer.testing import CliRunner, Result

from dagster_tidemark.cli.app import app
from dagster_tidemark.engine.complete_listings import read_listings
from dagster_tidemark.local.dagster.home import opened_home
from dagster_tidemark.sensors.reconcile_schedules import instance_of
from dagster_tidemark.settings import Settings, load_settings

KEY = "orders/dt=2026-10-01/hour=07/a.csv"


@pytest.fixture
def zone(cloud: Settings, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of our own that notifies nobody, and a Dagster home."""
    bucket = f"quiet-{uuid.uuid4().hex}"
    state = tmp_path_factory.mktemp("state")
    boto3.client("s3", **cloud.aws_options()).create_bucket(Bucket=bucket)
    toys = {"code_location": "tests.toys", "landing_bucket": bucket}
    settings = cloud.model_copy(update={**toys, "state_dir": state, "dagster_home": state / "dagster"})
    for name, value in settings.exports().items():
        monkeypatch.setenv(name, value)
    with opened_home(settings):
        pass
    yield bucket


def reconcile(*options: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["reconcile", *options])
    assert result.exit_code == code, result.output
    return result


def test_reconcile_reports_unnotified_changes_and_holds_suspicious_removals(zone: str, cloud: Settings) -> None:
    s3 = boto3.client("s3", **cloud.aws_options())
    s3.put_object(Bucket=zone, Key=KEY, Body=b"x")
    assert "orders: 1 partitions changed" in reconcile().stdout
    assert json.loads(reconcile("--json").stdout)["orders"] == {"changed": 0, "held": 0, "alarm": None}
    s3.delete_object(Bucket=zone, Key=KEY)
    assert "wrong bucket?" in reconcile(code=4).stderr
    assert json.loads(reconcile("--json", "--accept-removals").stdout)["orders"]["changed"] == 1
    assert "orders: 0 partitions changed" in reconcile().stdout


def test_reconcile_accepts_removals_of_one_feed_and_holds_those_of_others(zone: str, cloud: Settings) -> None:
    s3, prices = boto3.client("s3", **cloud.aws_options()), "prices/dt=2026-10-01/p.csv"
    for key in (KEY, prices):
        s3.put_object(Bucket=zone, Key=key, Body=b"x")
    reconcile()
    for key in (KEY, prices):
        s3.delete_object(Bucket=zone, Key=key)
    said = json.loads(reconcile("--json", "--accept-removals", "orders").stdout)
    assert {name: of["changed"] for name, of in said.items()} == {"orders": 1}
    assert json.loads(reconcile("--json", code=4).stdout)["prices"]["held"] == 1
    assert "there is no feed parrots; known feeds: orders" in reconcile("parrots", code=2).stderr


def test_complete_reconcile_is_a_check_of_the_sources_it_listed(zone: str, cloud: Settings) -> None:
    def listed() -> dict[str, float]:
        with instance_of(load_settings()) as instance:
            found = read_listings(instance, "tests.toys", ["orders", "prices", "customers"])
            return {feed: listing.at for feed, listing in found.items() if listing.at}

    reconcile("--days", "1")
    assert listed() == {}
    before = time.time()
    reconcile("orders")
    assert before <= listed().pop("orders") <= time.time() and len(listed()) == 1
    reconcile()
    assert {"orders", "prices"} <= listed().keys()


def test_reconcile_reports_a_missing_bucket_in_one_line(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_LANDING_BUCKET", "nowhere")
    lines = reconcile(code=1).stderr.splitlines()
    assert "bucket nowhere cannot be listed" in lines[-1]


def test_reconcile_without_a_dagster_home_names_the_command_that_creates_it(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "/nowhere")
    assert "`tidemark up`, which creates one on this machine" in reconcile(code=1).stderr
