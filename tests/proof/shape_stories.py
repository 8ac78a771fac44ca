"""What a real daemon does with every shape of graph: a story each, all told at once on one platform.

Belongs here: what happens to data, and what has to come of it. Does not belong here: what people and failing machines
do (`tests.proof.fault_stories`). Longer than most files, because there are so many shapes.
"""

import time
from collections.abc import Callable

import dagster as dg

from dagster_tidemark.engine.saved_overview import CHECK
from tests.proof.shapes_location import BERLIN_HOURS, DAYS, SHELVES
from tests.proof.shapes_platform import ToyPlatform

Story = Callable[[ToyPlatform], None]
STORIES: list[Story] = []
DAY = "2026-10-05"
TWELVE = [f"2026-10-{day:02}" for day in range(2, 14)]


def story(play: Story) -> Story:
    """One that may be told beside all others."""
    STORIES.append(play)
    return play


def _once_each(toy: ToyPlatform, asset: str, *partitions: str | None) -> None:
    assert toy.times_built(asset) == dict.fromkeys(partitions, 1), toy.asked(asset)
    assert all(note.partitions for note in toy.asked(asset)), "a run over nothing"


@story
def a_dynamic_key_is_built_once_it_exists(toy: ToyPlatform) -> None:
    toy.land("raw/visits", "oslo", "oslo")
    toy.instance.add_dynamic_partitions("cities", ["rome"])
    toy.land("raw/visits", "rome", "rome")
    toy.wait("core/visits", "rome", "rome")
    assert toy.value("core/visits", "oslo") is None
    toy.instance.add_dynamic_partitions("cities", ["oslo"])
    toy.wait("core/visits", "oslo", "oslo")
    # One that is removed while it is pending, which its neighbours do not notice.
    toy.order("broken", "core/visits", "gone")
    toy.instance.add_dynamic_partitions("cities", ["gone", "bergen"])
    toy.land("raw/visits", "gone", "gone")
    toy.wait_asked("core/visits", 3)
    toy.wait_row("core/visits", "gone")
    toy.instance.delete_dynamic_partition("cities", "gone")
    (toy.room / "broken" / "core%2Fvisits%40gone").unlink()
    time.sleep(10)  # what was asked for just before it went, may run
    before = [note for note in toy.asked("core/visits") if "gone" in note.partitions]
    toy.land("raw/visits", "bergen", "bergen")
    toy.wait("core/visits", "bergen", "bergen")
    toy.wait("marts/visits", None, "bergen+oslo+rome")
    time.sleep(60)  # its promise passes
    assert [note for note in toy.asked("core/visits") if "gone" in note.partitions] == before
    assert toy.rows()["core/visits"].state == "met", toy.why("core/visits")
    toy.instance.add_dynamic_partitions("cities", ["gone"])
    toy.wait("core/visits", "gone", "gone")


@story
def days_by_dynamic_keys_are_built_where_the_key_exists(toy: ToyPlatform) -> None:
    toy.instance.add_dynamic_partitions("cities", ["lima"])
    toy.land("raw/trips", f"lima|{DAY}")
    toy.land("raw/trips", f"nowhere|{DAY}")
    toy.wait("core/trips", f"lima|{DAY}")
    toy.nothing_more("core/trips")
    _once_each(toy, "core/trips", f"lima|{DAY}")


@story
def four_neighbours_of_two_dimensions_are_built_once_each(toy: ToyPlatform) -> None:
    neighbours = ["2026-10-03|us", "2026-10-04|eu", "2026-10-04|us", "2026-10-05|eu"]
    toy.land("raw/sales", "nonsense")
    for partition in neighbours:
        toy.land("raw/sales", partition, partition)
    for partition in neighbours:
        toy.wait("core/sales", partition, partition)
    toy.wait("marts/sales", "2026-10-04", "2026-10-04|eu+2026-10-04|us")
    toy.wait_row("raw/sales", "nonsense")
    toy.nothing_more("core/sales", "marts/sales")
    _once_each(toy, "core/sales", *neighbours)


