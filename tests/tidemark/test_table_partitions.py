"""A table that says otherwise than its asset which partition a row is in is refused as the location loads, by name."""

import dagster as dg
import pytest

from dagster_tidemark import ByDimensions, ByKey, ByTime, Table, build_definitions, load_settings
from dagster_tidemark.lakehouse.partitioning import Partitioning
from dagster_tidemark.table_partitions import PartitionsDiffer

DAYS = dg.DailyPartitionsDefinition("2026-10-01")
REGIONS = dg.StaticPartitionsDefinition(["north", "south"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
COLUMNS = {"day": "date", "at": "timestamp", "region": "string"}
DAY, REGION = ByTime("day"), ByKey("region")

Definition = dg.PartitionsDefinition[str] | None
By = Partitioning | str | None


def loaded(definition: Definition, by: By, key: str = "sales") -> dg.Definitions:
    @dg.asset(key=["marts", key], partitions_def=definition)
    def _sales() -> None: ...

    table = Table(f"marts.{key}", COLUMNS, row_key=("day",), partitioned_by=by)
    return build_definitions(load_settings(), [_sales], (), [table])


@pytest.mark.parametrize(
    ("definition", "by"),
    [
        (None, None),
        (DAYS, "day"),
        (DAYS, DAY),
        (dg.HourlyPartitionsDefinition("2026-10-01-00:00"), "at"),
        (dg.MonthlyPartitionsDefinition("2026-10-01"), "day"),
        (dg.DailyPartitionsDefinition("2026-10-01", timezone="Europe/Berlin"), "day"),
        (
            dg.DailyPartitionsDefinition("2026-10-01", timezone="Europe/Berlin"),
            ByTime("at", format="%Y-%m-%d", timezone="Europe/Berlin"),
        ),
        (REGIONS, REGION),
        (dg.DynamicPartitionsDefinition(name="shops"), REGION),
        (BOTH, ByDimensions({"day": DAY, "region": REGION})),
    ],
)
def test_matching_partitions_are_accepted_at_load(definition: Definition, by: By) -> None:
    assert loaded(definition, by).resolve_asset_graph()


@pytest.mark.parametrize(
    ("definition", "by", "remedy"),
    [
        (None, "day", "give the asset a partitions_def"),
        (DAYS, None, r"write partitioned_by=ByTime\(<column>\)"),
        (DAYS, REGION, r"write partitioned_by=ByTime\(<column>\)"),
        (REGIONS, "day", r"write partitioned_by=ByKey\(<string column>\)"),
        (DAYS, "at", "write ByTime.*format='%Y-%m-%d'"),
        (
            dg.DailyPartitionsDefinition("2026-10-01", timezone="Europe/Berlin"),
            ByTime("at", format="%Y-%m-%d"),
            "write ByTime.*timezone='Europe/Berlin'",
        ),
        (BOTH, "day", "the dimensions day, region: write ByDimensions"),
        (BOTH, ByDimensions({"day": DAY, "area": REGION}), "dimensions day, region, the table area, day"),
        (BOTH, ByDimensions({"day": ByTime("at"), "region": REGION}), "dimension day: .*format='%Y-%m-%d'"),
    ],
)
def test_table_partitions_that_differ_are_refused_with_a_remedy(definition: Definition, by: By, remedy: str) -> None:
    with pytest.raises(PartitionsDiffer, match=rf"asset marts/sales, table marts\.sales: .*{remedy}"):
        loaded(definition, by)
