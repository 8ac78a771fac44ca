"""What the planner is told of the partitions of each kind of definition, held against what Dagster itself says."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import PartitionLoadingContext
from dagster._core.types.pagination import PaginatedResults
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_tidemark.asset_graph.partition_keys import Keys, KeysOf
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Moment
from tests.tidemark.asset_graph.definitions_of_time import MOMENTS, definitions

NOW = datetime(2026, 10, 30, 12, tzinfo=UTC).timestamp()
DAYS = dg.DailyPartitionsDefinition("2026-10-01")
REGIONS = dg.StaticPartitionsDefinition(["north", "south", "west"])
SHOPS = dg.DynamicPartitionsDefinition(name="shops")
WEEKDAYS = dg.TimeWindowPartitionsDefinition(start="2026-10-01", fmt="%Y-%m-%d", cron_schedule="0 0 * * 1-5")


def keys_of(definition: dg.PartitionsDefinition | None, now: float = NOW, **dynamic: Sequence[str]) -> Keys:
    return KeysOf(Moment(now, dynamic))(definition)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def dagsters(definition: dg.PartitionsDefinition, now: float) -> list[str]:
    return list(definition.get_partition_keys(current_time=datetime.fromtimestamp(now, UTC)))


def dagsters_range(definition: dg.PartitionsDefinition, one: str, other: str) -> list[str]:
    return list(definition.get_partition_keys_in_range(dg.PartitionKeyRange(one, other)))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(definitions(), MOMENTS, st.data())
def test_time_partitions_exist_and_are_ordered_as_in_dagster(
    definition: dg.TimeWindowPartitionsDefinition, now: int, data: st.DataObject
) -> None:
    keys = keys_of(definition, now)
    found, expected = list(keys.keys()), dagsters(definition, now)
    # Dagster lists the very first partition of a definition with an end_offset before its time.
    assert found == expected or (definition.end_offset > 0 and not found and len(expected) == 1)
    for key in found[:2] + found[-3:]:
        begins = keys.exists_from(key)
        assert keys.exists(key) and keys.problem(key) is None and key in dagsters(definition, begins)
        assert key == found[0] or key not in dagsters(definition, begins - 1)
    if found:
        assert (keys.ends()[0], keys.ends()[-1]) == (found[0], found[-1])
        first = data.draw(st.integers(0, len(found) - 1))
        for last in range(first, min(first + 3, len(found))):
            one, other = found[first], found[last]
            assert keys.follows(one, other) == (last > first and dagsters_range(definition, one, other) == [one, other])
            assert not keys.follows(other, one)
    assert sorted(found, key=keys.order) == found


@pytest.mark.parametrize(
    ("definition", "key", "begins", "ends", "exists_from"),
    [
        (dg.MonthlyPartitionsDefinition("2026-01-01"), "2026-02-01", "2026-02-01", "2026-03-01", "2026-03-01"),
        (
            dg.MonthlyPartitionsDefinition("2026-01-01", end_offset=1),
            "2026-03-01",
            "2026-03-01",
            "2026-04-01",
            "2026-03-01",
        ),
        (
            dg.MonthlyPartitionsDefinition("2026-01-01", end_offset=2),
            "2026-04-01",
            "2026-04-01",
            "2026-05-01",
            "2026-03-01",
        ),
        (WEEKDAYS, "2026-10-02", "2026-10-02", "2026-10-05", "2026-10-05"),
        (dg.WeeklyPartitionsDefinition("2026-10-01"), "2026-10-04", "2026-10-04", "2026-10-11", "2026-10-11"),
    ],
)
def test_partition_windows_follow_the_schedule_of_the_definition(
    definition: dg.PartitionsDefinition, key: str, begins: str, ends: str, exists_from: str
) -> None:
    keys = keys_of(definition)
    assert keys.window(key) == Window(at(f"{begins}T00:00+00:00"), at(f"{ends}T00:00+00:00"))
    assert keys.exists_from(key) == at(f"{exists_from}T00:00+00:00")


def test_monday_follows_friday_in_weekday_partitions_but_tuesday_does_not() -> None:
    keys = keys_of(WEEKDAYS)
    assert keys.follows("2026-10-02", "2026-10-05")
    assert not keys.follows("2026-10-02", "2026-10-06")
    assert keys.problem("2026-10-03") == "'2026-10-03' is not the start of a window"


def test_repeated_hour_is_two_partitions_and_a_skipped_hour_is_none() -> None:
    keys = keys_of(dg.HourlyPartitionsDefinition("2026-03-01-00:00", timezone="Europe/Berlin"))
    assert keys.follows("2026-10-25-02:00", "2026-10-25-02:00+0100")
    assert keys.follows("2026-10-25-02:00+0100", "2026-10-25-03:00")
    assert keys.problem("2026-03-29-02:00")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "no partition, but the asset is partitioned"),
        ("2026-09-30", "before the first"),
        ("2026-11-20", "after the last"),
        ("20261005", "is not a partition key: "),
        ("2026-10-5", "not the start of a window"),
        ("", "is not a partition key: "),
    ],
)
def test_impossible_partition_key_is_refused_with_a_reason(key: str | None, problem: str) -> None:
    keys = keys_of(dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-11-20"))
    assert problem in str(keys.problem(key))
    assert not keys.exists(key) and keys.window(key) is None
    assert keys.problem("2026-11-19") is None


def test_static_partitions_follow_their_declared_order() -> None:
    keys = keys_of(REGIONS)
    assert keys.follows("north", "south") and not keys.follows("north", "west") and not keys.follows("south", "north")
    assert keys.problem("east") and keys.problem(None) and keys.problem("west") is None
    assert list(keys.keys()) == dagsters(REGIONS, NOW) and keys.window("north") is None


def test_dynamic_partitions_exist_only_while_registered_and_form_no_range() -> None:
    moment = Moment(NOW, {"shops": ["a", "b"]})
    keys = KeysOf(moment)(SHOPS)
    assert list(keys.keys()) == ["a", "b"] and keys.exists("a") and not keys.follows("a", "b")
    moment.moves_to(NOW, {"shops": ["b", "c"]})
    assert not keys.exists("a") and keys.exists("c") and keys.problem("a") is None and keys.problem(None)
    assert keys.ends() == ("b", "c")


MULTI = [
    (dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS}), "2026-10-05|north"),
    (dg.MultiPartitionsDefinition({"a": REGIONS, "day": DAYS}), "north|2026-10-05"),
    (dg.MultiPartitionsDefinition({"day": DAYS, "shop": SHOPS}), "2026-10-05|b"),
    (
        dg.MultiPartitionsDefinition({"colour": dg.StaticPartitionsDefinition(["red", "blue"]), "r": REGIONS}),
        "red|south",
    ),
    (
        dg.MultiPartitionsDefinition({"month": dg.MonthlyPartitionsDefinition("2026-01-01"), "region": REGIONS}),
        "2026-03-01|west",
    ),
    (
        dg.MultiPartitionsDefinition({"day": DAYS, "hour": dg.HourlyPartitionsDefinition("2026-10-28-00:00")}),
        "2026-10-05|2026-10-28-04:00",
    ),
    (dg.MultiPartitionsDefinition({"shop": SHOPS, "x": REGIONS}), "b|south"),
]


@pytest.mark.parametrize(("definition", "key"), MULTI)
def test_multi_partitions_exist_and_form_ranges_as_in_dagster(
    definition: dg.MultiPartitionsDefinition, key: str
) -> None:
    keys = keys_of(definition, shops=["b", "a"])
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("shops", ["b", "a"])
        with dg.partition_loading_context(datetime.fromtimestamp(NOW, UTC), instance):
            expected = [str(k) for k in definition.get_partition_keys()]
            assert list(keys.keys()) == expected
            assert (keys.ends()[0], keys.ends()[-1]) == (expected[0], expected[-1])
            near = [k for k in expected if set(k.split("|")) & set(key.split("|"))]
            following = [other for other in near if keys.follows(key, other)]
            assert len(following) == 1
            assert dagsters_range(definition, key, following[0]) == [key, following[0]]
    assert keys.exists(key) and keys.problem(key) is None and keys.exists_from(key) <= NOW


def test_range_of_multi_partitions_varies_only_the_time_dimension() -> None:
    keys = keys_of(dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS}))
    assert keys.follows("2026-10-05|north", "2026-10-06|north")
    assert not keys.follows("2026-10-05|north", "2026-10-05|south")
    assert not keys.follows("2026-10-05|north", "2026-10-06|south")
    assert keys.order("2026-10-05|south") < keys.order("2026-10-06|north"), "the newest day first, whatever its region"


def test_multi_partition_has_the_window_of_its_time_dimension() -> None:
    day = Window(at("2026-10-05T00:00+00:00"), at("2026-10-06T00:00+00:00"))
    assert keys_of(MULTI[0][0]).window("2026-10-05|north") == day
    assert keys_of(MULTI[0][0]).exists_from("2026-10-05|north") == day.end
    assert keys_of(MULTI[5][0]).window(MULTI[5][1]) is None, "two dimensions of time have none"


@pytest.mark.parametrize("key", ["2026-10-05", "2026-10-05|east", "nonsense|north", "2026-10-05|north|x", "", None])
def test_malformed_multi_partition_key_is_refused_with_a_reason(key: str | None) -> None:
    keys = keys_of(MULTI[0][0])
    assert keys.problem(key)
    assert keys.exists_from(key) == float("inf") and not keys.exists(key) and keys.window(key) is None
    assert not keys.follows(key, "2026-10-05|north")
    keys.order(key)


class EvenDays(dg.PartitionsDefinition):
    """Somebody's own: known only by what it lists."""

    __hash__ = None  # type: ignore[assignment]

    def get_partition_keys(self, current_time: object = None, dynamic_partitions_store: object = None) -> Sequence[str]:
        return [day for day in DAYS.get_partition_keys() if int(day[-2:]) % 2 == 0]

    def get_paginated_partition_keys(
        self, context: PartitionLoadingContext, limit: int, ascending: bool, cursor: str | None = None
    ) -> PaginatedResults[str]:
        raise NotImplementedError


