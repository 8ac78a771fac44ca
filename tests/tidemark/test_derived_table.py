"""A table declared by `table_asset`, against the same asset with everything written out."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import Table, table_asset
from dagster_tidemark.derived_table import fitted_to_partitions

HOURS = dg.HourlyPartitionsDefinition("2026-10-05-00:00", end_offset=1)
DAYS = dg.DailyPartitionsDefinition("2026-10-05", end_offset=1)
COUNTRIES = dg.StaticPartitionsDefinition(["dk", "se"])
WITHIN = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
SALES = Table("marts.sales", {"day": "date", "sold": "bigint"}, partitioned_by="day", row_key=("day",))


def source(partitions: dg.PartitionsDefinition | None) -> dg.AssetSpec:
    return dg.AssetSpec(["core", "orders"], partitions_def=partitions)


def spec_of(*assets: Any) -> dg.AssetSpec:
    [found] = [each for each in fitted_to_partitions(assets) if isinstance(each, dg.AssetsDefinition)]
    (spec,) = found.specs
    return spec


def test_table_asset_equals_the_full_dagster_asset() -> None:
    @dg.asset(
        key=["marts", "sales"],
        ins={"orders": dg.AssetIn(key=["core", "orders"], partition_mapping=WITHIN)},
        group_name="marts",
        kinds={"iceberg", "pyspark"},
        partitions_def=DAYS,
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1)),
        backfill_policy=dg.BackfillPolicy.single_run(),
        code_version="3",
        owners=["team:sales"],
    )
    def written_out(orders: Any) -> Any:
        """One row per day."""

    @table_asset(
        SALES,
        ins={"orders": "core/orders"},
        partitions=DAYS,
        fresh=timedelta(hours=1),
        code_version="3",
        owners=["team:sales"],
    )
    def short(orders: Any) -> Any:
        """One row per day."""

    assert spec_of(source(HOURS), short) == spec_of(written_out)
    assert short.backfill_policy == written_out.backfill_policy


def test_each_derived_table_asset_option_can_be_overridden() -> None:
    @table_asset(
        SALES,
        ins={"orders": dg.AssetIn(key="orders_of_others")},
        fresh=dg.FreshnessPolicy.cron("0 9 * * *", timedelta(hours=1)),
        group_name="finance",
        kinds={"duckdb"},
        key=["finance", "sales"],
        backfill_policy=dg.BackfillPolicy.multi_run(3),
        partitions_def=DAYS,
    )
    def sales(orders: Any) -> Any: ...

    (spec,) = sales.specs
    assert (spec.key.to_user_string(), spec.group_name, spec.kinds) == ("finance/sales", "finance", {"duckdb"})
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey("orders_of_others")]
    assert spec.partitions_def == DAYS and isinstance(spec.freshness_policy, dg.FreshnessPolicy)
    assert sales.backfill_policy == dg.BackfillPolicy.multi_run(3)


def test_unpartitioned_table_asset_has_no_backfill_policy_and_no_mapping() -> None:
    @table_asset(SALES, ins={"orders": "core/orders"})
    def sales(orders: Any) -> Any: ...

    spec = spec_of(source(HOURS), sales)
    assert (spec.partitions_def, spec.freshness_policy, sales.backfill_policy) == (None, None, None)
    assert spec.deps[0].partition_mapping is None


@pytest.mark.parametrize("read", [DAYS, COUNTRIES, None])
def test_input_without_other_time_partitions_keeps_the_default_mapping(read: dg.PartitionsDefinition | None) -> None:
    @table_asset(SALES, ins={"orders": "core/orders"}, partitions=DAYS)
    def sales(orders: Any) -> Any: ...

    assert spec_of(source(read), sales).deps[0].partition_mapping is None


def test_declared_partition_mapping_of_an_input_is_kept() -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, allow_nonexistent_upstream_partitions=True)

    @table_asset(SALES, ins={"orders": dg.AssetIn(["core", "orders"], partition_mapping=before)}, partitions=DAYS)
    def sales(orders: Any) -> Any: ...

    assert spec_of(source(HOURS), sales).deps[0].partition_mapping == before
