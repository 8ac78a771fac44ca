"""The checks on the laptop's services: green, and with each part broken in turn they name that part."""

from pathlib import Path

import pytest

from dagster_tidemark.doctor import Declared, checks_of
from dagster_tidemark.doctor.checks import outcomes
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.sqs import create_queue
from tests.conftest import free_port

BROKEN = {
    "catalog": {"catalog_uri": "jdbc:sqlite:/nowhere/catalog.db"},
    "spark": {"spark_remote": "sc://127.0.0.1:{port}"},
    "spark job": {"catalog_uri": "jdbc:sqlite:{state}/other.db"},
    "spark workers": {"spark_remote": "sc://127.0.0.1:{port}"},
    "landing bucket": {"landing_bucket": "elsewhere"},
    "queue landing-events": {"aws_region": "eu-west-1", "port_cloud": 1},
    "queue doctor-pings": {"aws_region": "eu-west-1", "port_cloud": 1},
    "dagster": {"dagster_home": None},
}
"""A setting that breaks each part."""


@pytest.fixture
def arranged(cloud: Settings, spark_server: Settings, tmp_path: Path) -> Settings:
    """The laptop's services with an instance and a queue of this test."""
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    create_queue("doctor-pings", **cloud.aws_options())
    return cloud.model_copy(update={"dagster_home": tmp_path})


@pytest.mark.proof
def test_each_part_is_green_and_named_when_it_is_broken(arranged: Settings) -> None:
    declared = Declared(received=("doctor-pings",))
    found = outcomes(checks_of(arranged, declared))
    assert [each for each in found if each.verdict != "ok"] == []
    assert {each.check for each in found} == {*BROKEN, "settings", "packages"}
    assert not [name for (name,) in open_lake(arranged).list_namespaces() if name.startswith("tidemark_doctor")]
    assert not list(Path(arranged.warehouse).glob("tidemark_doctor*"))
    port = str(free_port())
    for part, change in BROKEN.items():
        values = {
            name: value.format(port=port, state=arranged.state_dir) if isinstance(value, str) else value
            for name, value in change.items()
        }
        broken = arranged.model_copy(update=values)
        if "port_cloud" in values:  # another region has no queues, and its bucket is the same
            broken = broken.model_copy(update={"port_cloud": arranged.port_cloud})
        [named] = outcomes([check for check in checks_of(broken, declared) if check.name == part])
        assert (named.check, named.verdict) == (part, "failed"), named
        assert named.remedy and "\n" not in named.found
