"""Which partitions read which, for each partition mapping of Dagster, held against what Dagster itself says.

docs/partition-mappings.md is the table; here is a test for each of its rows.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.partitions.mapping import UpstreamPartitionsResult
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_tidemark.asset_graph.declarations import Refused
from dagster_tidemark.asset_graph.edges import Edge, Ends
from dagster_tidemark.asset_graph.partition_keys import KeysOf
from dagster_tidemark.asset_graph.partition_mappings import edge_of
from dagster_tidemark.dagster_internals.partitions import as_of
from dagster_tidemark.planner.graph import Moment
from tests.tidemark.asset_graph.definitions_of_time import MOMENTS, ZONES, definitions

NOON = datetime(2026, 10, 10, 12, tzinfo=UTC).timestamp()
HOURS = dg.HourlyPartitionsDefinition("2026-10-01-00:00", end_offset=1)
DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)
REGIONS = dg.StaticPartitionsDefinition(["north", "south"])
SHOPS = dg.DynamicPartitionsDefinition(name="shops")
DAY_REGION = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
DAY_SHOP = dg.MultiPartitionsDefinition({"day": DAYS, "shop": SHOPS})
TIME = dg.TimeWindowPartitionMapping
ANY = TIME(allow_nonexistent_upstream_partitions=True)


def moment_of(now: float = NOON, *shops: str) -> Moment:
    return Moment(now, {"shops": list(shops or ("a", "b"))})


def edge(
    mapping: dg.PartitionMapping | None,
    reader: dg.PartitionsDefinition | None,
    read: dg.PartitionsDefinition | None,
    moment: Moment | None = None,
) -> Edge:
    """The edge as the graph makes it, with Dagster's own mapping where none is declared."""

    @dg.asset(partitions_def=read)
    def source() -> None: ...

    @dg.asset(partitions_def=reader, deps=[dg.AssetDep(source, partition_mapping=mapping)])
    def table() -> None: ...

    inferred = dg.Definitions([source, table]).resolve_asset_graph().get_partition_mapping(table.key, source.key)
    keys_of = KeysOf(moment or moment_of())
    return edge_of(inferred, Ends(keys_of(reader), keys_of(read), "source", keys_of.moment))


def up(found: Edge, partition: str | None) -> list[str | None]:
    assert found.upstream is not None
    return list(found.upstream(partition))


def down(found: Edge, partition: str | None) -> list[str | None]:
    assert found.downstream is not None
    return list(found.downstream(partition))


# Without partitions on one side


def test_unpartitioned_reader_reads_its_unpartitioned_input() -> None:
    found = edge(None, None, None)
    assert (up(found, None), down(found, None), found.broad, found.identity) == ([None], [None], False, True)


def test_every_partition_reads_the_whole_unpartitioned_input() -> None:
    found = edge(None, DAYS, None)
    assert (up(found, "2026-10-05"), found.downstream, found.broad) == ([None], None, True)


@pytest.mark.parametrize("read", [DAYS, REGIONS, SHOPS, DAY_SHOP])
def test_an_unpartitioned_reader_reads_all_partitions(read: dg.PartitionsDefinition) -> None:
    found = edge(None, None, read)
    assert (found.upstream, down(found, "x"), found.stamp) == (None, [None], None)


@pytest.mark.parametrize("read", [DAYS, SHOPS, DAY_SHOP])
@pytest.mark.parametrize("reader", [HOURS, REGIONS, SHOPS])
def test_all_partition_mapping_covers_all_existing_partitions(
    reader: dg.PartitionsDefinition, read: dg.PartitionsDefinition
) -> None:
    found = edge(dg.AllPartitionMapping(), reader, read)
    assert (found.upstream, found.downstream, found.broad) == (None, None, True)


# The last, and named ones


@pytest.mark.parametrize("reader", [None, REGIONS])
def test_last_partition_mapping_uses_the_last_partition_that_exists_now(reader: dg.PartitionsDefinition | None) -> None:
    moment = moment_of()
    found = edge(dg.LastPartitionMapping(), reader, DAYS, moment)
    partition = "north" if reader else None
    everyone = ["north", "south"] if reader else [None]
    assert found.stamp and found.broad
    assert up(found, partition) == ["2026-10-10"]
    assert down(found, "2026-10-10") == everyone and down(found, "2026-10-09") == []
    moment.moves_to(NOON + 86_400)
    assert up(found, partition) == ["2026-10-11"]
    assert down(found, "2026-10-10") == []


def test_last_dynamic_partition_is_the_one_added_last_or_none() -> None:
    moment = moment_of(NOON, "b", "a")
    found = edge(dg.LastPartitionMapping(), None, SHOPS, moment)
    assert up(found, None) == ["a"]
    moment.moves_to(NOON, {})
    assert up(found, None) == [] and down(found, "a") == []


