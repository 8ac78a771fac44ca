"""Contract of partitions: subsets, names of windows, and the context of their evaluation."""

from datetime import UTC, datetime

import dagster as dg

from dagster_tidemark.dagster_internals import partitions
from dagster_tidemark.planner.graph import Moment


def test_dagster_caches_partition_windows_until_evaluated_as_of_another_time() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-01")
    before, after = datetime(2026, 10, 2, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC)
    with dg.partition_loading_context(before):
        assert days.subset_with_partition_keys(["2026-10-02"]).is_empty
    with dg.partition_loading_context(after):
        assert days.subset_with_partition_keys(["2026-10-02"]).is_empty, "why partition_context makes it forget"
    with partitions.evaluated_as_of(after, lambda _name: []):
        assert not days.subset_with_partition_keys(["2026-10-02"]).is_empty


def test_dynamic_partitions_are_read_from_the_given_function() -> None:
    shops = dg.DynamicPartitionsDefinition(name="shops")
    keys: partitions.KeysOf = {"shops": ["west", "east"]}.__getitem__
    with partitions.evaluated_as_of(datetime(2026, 10, 2, tzinfo=UTC), keys):
        assert shops.get_partition_keys() == ["west", "east"]
        assert shops.has_partition_key("east") and not shops.has_partition_key("north")
        with dg.partition_loading_context() as context:
            assert shops.get_paginated_partition_keys(context, limit=1, ascending=True).results == ["west"]


def test_partitions_exist_as_of_a_moment_or_of_another_time() -> None:
    days, shops = dg.DailyPartitionsDefinition("2026-10-01"), dg.DynamicPartitionsDefinition(name="shops")
    moment = Moment(datetime(2026, 10, 3, tzinfo=UTC).timestamp(), {"shops": ("west",)})
    with partitions.as_of(moment):
        assert days.get_partition_keys() == ["2026-10-01", "2026-10-02"]
        assert shops.get_partition_keys() == ["west"]
    with partitions.as_of(moment, partitions.LATER):
        assert days.get_last_partition_key() == "2199-12-31"


def test_window_name_equals_the_dagster_key_when_clocks_are_set_back() -> None:
    hours = dg.HourlyPartitionsDefinition("2026-10-25-00:00", timezone="Europe/Berlin")
    keys = hours.get_partition_keys(datetime(2026, 10, 25, 6, tzinfo=UTC))
    names = [partitions.window_name(hours.time_window_for_partition_key(key), hours) for key in keys]
    assert names == keys and len(set(names)) == len(names)


def test_subset_of_one_partition_contains_it() -> None:
    north = dg.StaticPartitionsDefinition(["north", "south"]).empty_subset().with_partition_keys(["north"])
    assert isinstance(north, partitions.PartitionsSubset) and list(north.get_partition_keys()) == ["north"]


def test_run_with_range_tags_builds_both_ends_of_the_range() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-05")
    built: list[str] = []

    @dg.asset(partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
    def table(context: dg.AssetExecutionContext) -> None:
        built.extend(context.partition_keys)

    dg.materialize([table], tags=partitions.range_tags("2026-10-02", "2026-10-03"))
    assert built == ["2026-10-02", "2026-10-03"]


def test_partition_tags_are_distinguished_from_range_tags() -> None:
    both = dg.MultiPartitionsDefinition({n: dg.StaticPartitionsDefinition([n]) for n in ("a", "b")})
    tags = both.get_tags_for_partition_key("a|b")
    assert len(tags) > 1 and all(partitions.is_partition_tag(tag) for tag in tags)
    assert not any(partitions.is_partition_tag(tag) for tag in partitions.range_tags("a", "b"))


def test_partition_ends_of_a_run_are_read_from_its_tags() -> None:
    assert partitions.partition_ends(partitions.range_tags("a", "c")) == ("a", "c")
    days = dg.DailyPartitionsDefinition("2026-10-01")
    assert partitions.partition_ends(days.get_tags_for_partition_key("2026-10-01")) == ("2026-10-01",)
    assert partitions.partition_ends({}) == (None,)