def test_custom_partitions_definition_is_read_from_its_current_keys() -> None:
    moment = Moment(NOW)
    keys = KeysOf(moment)(EvenDays())
    assert keys.ends() == ("2026-10-02", "2026-10-28") and not keys.exists("2026-10-30")
    moment.moves_to(NOW + 86_400)
    assert keys.exists("2026-10-30") and not keys.follows("2026-10-02", "2026-10-04")


def test_partition_that_did_not_exist_earlier_exists_later_for_dagster() -> None:
    moment = Moment(at("2026-10-05T00:00+00:00"))
    keys = KeysOf(moment)(dg.MultiPartitionsDefinition({"day": DAYS, "shop": SHOPS}))
    assert not keys.exists("2026-10-05|a") and not keys.keys()
    moment.moves_to(at("2026-10-06T00:00+00:00"), {"shops": ["a"]})
    assert keys.exists("2026-10-05|a") and keys.keys()[-1] == "2026-10-05|a"
    moment.moves_to(at("2026-10-05T00:00+00:00"))
    assert keys.keys()[-1] == "2026-10-04|a", "the clock was set back"


RANGES = [
    (WEEKDAYS, ["2026-10-01", "2026-10-02", "2026-10-05"]),
    (dg.MonthlyPartitionsDefinition("2026-01-01"), ["2026-02-01", "2026-03-01", "2026-04-01"]),
    (REGIONS, ["north", "south", "west"]),
    (MULTI[0][0], ["2026-10-05|north", "2026-10-06|north", "2026-10-07|north"]),
    (MULTI[2][0], ["2026-10-05|b", "2026-10-06|b"]),
    (MULTI[6][0], ["b|north", "b|south"]),
]


