"""A feed whose assets or table are cut otherwise than its folders is refused as the location loads, by name."""

import re
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

import dagster_tidemark
from dagster_tidemark import (
    LINEAGE,
    ByDimensions,
    ByKey,
    ByTime,
    Feed,
    Grain,
    Table,
    build_definitions,
    feed_assets,
    load_settings,
)
from dagster_tidemark.lakehouse.partitioning import Partitioning
from dagster_tidemark.table_partitions import DeclarationRefused, PartitionsDiffer
from tests.checkout import CHECKOUT

REGIONS = dg.StaticPartitionsDefinition(["emea", "apac"])
DAYS = dg.DailyPartitionsDefinition("2026-09-28", end_offset=1)
HOURS = dg.HourlyPartitionsDefinition("2026-09-28-00:00", end_offset=1)
BERLIN = "Europe/Berlin"
BERLIN_HOURS = dg.HourlyPartitionsDefinition("2026-09-28-00:00", timezone=BERLIN, end_offset=1)
QUARTERS = dg.TimeWindowPartitionsDefinition(
    start="2026-09-28-00:00", cron_schedule="*/15 * * * *", fmt="%Y-%m-%d-%H:%M", end_offset=1
)
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
USED = ("LINEAGE", "ByDimensions", "ByKey", "ByTime", "Feed", "Grain", "Table", "feed_assets")
KEYS = {"region": REGIONS.get_partition_keys()}

BY_REGION: tuple[Grain, dict[str, Any], Partitioning] = (Grain.NONE, {"keys": KEYS}, ByKey("region"))
BY_DAY: tuple[Grain, dict[str, Any], Partitioning] = (Grain.DAY, {}, ByTime("day"))
BY_HOUR: tuple[Grain, dict[str, Any], Partitioning] = (Grain.HOUR, {}, ByTime("at"))
BY_BOTH = (Grain.DAY, {"keys": KEYS}, ByDimensions({"day": ByTime("day"), "region": ByKey("region")}))
IN_BERLIN = (Grain.HOUR, {"timezone": BERLIN}, ByTime("at", timezone=BERLIN))


def loaded(definition: Any, grain: Grain, more: dict[str, Any], by: Partitioning | None) -> dg.Definitions:
    prefix = "things.csv" if grain is Grain.NONE and not more else "things/"
    feed = Feed("things", prefix, grain, {"id": "bigint"}, required=("id",), **more)
    columns = {"day": "date", "at": "timestamp", "region": "string", "id": "bigint"} | LINEAGE
    table = Table("core.things", columns, row_key=tuple(columns)[:4], partitioned_by=by, comment="A thing")
    return build_definitions(load_settings(), feed_assets(feed, table, partitions_def=definition), [feed], [table])


@pytest.mark.parametrize(
    ("definition", "cut"),
    [
        (REGIONS, BY_REGION),
        (dg.StaticPartitionsDefinition(["apac", "emea"]), BY_REGION),
        (DAYS, BY_DAY),
        (BOTH, BY_BOTH),
        (HOURS, BY_HOUR),
        (BERLIN_HOURS, IN_BERLIN),
        (QUARTERS, (Grain.QUARTER_HOUR, {}, ByTime("at"))),
        (dg.WeeklyPartitionsDefinition("2026-09-28", day_offset=1), (Grain.WEEK, {}, ByTime("day"))),
        (dg.DailyPartitionsDefinition("2026-09-28", timezone=BERLIN), (Grain.DAY, {"timezone": BERLIN}, ByTime("day"))),
        (
            dg.MultiPartitionsDefinition({"date": DAYS, "region": REGIONS}),
            (
                Grain.DAY,
                {"keys": KEYS, "time_name": "date"},
                ByDimensions({"date": ByTime("day"), "region": ByKey("region")}),
            ),
        ),
        (None, (Grain.NONE, {}, None)),
    ],
)
def test_matching_partitions_are_accepted_at_load(
    definition: Any, cut: tuple[Grain, dict[str, Any], Partitioning | None]
) -> None:
    assert loaded(definition, *cut).resolve_asset_graph()


