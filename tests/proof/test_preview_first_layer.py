"""Three days of a changed load: previewed, two files landing in between, killed at every boundary, published.

DuckDB judges rows, quarantine and the mart below; a reader polls in its own session. Does not belong here: the same
on a whole platform (`tests.proof.test_preview_orders_live`).
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.preview import publish
from dagster_tidemark.settings import Settings
from tests.live.waiting import all_the_time
from tests.proof.conftest import Report
from tests.tidemark.first_layer import OLD, Code, Layer

pytestmark = [
    pytest.mark.proof,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run"),
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
]

NEW = Code("2", limit=430, factor=3, key=("id", "k"), more=True)
BOUNDARIES = ["preview_decided", "preview_quarantined", "preview_committed", "preview_reported"]


class Killed(BaseException):
    """Simulates a killed process: `except Exception` does not catch it."""


@pytest.fixture
def layer(
    spark: SparkSession, cloud: Settings, spark_server: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Layer]:
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "tests.toys")
    with DagsterInstance.ephemeral() as instance:
        made = Layer(spark, spark_server, instance, tmp_path, hours=72)
        made.fill()
        yield made


def test_changed_load_survives_new_files_and_kills_while_it_is_published(
    layer: Layer, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    old = layer.built()
    assert layer.found() == layer.expected(OLD)
    code, began = layer.code(NEW), time.monotonic()
    manifest = layer.preview(code, NEW)
    preview_seconds = time.monotonic() - began
    core, _, quarantine = layer.expected(NEW)
    assert layer.core(f"lake.{layer.tag}.core.branch_{manifest.branch}") == core
    assert layer.quarantine(manifest.branch) == quarantine

    loaded, unseen = layer.partitions()[20], layer.partitions()[50]
    layer.put(loaded, "late.csv", "id,n,k\n500,20,0\n501,990,0\n502,7000,1\n")
    layer.observe()
    layer.run(old, "core", [loaded])
    layer.put(unseen, "late.csv", "id,n,k\n600,30,0\n601,x,0\n")
    died: list[str] = []

    def reached(boundary: str) -> None:
        if died.count(boundary) < 2:
            died.append(boundary)
            raise Killed

    monkeypatch.setattr(publish, "reached", reached)
    opened, began = layer.opened, time.monotonic()
    layer.lake.loaded.clear()
    layer.daily_ran.clear()
    states: list[str] = []
    reader = new_session(layer.settings)

    def look() -> None:
        rows = reader.table(f"lake.{layer.tag}.core").where(f"hour <> to_timestamp('{loaded}', 'yyyy-MM-dd-HH:mm')")
        state = "+".join(sorted(row.loaded_by for row in rows.select("loaded_by").distinct().collect()))
        if states[-1:] != [state]:
            states.append(state)

    try:
        with all_the_time(look):
            for _ in range(20):
                try:
                    found = layer.publish(code, NEW)
                    break
                except Killed:
                    continue
    finally:
        reader.stop()
    publish_seconds = time.monotonic() - began
    assert Counter(died) == Counter(2 * BOUNDARIES)
    assert states == ["1", "2"], f"readers saw a mixture: {states}"
    assert layer.opened == opened, "publishing read a file"
    assert found.left == {f"{layer.tag}/core": [loaded], f"{layer.tag}/daily": layer.days()[:1]}
    assert not layer.lake.loaded
    assert not layer.daily_ran
    layer.observe()
    layer.deploy(code)
    again = {asset.key.partition("/")[2]: [r.partition for r in asset.rebuilds] for asset in layer.plan(code).assets}
    layer.run(code, "core", [loaded])  # the automation requests this because of the code
    layer.run(code, "core", [unseen])  # and because of the file
    layer.run(code, "daily", layer.days())
    assert layer.found() == layer.expected(NEW)
    assert layer.left(code) == {}
    assert not layer.branches()
    report(
        "preview-first-layer",
        {
            "what": "three days of a changed load (rule, transform, row key, new column) previewed and published: one "
            "file loaded by the old code in between, one that nobody has seen yet, two kills at each boundary",
            "rows": len(core),
            "entries in quarantine": len(quarantine),
            "seconds of the preview": round(preview_seconds, 1),
            "attempts to publish": len(died) + 1,
            "killed at": died,
            "seconds of all attempts": round(publish_seconds, 1),
            "states that readers saw": states,
            "left to the automation": again,
            "rows lost, doubled or computed twice": 0,
        },
    )