def test_specific_partitions_mapping_is_read_by_every_partition() -> None:
    found = edge(dg.SpecificPartitionsPartitionMapping(["north"]), DAYS, REGIONS)
    assert up(found, "2026-10-05") == ["north"]
    assert len(down(found, "north")) == 10 and down(found, "south") == []
    assert found.broad and not found.stamp


def test_specific_partitions_mapping_with_an_impossible_key_is_refused() -> None:
    with pytest.raises(Refused, match="names a partition that cannot exist: 'east' is not a partition of the asset"):
        edge(dg.SpecificPartitionsPartitionMapping(["east"]), None, REGIONS)


# One by one


@pytest.mark.parametrize("by", [DAYS, REGIONS, SHOPS, DAY_REGION])
def test_assets_of_one_partitions_definition_read_the_same_key(by: dg.PartitionsDefinition) -> None:
    found = edge(None, by, by)
    assert (up(found, "x"), down(found, "x"), found.identity, found.missing_inputs("x")) == (["x"], ["x"], True, "")


def test_identity_mapping_between_definitions_reads_only_existing_keys() -> None:
    later = dg.DailyPartitionsDefinition("2026-10-05")
    moment = moment_of()
    found = edge(dg.IdentityPartitionMapping(), DAYS, later, moment)
    assert (up(found, "2026-10-05"), up(found, "2026-10-04"), found.identity) == (["2026-10-05"], [], False)
    assert "before the first partition" in found.missing_inputs("2026-10-04")
    assert found.missing_inputs("2026-10-10") == "source has no partition 2026-10-10 yet"
    moment.moves_to(NOON + 86_400)
    assert found.missing_inputs("2026-10-10") == ""


def test_static_partition_mapping_is_applied_as_declared() -> None:
    colours = dg.StaticPartitionsDefinition(["red", "blue", "green"])
    mapping = dg.StaticPartitionMapping({"red": ["north", "south"], "blue": "south"})
    found = edge(mapping, REGIONS, colours)
    assert (sorted(map(str, up(found, "south"))), up(found, "north")) == (["blue", "red"], ["red"])
    assert (sorted(map(str, down(found, "red"))), down(found, "green")) == (["north", "south"], [])


# Windows


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(ZONES), MOMENTS)
def test_time_window_mapping_agrees_with_dagster_in_both_directions(data: st.DataObject, zone: str, now: int) -> None:
    ours, theirs = data.draw(definitions(zone=zone)), data.draw(definitions(zone=zone))
    start, end = data.draw(st.sampled_from([(0, 0), (-1, -1), (-1, 0), (0, 1), (-3, 0)]))
    mapping = TIME(start, end, allow_nonexistent_upstream_partitions=data.draw(st.booleans()))
    keys_of = KeysOf(Moment(now))
    reader, read = keys_of(ours), keys_of(theirs)
    found = edge_of(mapping, Ends(reader, read, "source", keys_of.moment))
    for partition in list(reader.keys())[-3:] + list(reader.keys())[:1] if read.keys() else []:
        upstream = up(found, partition)
        assert all(partition in down(found, p) for p in upstream[:2] + upstream[-2:])
        with as_of(keys_of.moment):
            said = mapping.get_upstream_mapped_partitions_result_for_partitions(reader.subset(partition), ours, theirs)
            assert [p for p in upstream if read.exists(p)] == list(said.partitions_subset.get_partition_keys())
            refuses = not said.required_but_nonexistent_subset.is_empty
        assert bool(found.missing_inputs(partition)) == refuses
    for partition in read.keys()[-2:]:
        downstream = down(found, partition)
        assert all(partition in up(found, p) for p in downstream[:2] + downstream[-2:])


def test_daily_partition_reads_all_its_hours_and_lacks_future_hours() -> None:
    moment = moment_of()
    found = edge(None, DAYS, HOURS, moment)
    assert len(up(found, "2026-10-10")) == 24 and down(found, "2026-10-10-23:00") == ["2026-10-10"]
    assert found.missing_inputs("2026-10-09") == ""
    assert found.missing_inputs("2026-10-10").startswith(
        "needs 2026-10-10-13:00 to 2026-10-10-23:00 of source, which does not exist yet"
    )
    assert "allow_nonexistent_upstream_partitions=True" in found.missing_inputs("2026-10-10")
    assert edge(ANY, DAYS, HOURS, moment).missing_inputs("2026-10-10") == ""
    moment.moves_to(NOON + 86_400)
    assert found.missing_inputs("2026-10-10") == ""