@pytest.mark.parametrize(
    ("definition", "cut", "said"),
    [
        (dg.DynamicPartitionsDefinition(name="regions"), BY_REGION, "use a StaticPartitionsDefinition"),
        (
            dg.StaticPartitionsDefinition(["emea"]),
            BY_REGION,
            r"only one of asset and feed has apac: write keys=\{'region': <the definition>.get_partition_keys\(\)\}",
        ),
        (HOURS, BY_DAY, r"start at '0 \* \* \* \*', .*: give it a DailyPartitionsDefinition\(\.\.\.\)"),
        (
            dg.DailyPartitionsDefinition("2026-09-28", hour_offset=6),
            BY_DAY,
            r"start at '0 6 \* \* \*', .*: give it a DailyPartitionsDefinition",
        ),
        (dg.DailyPartitionsDefinition("20260928", fmt="%Y%m%d"), BY_DAY, "written %Y%m%d: give it a Daily"),
        (dg.WeeklyPartitionsDefinition("2026-09-27"), (Grain.WEEK, {}, ByTime("day")), "WeeklyPart.*, day_offset=1"),
        (BERLIN_HOURS, BY_HOUR, r"has the time zone Europe/Berlin: write Feed\(timezone='Europe/Berlin'\)"),
        (HOURS, IN_BERLIN, r"has the time zone UTC: write Feed\(timezone='UTC'\)"),
        (
            dg.MultiPartitionsDefinition({"date": DAYS, "region": REGIONS}),
            BY_BOTH,
            r"dimensions date, region, the feed day, region: write Feed\(time_name='date'\)",
        ),
        (
            BOTH,
            BY_DAY,
            r"dimensions day, region, the feed day: declare the same in both",
        ),
        (
            dg.MultiPartitionsDefinition({"day": DAYS, "area": REGIONS}),
            BY_BOTH,
            r"dimensions area, day, the feed day, region: declare the same in both",
        ),
        (DAYS, BY_BOTH, "give the asset a MultiPartitionsDefinition of day, region"),
        (
            dg.MultiPartitionsDefinition({"day": HOURS, "region": REGIONS}),
            BY_BOTH,
            "dimension day: .*give it a DailyPartitionsDefinition",
        ),
        (
            dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.DynamicPartitionsDefinition(name="regions")}),
            BY_BOTH,
            "dimension region: .*use a StaticPartitionsDefinition",
        ),
    ],
)
def test_feed_partitions_that_differ_are_refused_for_both_assets(
    definition: Any, cut: tuple[Grain, dict[str, Any], Partitioning | None], said: str
) -> None:
    grain, more, _ = cut
    with pytest.raises(PartitionsDiffer) as refused:
        loaded(definition, grain, more, _table_of(definition))
    lines = str(refused.value).splitlines()
    assert [line.split(",")[0] for line in lines] == ["asset raw/things", "asset core/things"]
    for line in lines:
        assert re.search(said, line), line


def test_feeds_page_snippet_loads_by_day_and_region() -> None:
    page = (CHECKOUT / "docs" / "feeds.md").read_text()
    code = next(code for code in re.findall(r"```python\n(.*?)```", page, re.S) if code.startswith("REGIONS = "))
    found: dict[str, Any] = {name: getattr(dagster_tidemark, name) for name in USED}
    exec(code, found := found | {"dg": dg, "DAYS": DAYS, "LANDING": {"product_id": "bigint"}})
    assert build_definitions(load_settings(), found["ASSETS"], [found["FEED"]], [found["TABLE"]])
    assert found["FEED"].partition_of("stock/dt=2026-10-01/region=apac/a.csv") == "2026-10-01|apac"


def test_contract_of_a_feed_may_be_a_time_as_for_other_tables() -> None:
    feed = Feed("things", "things/", Grain.DAY, {"id": "bigint"}, required=("id",))
    columns = {"day": "date", "id": "bigint"} | LINEAGE
    table = Table("core.things", columns, row_key=("day", "id"), partitioned_by="day")
    _, built = feed_assets(feed, table, partitions_def=DAYS, fresh=timedelta(minutes=10))
    assert isinstance(built, dg.AssetsDefinition)
    (spec,) = built.specs
    assert spec.freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=10))


def _table_of(definition: Any) -> Partitioning:
    """What fits the definition, so that the feed alone is at odds."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return ByDimensions({each.name: _table_of(each.partitions_def) for each in definition.partitions_defs})
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return ByTime("at", format=definition.fmt, timezone=definition.timezone)
    return ByKey("region")


def test_rule_with_an_unknown_column_is_refused_at_load() -> None:
    said = "asset core/things: feed things: rule 'dear' reads 'fare', which is not declared; read one of the columns id"
    with pytest.raises(DeclarationRefused, match=said):
        loaded(
            DAYS, Grain.DAY, {"rules": {"dear": "fare < 100", "known": "id > 0 AND day > '2026-01-01'"}}, ByTime("day")
        )
