"""The rows of a table's partitions, as materializations in a real event log report them."""

import dagster as dg

from dagster_tidemark.event_log.observations import CONTENT
from dagster_tidemark.incidents.arrivals import ArrivedFiles, ArrivedVersion
from dagster_tidemark.incidents.contents import ROW_COUNT, ContentReader
from dagster_tidemark.tags import ARRIVED_AT

KEY, RAW = dg.AssetKey(["core", "orders"]), dg.AssetKey(["raw", "orders"])


def report(instance: dg.DagsterInstance, partition: str, rows: int | None) -> None:
    metadata = {} if rows is None else {ROW_COUNT: rows}
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=partition, metadata=metadata))


def test_rows_are_read_again_only_after_a_new_build() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        report(instance, "a", 3)
        report(instance, "b", None)
        reader = ContentReader(instance)
        assert reader.rows("core/orders", {"a": 1, "b": 2, "c": 3}) == {"a": 3}
        report(instance, "a", 5)
        assert reader.rows("core/orders", {"a": 1}) == {"a": 3}, "the same build"
        assert reader.rows("core/orders", {"a": 4}) == {"a": 5}


def observe(instance: dg.DagsterInstance, partition: str, files: int, arrived_at: float) -> None:
    metadata = {"files": files, "bytes": 10 * files, CONTENT: f"digest {files}"}
    tags = {ARRIVED_AT: f"{arrived_at:.3f}"}
    instance.report_runless_asset_event(dg.AssetObservation(RAW, partition=partition, metadata=metadata, tags=tags))


def test_known_versions_of_a_window_are_read_with_the_rows_of_their_loads() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        observe(instance, "a", 1, 100.0)
        observe(instance, "b", 9, 100.0)
        observe(instance, "a", 2, 200.0)
        report(instance, "a", 3)
        report(instance, "a", 7)
        observe(instance, "a", 3, 300.0)
        reader = ContentReader(instance)
        found = reader.versions("raw/orders", ["core/orders"], {"a": "3"})
        assert found == {
            "a": [
                ArrivedVersion(100.0, ArrivedFiles(1, 10, "digest 1")),
                ArrivedVersion(200.0, ArrivedFiles(2, 20, "digest 2"), 7),
                ArrivedVersion(300.0, ArrivedFiles(3, 30, "digest 3")),
            ]
        }
        observe(instance, "a", 4, 400.0)
        assert reader.versions("raw/orders", ["core/orders"], {"a": "3"}) == found, "the same data version"
        assert len(reader.versions("raw/orders", ["core/orders"], {"a": "4"})["a"]) == 4