def test_partition_before_the_start_of_its_input_lacks_it_permanently() -> None:
    early = dg.DailyPartitionsDefinition("2026-09-01", end_offset=1)
    assert "never exists" in edge(None, early, HOURS).missing_inputs("2026-09-30")
    assert (
        edge(ANY, early, HOURS).missing_inputs("2026-09-30") == "" and up(edge(ANY, early, HOURS), "2026-09-30") == []
    )


def test_self_dependent_daily_mapping_starts_without_an_upstream_partition() -> None:
    found = edge(TIME(-1, -1), DAYS, DAYS)
    assert (up(found, "2026-10-01"), found.missing_inputs("2026-10-01")) == ([], "")
    assert (up(found, "2026-10-02"), down(found, "2026-10-02")) == (["2026-10-01"], ["2026-10-03"])
    assert not found.identity


def test_time_window_mapping_between_two_time_zones_is_refused() -> None:
    zoned = dg.DailyPartitionsDefinition("2026-10-01", timezone="Europe/Berlin")
    with pytest.raises(Refused, match="its time zone is UTC, the reader's is Europe/Berlin; give both the same"):
        edge(ANY, zoned, HOURS)


@pytest.mark.parametrize(("reader", "read"), [(None, DAYS), (REGIONS, DAYS), (DAYS, REGIONS)])
def test_time_window_mapping_of_partitions_without_windows_is_refused(
    reader: dg.PartitionsDefinition | None, read: dg.PartitionsDefinition
) -> None:
    with pytest.raises(Refused, match="TimeWindowPartitionMapping of source"):
        edge(ANY, reader, read)


# Dimensions

DIMENSIONS: list[tuple[dg.PartitionMapping | None, dg.PartitionsDefinition, dg.PartitionsDefinition]] = [
    (None, DAY_REGION, DAYS),
    (None, DAYS, DAY_REGION),
    (None, DAY_REGION, REGIONS),
    (None, REGIONS, DAY_REGION),
    (None, DAY_SHOP, DAYS),
    (None, DAYS, DAY_SHOP),
    (None, DAY_SHOP, SHOPS),
    (None, SHOPS, DAY_SHOP),
    (ANY, DAYS, DAYS),
    (dg.MultiToSingleDimensionPartitionMapping("region"), REGIONS, DAY_REGION),
    (None, DAYS, dg.MultiPartitionsDefinition({"hour": HOURS, "region": REGIONS})),
    (None, dg.MultiPartitionsDefinition({"hour": HOURS, "region": REGIONS}), DAYS),
    (
        dg.MultiPartitionMapping(
            {
                "day": dg.DimensionPartitionMapping("day", TIME(-1, -1)),
                "region": dg.DimensionPartitionMapping("region", dg.IdentityPartitionMapping()),
            }
        ),
        DAY_REGION,
        DAY_REGION,
    ),
    (
        dg.MultiPartitionMapping({"day": dg.DimensionPartitionMapping("day", dg.IdentityPartitionMapping())}),
        DAY_SHOP,
        DAY_REGION,
    ),
    (
        dg.MultiPartitionMapping({"region": dg.DimensionPartitionMapping("region", dg.LastPartitionMapping())}),
        DAY_REGION,
        DAY_REGION,
    ),
    (dg.MultiPartitionMapping({}), DAY_REGION, DAY_SHOP),
]


@pytest.mark.parametrize(("mapping", "reader", "read"), DIMENSIONS)
def test_multi_partition_mapping_agrees_with_dagster_in_both_directions(
    mapping: dg.PartitionMapping | None, reader: dg.PartitionsDefinition, read: dg.PartitionsDefinition
) -> None:
    moment = moment_of(datetime(2026, 10, 3, 0, 30, tzinfo=UTC).timestamp())
    found, keys_of = edge(mapping, reader, read, moment), KeysOf(moment)
    ours, theirs = keys_of(reader), keys_of(read)
    graph = dg.Definitions(
        [
            dg.AssetSpec("source", partitions_def=read),
            dg.AssetSpec("table", partitions_def=reader, deps=[dg.AssetDep("source", partition_mapping=mapping)]),
        ]
    ).resolve_asset_graph()
    dagsters = graph.get_partition_mapping(dg.AssetKey("table"), dg.AssetKey("source"))
    for partition in [*ours.keys()[:2], *ours.keys()[-2:]]:
        with as_of(moment):
            said = dagsters.get_upstream_mapped_partitions_result_for_partitions(ours.subset(partition), reader, read)
            expected = {str(key) for key in said.partitions_subset.get_partition_keys()}
            refuses = not said.required_but_nonexistent_subset.is_empty
        assert {p for p in up(found, partition) if theirs.exists(p)} == expected
        assert bool(found.missing_inputs(partition)) == refuses
        assert all(partition in down(found, p) for p in up(found, partition))
    for partition in [*theirs.keys()[:2], *theirs.keys()[-2:]]:
        subset = theirs.subset(partition)
        assert subset is not None
        with as_of(moment):
            below = dagsters.get_downstream_partitions_for_partitions(subset, read, reader)
            expected = {str(key) for key in below.get_partition_keys()}
        assert {p for p in down(found, partition) if ours.exists(p)} == expected
        assert all(partition in up(found, p) for p in down(found, partition))


