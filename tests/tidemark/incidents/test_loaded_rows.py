"""The rows of a table's partitions, as materializations in a real event log report them."""

import dagster as dg

from dagster_tidemark.incidents.contents import ROW_COUNT, ContentReader

KEY = dg.AssetKey(["core", "orders"])


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