@pytest.mark.parametrize(("definition", "chain"), RANGES)
def test_dagster_run_over_a_range_builds_exactly_the_planned_partitions(
    definition: dg.PartitionsDefinition, chain: list[str]
) -> None:
    assert all(keys_of(definition, shops=["b"]).follows(*two) for two in pairwise(chain))
    seen: list[str] = []

    @dg.asset(partitions_def=definition, backfill_policy=dg.BackfillPolicy.single_run())
    def table(context: dg.AssetExecutionContext) -> None:
        seen.extend(str(key) for key in context.partition_keys)

    tags = {"dagster/asset_partition_range_start": chain[0], "dagster/asset_partition_range_end": chain[-1]}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("shops", ["b"])
        dg.materialize([table], instance=instance, tags=tags)
    assert seen == chain


def test_only_the_first_and_last_of_many_time_partitions_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = dg.TimeWindowPartitionsDefinition("2015-01-01-00:00", "%Y-%m-%d-%H:%M", cron_schedule="* * * * *")

    def _listed(*_: object) -> object:
        raise AssertionError("six million keys")

    monkeypatch.setattr(dg.TimeWindowPartitionsDefinition, "get_partition_keys_in_time_window", _listed)
    assert KeysOf(Moment(datetime(2026, 10, 5, tzinfo=UTC).timestamp()))(minutes).ends() == (
        "2015-01-01-00:00",
        "2026-10-04-23:59",
    )