def test_omitted_dimension_reads_all_its_existing_keys() -> None:
    moment = moment_of(NOON, "a")
    found = edge(None, DAYS, DAY_SHOP, moment)
    assert found.stamp and not found.broad
    assert up(found, "2026-10-05") == ["2026-10-05|a"]
    moment.moves_to(NOON, {"shops": ["a", "b"]})
    assert up(found, "2026-10-05") == ["2026-10-05|a", "2026-10-05|b"]


def test_input_without_a_dynamic_dimension_of_its_reader_is_broad() -> None:
    assert edge(None, DAY_SHOP, DAYS).broad and not edge(None, DAY_REGION, DAYS).broad


def test_incompatible_multi_partition_mappings_are_refused() -> None:
    unknown = dg.MultiPartitionMapping({"month": dg.DimensionPartitionMapping("day", dg.IdentityPartitionMapping())})
    with pytest.raises(Refused, match="MultiPartitionMapping of source does not fit"):
        edge(unknown, DAY_REGION, DAY_REGION)
    twice = dg.MultiPartitionsDefinition({"from": REGIONS, "to": REGIONS})
    with pytest.raises(Refused, match="does not fit its partitions"):
        edge(dg.MultiToSingleDimensionPartitionMapping("from"), REGIONS, twice)


# Somebody's own


class OfToday(dg.PartitionMapping):
    """Reads the partition of today, by a clock, and one that does not exist."""

    broken = ""

    @property
    def description(self) -> str:
        return "today"

    def validate_partition_mapping(self, *_: Any) -> None: ...

    def _today(self) -> str:
        with dg.partition_loading_context() as context:
            return f"{context.effective_dt:%Y-%m-%d}"

    def get_upstream_mapped_partitions_result_for_partitions(
        self, downstream_partitions_subset: Any, downstream_partitions_def: Any, upstream_partitions_def: Any, *_: Any
    ) -> UpstreamPartitionsResult:
        asked = [] if downstream_partitions_subset is None else downstream_partitions_subset.get_partition_keys()
        if self.broken in asked:
            raise ZeroDivisionError(self.broken)
        subset = upstream_partitions_def.subset_with_partition_keys([self._today()])
        return UpstreamPartitionsResult(
            partitions_subset=subset, required_but_nonexistent_subset=upstream_partitions_def.empty_subset()
        )

    def get_downstream_partitions_for_partitions(
        self,
        upstream_partitions_subset: Any,
        upstream_partitions_def: Any,
        downstream_partitions_def: Any,
        *_: Any,
    ) -> Any:
        keys: Sequence[str] = ["north", "nowhere"] if self._today() in upstream_partitions_subset else []
        return downstream_partitions_def.subset_with_partition_keys(keys)


@pytest.mark.filterwarnings("ignore:Non-built-in PartitionMappings")
def test_custom_mapping_is_evaluated_at_each_moment_and_omits_missing_partitions() -> None:
    moment = moment_of()
    found = edge(OfToday(), REGIONS, DAYS, moment)
    assert found.stamp
    assert (up(found, "north"), down(found, "2026-10-10")) == (["2026-10-10"], ["north"])
    moment.moves_to(NOON + 86_400)
    assert (up(found, "north"), down(found, "2026-10-10")) == (["2026-10-11"], [])


@pytest.mark.filterwarnings("ignore:Non-built-in PartitionMappings")
def test_custom_mapping_supports_an_unpartitioned_reader() -> None:
    found = edge(OfToday(), None, DAYS)
    assert (up(found, None), down(found, "2026-10-10"), down(found, "2026-10-09")) == (["2026-10-10"], [None], [])


@pytest.mark.filterwarnings("ignore:Non-built-in PartitionMappings")
def test_early_mapping_lookup_does_not_hide_a_partition_from_dagster_later() -> None:
    tomorrow = datetime.fromtimestamp(NOON, UTC) + timedelta(days=1)
    found, moment = edge(OfToday(), REGIONS, DAYS), moment_of()
    assert up(found, "north") == ["2026-10-10"]
    with as_of(moment):
        assert DAYS.subset_with_partition_keys(["2026-10-11"]).is_empty
    with dg.partition_loading_context(tomorrow):
        assert not DAYS.subset_with_partition_keys(["2026-10-11"]).is_empty