@story
def what_reads_an_unpartitioned_table_only_is_built_when_that_is_there(toy: ToyPlatform) -> None:
    time.sleep(10)
    assert not toy.asked("core/rates") and not toy.asked("core/rates_daily")
    toy.land("raw/rates")
    for region in ("eu", "us"):
        toy.wait("core/rates", region)
    days = ["2026-10-01", "2026-10-02", "2026-10-03"]
    for day in days:
        toy.wait("core/rates_daily", day)
    toy.nothing_more("core/rates", "core/rates_daily")
    _once_each(toy, "core/rates", "eu", "us")
    _once_each(toy, "core/rates_daily", *days)


@story
def an_asset_without_inputs_is_built_once(toy: ToyPlatform) -> None:
    for asset, partition in (("core/constant", None), ("core/constants", "eu"), ("core/constants", "us")):
        toy.wait(asset, partition, "")
    toy.nothing_more("core/constant", "core/constants")
    _once_each(toy, "core/constant", None)
    _once_each(toy, "core/constants", "eu", "us")


@story
def a_table_that_is_made_from_its_own_past_is_built_in_order(toy: ToyPlatform) -> None:
    numbers = [*range(1, 11)]
    for number in (7, 3, 10, 1, 2, 9, 4, 8, 5, 6):
        toy.land("raw/amounts", f"2026-10-{number:02}", str(number))
    for number in numbers:
        value = "+".join(map(str, numbers[:number]))
        toy.wait("core/total", f"2026-10-{number:02}", value, seconds=240)
    toy.nothing_more("core/total", seconds=10)
    toy.land("raw/amounts", "2026-10-03", "late")
    toy.wait("core/total", "2026-10-10", "1+2+late+4+5+6+7+8+9+10", seconds=240)
    toy.nothing_more("core/total", seconds=10)
    assert toy.value("core/total", "2026-10-02") == "1+2"
    assert toy.times_built("core/total")["2026-10-02"] <= 2


@story
def what_reads_the_last_partition_is_not_run_by_an_old_one(toy: ToyPlatform) -> None:
    last = DAYS.get_last_partition_key()
    toy.land("raw/daily", last, "last")
    toy.wait("core/last", None, "last")
    toy.land("raw/daily", DAY, "late")
    toy.nothing_more("core/last")
    toy.land("raw/daily", last, "newer")
    toy.wait("core/last", None, "newer")
    assert len(toy.asked("core/last")) == 2


def _grain(name: str, *partitions: str) -> Story:
    def _play(toy: ToyPlatform) -> None:
        for partition in partitions:
            toy.land(f"raw/{name}", partition, partition)
        for partition in partitions:
            toy.wait(f"core/{name}", partition, partition)
        toy.nothing_more(f"core/{name}")
        _once_each(toy, f"core/{name}", *partitions)

    _play.__name__ = f"windows_{name}_are_built_once_each"
    return story(_play)


_grain("monthly", "2026-06-01", "2026-07-01", "2026-10-01")
_grain("weekdays", "2026-10-08", "2026-10-09", "2026-10-13")
_grain("quarters", "2026-10-05-11:45", "2026-10-05-12:00", "2026-10-05-12:15")
_grain("odd", "2026/10/05 22h", "2026/10/05 23h", "2026/10/06 00h")


@story
def the_hours_of_the_night_in_which_the_clocks_change_are_all_built(toy: ToyPlatform) -> None:
    night = [key for key in BERLIN_HOURS.get_partition_keys() if key.startswith("2026-10-25-0")][:5]
    for hour in night:
        toy.land("raw/berlin", hour, hour)
    for hour in night:
        toy.wait("core/berlin", hour, hour)
    toy.wait("marts/berlin", "2026-10-25", "+".join(sorted(night)))
    toy.nothing_more("core/berlin", "marts/berlin")
    _once_each(toy, "core/berlin", *night)


@story
def an_operation_of_several_assets_is_run_as_it_can_be(toy: ToyPlatform) -> None:
    days = TWELVE[:3]
    for name in ("whole", "parts"):
        for day in days:
            toy.land(f"raw/{name}", day, day)
    for name in ("whole_a", "whole_b", "parts_a", "parts_b"):
        for day in days:
            toy.wait(f"core/{name}", day, day)
    toy.nothing_more("core/whole_a", "core/whole_b", "core/parts_a", "core/parts_b")
    for name in ("whole_a", "whole_b", "parts_a", "parts_b"):
        _once_each(toy, f"core/{name}", *days)
    assert {n.run for n in toy.asked("core/whole_a")} == {n.run for n in toy.asked("core/whole_b")}


