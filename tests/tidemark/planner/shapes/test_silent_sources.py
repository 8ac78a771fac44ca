"""One source of several that never has data: the table is late, whatever the partitions of the table and its inputs."""

from typing import Any

import dagster as dg
import pytest

from tests.tidemark.planner.shapes.playing import REGIONS, built, mapped, play
from tests.tidemark.toy_graph import DAYS, HOURS, asset, lag, source, within

DAY = "2026-10-04"
ALL, OF_DAY, OF_REGION = (
    dg.AllPartitionMapping(),
    dg.MultiToSingleDimensionPartitionMapping("day"),
    dg.MultiToSingleDimensionPartitionMapping("region"),
)
MONTHS = dg.MonthlyPartitionsDefinition("2026-01-01", end_offset=1)
MULTI = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})

Shape = tuple[list[Any], tuple[str, str | None], tuple[str, str | None]]


def shape(
    x: dg.PartitionsDefinition | None,
    y: dg.PartitionsDefinition | None,
    by: dg.PartitionsDefinition | None,
    of_x: str | dg.AssetDep = "raw/x",
    of_y: str | dg.AssetDep = "raw/y",
) -> list[Any]:
    """Two sources, and a table with a contract that reads both."""
    return [source("x", x), source("y", y), asset("mart", of_x, of_y, by=by, freshness_policy=lag(hours=1))]


X, Y, X_DAY, Y_DAY = ("raw/x", None), ("raw/y", None), ("raw/x", DAY), ("raw/y", DAY)
ALL_X, ALL_Y, MART = mapped("raw/x", ALL), mapped("raw/y", ALL), lag(hours=1)
SHAPES: dict[str, Shape] = {
    "table without partitions": (shape(DAYS, DAYS, None), X_DAY, Y_DAY),
    "no partitions at all": (shape(None, None, None), X, Y),
    "table without partitions, silent source without": (shape(DAYS, None, None), X_DAY, Y),
    "table without partitions, silent source with days": (shape(DAYS, None, None), Y, X_DAY),
    "table below a table without partitions": (
        [
            source("x", DAYS),
            source("y", DAYS),
            asset("core", "raw/x", "raw/y"),
            asset("mart", "core", freshness_policy=MART),
        ],
        X_DAY,
        Y_DAY,
    ),
    "unbuilt input": (
        [
            source("x", DAYS),
            source("y", DAYS),
            asset("core", "raw/x", by=DAYS),
            asset("mart", "core", "raw/y", freshness_policy=MART),
        ],
        X_DAY,
        Y_DAY,
    ),
    "days of all": (shape(DAYS, DAYS, DAYS, ALL_X, ALL_Y), X_DAY, Y_DAY),
    "static keys of all": (shape(DAYS, DAYS, REGIONS, ALL_X, ALL_Y), X_DAY, Y_DAY),
    "same key and all, all silent": (shape(DAYS, DAYS, DAYS, "raw/x", ALL_Y), X_DAY, Y_DAY),
    "same key and all, same key silent": (shape(DAYS, DAYS, DAYS, "raw/x", ALL_Y), Y_DAY, X_DAY),
    "same static key and all, same key silent": (shape(REGIONS, DAYS, REGIONS, "raw/x", ALL_Y), Y_DAY, ("raw/x", "eu")),
    "days and an input without partitions": (shape(DAYS, None, DAYS), Y, X_DAY),
    "day and month, month silent": (shape(DAYS, MONTHS, DAYS, of_y=within("raw/y")), X_DAY, ("raw/y", "2026-10-01")),
    "day and month, day silent": (shape(DAYS, MONTHS, DAYS, of_y=within("raw/y")), ("raw/y", "2026-10-01"), X_DAY),
    "day of several dimensions": (shape(DAYS, MULTI, MULTI, mapped("raw/x", OF_DAY)), X_DAY, ("raw/y", f"{DAY}|eu")),
    "region of several dimensions": (
        shape(REGIONS, MULTI, MULTI, mapped("raw/x", OF_REGION)),
        ("raw/x", "eu"),
        ("raw/y", f"{DAY}|eu"),
    ),
    "table below days and an input without partitions": (
        [
            source("x", DAYS),
            source("y"),
            asset("core", "raw/x", "raw/y", by=DAYS),
            asset("mart", "core", freshness_policy=MART),
        ],
        Y,
        X_DAY,
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_table_is_late_until_its_silent_source_speaks(name: str) -> None:
    assets, speaks, silent = SHAPES[name]
    simulation = play(assets)
    simulation.arrive(*speaks, at=simulation.time(minutes=5))
    simulation.run(hours=1, minutes=4)
    assert str(simulation.standings()["mart"].verdict) == "met"
    simulation.run(minutes=2)
    judged = simulation.standings()["mart"]
    assert (str(judged.verdict), judged.deadline) == ("breached", simulation.time(hours=1, minutes=5))
    assert f"{silent[0]} never had data" in judged.reason and f"{speaks[0]} silent" not in judged.reason
    simulation.run(hours=4)
    assert str(simulation.standings()["mart"].verdict) == "breached"
    simulation.arrive(*silent, at=simulation.time(hours=6))
    simulation.run(hours=3)
    assert built(simulation, "mart")
    assert str(simulation.standings()["mart"].verdict) == "met", simulation.standings()["mart"].reason


def test_quiet_hour_is_not_late_after_the_source_has_spoken() -> None:
    tables = shape(HOURS, DAYS, HOURS, of_y=within("raw/y"))
    simulation = play(tables)
    for day in (0, 1):
        simulation.arrive("raw/y", f"2026-10-0{5 + day}", at=simulation.time(days=day, minutes=1))
    simulation.arrive("raw/x", "2026-10-05-01:00", at=simulation.time(hours=1, minutes=5))
    for _ in range(30):
        simulation.run(hours=1)
        assert str(simulation.standings()["mart"].verdict) == "met", simulation.standings()["mart"].reason
