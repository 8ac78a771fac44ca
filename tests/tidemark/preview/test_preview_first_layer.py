"""A changed table that is loaded from files, tried on branches and published: rows, quarantine and the mart below.

DuckDB judges, from the files. Three days of core/orders on a whole platform are a proof
(`tests.proof.test_preview_orders_live`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading import load
from dagster_tidemark.preview import preview_runs, publish
from dagster_tidemark.settings import Settings
from tests.tidemark.first_layer import OLD, Code, Layer

# Dagster warns about its own nested resources, and about beta features that the project uses deliberately.
pytestmark = [
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run"),
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
]

NEW = Code("2", limit=410, factor=3, key=("id", "k"), more=True)


class Killed(BaseException):
    """Simulates a killed process: `except Exception` does not catch it."""


@pytest.fixture
def layer(spark: SparkSession, cloud: Settings, spark_server: Settings, tmp_path: Path) -> Iterator[Layer]:
    with DagsterInstance.ephemeral() as instance:
        made = Layer(spark, spark_server, instance, tmp_path, hours=4)
        made.fill()
        yield made
        if (left := made.store.read()) is not None:
            preview_runs.discard(spark, made.tables(), made.store, left)


def test_changed_load_is_previewed_with_quarantine_and_published_without_reading_files(layer: Layer) -> None:
    layer.built()
    assert layer.found() == layer.expected(OLD)
    before, code = layer.found(), layer.code(NEW)
    assert {a.key.partition("/")[2]: len(a.rebuilds) for a in layer.plan(code).assets} == {"core": 4, "daily": 1}
    manifest = layer.preview(code, NEW)
    assert not manifest.left_out
    core, daily, quarantine = layer.expected(NEW)
    assert layer.core(f"lake.{layer.tag}.core.branch_{manifest.branch}") == core
    assert layer.quarantine(manifest.branch) == quarantine
    assert manifest.of(f"{layer.tag}/core").turned_away["too_large"] == [4, 8], "b.csv is above the new limit"
    assert layer.found() == before, "readers see nothing"
    assert layer.lake.loaded == [(key, "1") for key in layer.partitions()], "no ordinary load ran"

    opened = layer.opened
    layer.daily_ran.clear()
    found = layer.publish(code, NEW)
    assert layer.found() == (core, daily, quarantine)
    halves = layer.spark.table(f"lake.{layer.tag}.core").where("half IS NULL OR half <> n div 2")
    assert not halves.count(), "the column that is new"
    assert not found.left and layer.opened == opened and not layer.daily_ran, "nothing was read or computed"
    assert layer.left(code) == {} and layer.branches() == set()
    # The next load finds nothing to do: it knows each file of the published rows and entries.
    layer.run(code, "core", layer.partitions())
    assert layer.found() == (core, daily, quarantine)


def test_only_partitions_with_new_files_are_reloaded_after_publishing(layer: Layer) -> None:
    old = layer.built()
    code = layer.code(NEW)
    layer.preview(code, NEW)
    seen, unseen = layer.partitions()[1], layer.partitions()[2]
    layer.put(seen, "late.csv", "id,n,k\n500,20,0\n501,990,0\n502,7000,1\n503,8000,1\n")
    layer.observe()
    layer.run(old, "core", [seen])  # with the code that is still deployed
    layer.put(unseen, "late.csv", "id,n,k\n600,30,0\n")  # the sensor has not looked yet
    found = layer.publish(code, NEW)
    assert found.left == {f"{layer.tag}/core": [seen], f"{layer.tag}/daily": layer.days()}
    entries = [entry for entry in layer.quarantine() if entry[2] is not None]
    assert layer.told_of_quarantine() == len(entries), "the check tells of today's quarantine, not of the preview's"
    layer.observe()
    layer.deploy(code)
    layer.lake.loaded.clear()
    layer.run(code, "core", [seen, unseen])
    layer.run(code, "daily", layer.days())
    assert layer.found() == layer.expected(NEW)
    assert layer.left(code) == {}


@pytest.mark.proof  # tests.proof.test_preview_first_layer does it with three days; test_preview.py has a kill anywhere
def test_publish_of_a_load_killed_at_every_boundary_is_completed_when_repeated(
    layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer.built()
    code = layer.code(NEW)
    layer.preview(code, NEW)
    expected, opened = layer.expected(NEW), layer.opened
    died: list[str] = []

    def reached(boundary: str) -> None:
        if died.count(boundary) < 2:  # each boundary is passed once for each of the two tables
            died.append(boundary)
            raise Killed

    monkeypatch.setattr(publish, "reached", reached)
    for _ in range(20):
        try:
            layer.publish(code, NEW)
            break
        except Killed:
            core = layer.core()
            assert core in (expected[0], layer.expected(OLD)[0]), "readers see a mixture"
            if core == expected[0]:
                assert layer.quarantine() == expected[2], "rows left the table before they were in the quarantine"
    boundaries = {"preview_decided", "preview_quarantined", "preview_committed", "preview_reported"}
    assert set(died) == boundaries
    assert layer.found() == expected and layer.opened == opened
    assert layer.left(code) == {} and layer.branches() == set() and layer.store.read() is None


@pytest.mark.proof
def test_failed_or_discarded_preview_of_a_load_leaves_nothing(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    layer.built()
    before, code = layer.found(), layer.code(NEW)
    manifest = layer.preview(code, NEW, layer.partitions()[0])
    assert layer.branches() == {manifest.branch}
    preview_runs.discard(layer.spark, layer.tables(NEW), layer.store, manifest)
    assert layer.branches() == set()

    def dies(boundary: str) -> None:
        if boundary == "between_quarantine_and_table":
            raise Killed

    monkeypatch.setattr(load, "reached", dies)
    with pytest.raises(preview_runs.PreviewFailed, match="Killed"):
        layer.preview(code, NEW)
    left = layer.store.read()
    assert left is not None
    preview_runs.discard(layer.spark, layer.tables(NEW), layer.store, left)
    assert layer.branches() == set() and layer.found() == before