@story
def a_graph_of_operations_is_an_asset_like_any_other(toy: ToyPlatform) -> None:
    for day in TWELVE[:2]:
        toy.land("raw/graph", day, day)
    for day in TWELVE[:2]:
        toy.wait("core/graph", day, day)
    toy.nothing_more("core/graph")
    _once_each(toy, "core/graph", *TWELVE[:2])


@story
def an_asset_without_a_policy_gets_a_partition_a_run(toy: ToyPlatform) -> None:
    for day in TWELVE:
        toy.land("raw/single", day, day)
    for day in TWELVE:
        toy.wait("core/single", day, day, seconds=240)
    toy.nothing_more("core/single")
    _once_each(toy, "core/single", *TWELVE)


@story
def a_policy_of_five_a_run_is_kept(toy: ToyPlatform) -> None:
    for day in TWELVE:
        toy.land("raw/fives", day, day)
    for day in TWELVE:
        toy.wait("core/fives", day, day, seconds=240)
    toy.nothing_more("core/fives")
    _once_each(toy, "core/fives", *TWELVE)
    assert max(len(note.partitions) for note in toy.asked("core/fives")) in (2, 3, 4, 5)


@story
def a_run_that_yields_nothing_contains_what_it_saw(toy: ToyPlatform) -> None:
    toy.land("raw/nothing", DAY, "drop")
    toy.wait_asked("core/nothing")
    toy.nothing_more("core/nothing", seconds=30)
    assert len(toy.asked("core/nothing")) == 1
    toy.land("raw/nothing", DAY, "keep")
    toy.wait("core/nothing", DAY, "keep")
    toy.nothing_more("core/nothing")
    assert len(toy.asked("core/nothing")) == 2


@story
def what_others_build_and_report_is_a_source(toy: ToyPlatform) -> None:
    # A mark of nothing built here: what an external table is made from is told of, and asks for nothing.
    toy.land("raw/upstream_of_vendor", DAY)
    for value in ("1", "2"):
        (toy.room / "values" / "ext%2Fvendor%402026-10-05").write_text(value)
        toy.ui.post("materialization", "ext/vendor", partition=DAY, data_version=value)
        toy.wait("core/vendor", DAY, value)
        (toy.room / "values" / "ext%2Fwatched%40None").write_text(value)
        toy.ui.post("observation", "ext/watched")  # without a data version: it counts by itself
        toy.wait("core/watched", None, value)
    toy.nothing_more("core/vendor", "core/watched")
    assert toy.times_built("core/vendor") == {DAY: 2}
    assert toy.times_built("core/watched") == {None: 2}


@story
def a_table_of_another_location_is_read(toy: ToyPlatform) -> None:
    for value in ("1", "2"):
        toy.land("raw/other", None, value)
        toy.wait("other/table", None, value)
        toy.wait("core/of_others", None, value)
    toy.nothing_more("other/table", "core/of_others")
    assert toy.times_built("other/table") == {None: 2}
    assert toy.times_built("core/of_others") == {None: 2}


@story
def very_many_assets_with_contracts_are_looked_after(toy: ToyPlatform) -> None:
    toy.land("raw/many")
    toy.wait("many/t000")
    toy.wait("many/t419")
    toy.nothing_more("many/t000", "many/t419")
    found = toy.sensors("elsewhere")
    for name in ("automation", "automation_2"):
        assert found[name]["sensorState"]["ticks"], f"{name} never ticked"
        assert any(tick["runIds"] for tick in found[name]["sensorState"]["ticks"]), f"{name} asked for nothing"


@story
def what_reads_an_asset_whose_blocking_check_failed_waits(toy: ToyPlatform) -> None:
    failing = toy.room / "broken" / "check"
    failing.touch()
    for day in TWELVE[:2]:
        toy.land("raw/checked", day, "bad")
        toy.wait("core/checked", day, "bad")
    toy.wait_row("marts/checked", "good")
    toy.nothing_more("marts/checked")
    assert not toy.asked("marts/checked")
    # It passes on the same data: a person has looked.
    toy.ui.post("check", "core/checked", check_name="good", passed=True)
    failing.unlink()
    toy.wait("marts/checked", TWELVE[1], "bad")
    # It is built again, and passes.
    toy.land("raw/checked", TWELVE[0], "good")
    toy.wait("marts/checked", TWELVE[0], "good")
    toy.nothing_more("core/checked", "marts/checked")


@story
def an_assets_own_condition_has_the_last_word(toy: ToyPlatform) -> None:
    for number in range(2):
        time.sleep(max(0.0, 10 - time.time() % 60))  # not just before the minute is over
        landed = time.time()
        toy.land("raw/minutely", DAY, str(number))
        toy.wait("core/minutely", DAY, str(number))
        asked = toy.asked("core/minutely")[-1].at
        assert asked // 60 > landed // 60, "it did not wait for the minute"
    toy.nothing_more("core/minutely", seconds=70)
    assert toy.times_built("core/minutely") == {DAY: 2}


@story
def what_a_condition_asks_for_in_great_number_is_one_run(toy: ToyPlatform) -> None:
    shelves = [str(key) for key in SHELVES.get_partition_keys()]
    for number in ("1", "2"):
        before = len(toy.asked("core/shelves"))
        # To Dagster's own condition an observation of an external asset is no update.
        (toy.room / "values" / "raw%2Fcatalogue%40None").write_text(number)
        toy.ui.post("materialization", "raw/catalogue", data_version=number)
        for shelf in shelves:
            toy.wait("core/shelves", shelf, number, seconds=240)
        (run,) = toy.asked("core/shelves")[before:]
        assert sorted(run.partitions) == sorted(shelves)
        time.sleep(10)  # an update in the tick that sees the run end is none to Dagster's own condition
    toy.nothing_more("core/shelves")


@story
def a_condition_that_raises_harms_its_own_asset_only(toy: ToyPlatform) -> None:
    toy.land("raw/odd_condition", DAY)
    toy.wait_row("core/raising_too", "its own automation condition raises", seconds=120)
    toy.nothing_more("core/raising", "core/raising_too", seconds=30)
    assert not toy.asked("core/raising") and not toy.asked("core/raising_too")


@story
def what_no_run_can_be_planned_of_harms_no_other_asset(toy: ToyPlatform) -> None:
    toy.land("raw/unplanned", DAY)
    for asset in ("core/unplanned", "core/unplanned_too"):
        toy.wait_row(asset, "NO_SUCH_VARIABLE")
    toy.nothing_more("core/unplanned", "core/unplanned_too", seconds=30)
    assert not toy.asked("core/unplanned") and not toy.asked("core/unplanned_too")


@story
def a_mapping_that_raises_harms_its_own_asset_only(toy: ToyPlatform) -> None:
    toy.land("raw/odd_mapping", "2026-10-13")
    toy.land("raw/odd_mapping", DAY)
    toy.wait("core/partly_mapped", DAY)
    toy.wait_row("core/partly_mapped", "no map leads there")
    toy.wait_row("core/unmapped", "not judged", "no map leads there")
    toy.nothing_more("core/partly_mapped", "core/unmapped")
    _once_each(toy, "core/partly_mapped", DAY)
    assert toy.contract("core/unmapped").get("state") == "not judged", toy.contract("core/unmapped")
    assert not toy.asked("core/unmapped")


@story
def beside_all_that_a_healthy_pair_keeps_its_contract(toy: ToyPlatform) -> None:
    begun, number, slowest = time.time(), 0, 0.0
    while time.time() < begun + 150:
        number += 1
        landed = time.time()
        toy.land("raw/healthy", DAY, str(number))
        toy.wait("marts/healthy", DAY, str(number))
        created = toy.instance.get_run_record_by_id(toy.built("core/healthy")[-1].run).create_timestamp
        slowest = max(slowest, created.timestamp() - landed)
        time.sleep(max(0.0, begun + 20 * number - time.time()))
    # How long a run then stands in the queue is a matter of how many others there are.
    assert slowest < 20, f"asked for {slowest:.0f} s after it landed"
    check = dg.AssetCheckKey(dg.AssetKey(["marts", "healthy"]), CHECK)
    told = toy.instance.event_log_storage.get_asset_check_execution_history(check, limit=1_000)
    assert told and all(result.status.value == "SUCCEEDED" for result in told), told
