"""What is due follows from what changed and what was built, however the events came about.

All assets here run as soon as something is pending; tests/tidemark/planner/test_meaning.py has those that wait.
"""

import pytest

from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.planner import Planner
from dagster_tidemark.planner.run_retries import backoff
from tests.tidemark.world import NOW, World, day_of, day_window, hours_of, ordinal, same

GRAPH = Graph(
    {
        node.key: node
        for node in (
            Node("raw/orders", partitioned=True, automated=False),
            Node("raw/customers", automated=False),
            Node("core/orders", [Input("raw/orders", same, same)], ordinal, partitioned=True, asap=True),
            Node("core/customers", [Input("raw/customers", same, same)], asap=True),
            Node(
                "marts/hourly", [Input("core/orders", same, same, joinable=True)], ordinal, partitioned=True, asap=True
            ),
            Node(
                "marts/daily",
                [Input("core/orders", hours_of, day_of)],
                lambda d: ordinal(f"{d}-00") // 24,
                partitioned=True,
                asap=True,
            ),
            Node(
                "marts/stats",
                [
                    Input("core/orders", hours_of, day_of),
                    Input("core/customers", lambda _: [None], None, ripple_days=2),
                ],
                lambda d: ordinal(f"{d}-00") // 24,
                window=day_window,
                partitioned=True,
                asap=True,
            ),
        )
    }
)
H7, H8 = "2026-09-20-07:00", "2026-09-20-08:00"


@pytest.fixture
def world() -> World:
    return World(GRAPH)


def test_new_file_makes_its_hour_and_joinable_readers_due(world: World) -> None:
    world.arrive(H7, "v1")
    assert world.due() == {("core/orders", H7), ("marts/hourly", H7)}


def test_readers_with_other_partitions_are_due_after_their_input_is_built(world: World) -> None:
    world.arrive(H7, "v1")
    world.start("r", ("core/orders", H7), ("marts/hourly", H7))
    world.build("r", ("core/orders", H7))
    world.build("r", ("marts/hourly", H7))
    world.end("r")
    assert world.due() == {("marts/daily", "2026-09-20")}, "stats has no customers yet, hourly is contained in its run"


def test_unchanged_data_causes_no_run(world: World) -> None:
    world.arrive(H7, "v1")
    world.arrive(None, "c1", key="raw/customers")
    world.run_all()
    world.arrive(H7, "v1")
    assert world.due() == set()
    assert world.plan().decisions == {} and not any(world.planner.backlog.of.values()), "an idle tick looks at nothing"


def test_missing_required_input_is_waited_for_by_name(world: World) -> None:
    world.arrive(H7, "v1")
    world.run_all()
    assert world.plan().waiting == {("marts/stats", "2026-09-20"): "no data: core/customers"}
    world.arrive(None, "c1", key="raw/customers")
    world.run_all()
    assert world.history.facts.is_built(("marts/stats", "2026-09-20"))


def test_an_update_during_the_run_is_not_lost(world: World) -> None:
    world.arrive(H7, "v1")
    world.start("r", ("core/orders", H7))
    world.arrive(H7, "v2")
    assert world.due() == set(), "one run of a partition at a time"
    world.build("r", ("core/orders", H7))
    world.end("r")
    assert ("core/orders", H7) in world.due()


def test_older_run_that_ends_last_makes_its_partition_due_again(world: World) -> None:
    world.arrive(H7, "v1")
    world.start("old", ("core/orders", H7))
    world.arrive(H7, "v2")
    world.start("new", ("core/orders", H7))
    world.build("new", ("core/orders", H7))
    world.end("new")
    world.build("old", ("core/orders", H7))
    world.end("old")
    assert ("core/orders", H7) in world.due()


def test_an_observation_of_an_older_listing_is_dropped(world: World) -> None:
    world.arrive(H7, "v2", listed_at=NOW)
    world.arrive(H7, "v1", listed_at=NOW - 60)
    assert world.history.facts.version(("raw/orders", H7)) == "v2"


def test_identical_content_causes_no_run_of_the_readers(world: World) -> None:
    world.arrive(H7, "v1")
    world.start("a", ("core/orders", H7))
    world.build("a", ("core/orders", H7), content="same")
    world.end("a")
    world.run_all()
    world.arrive(H7, "v2")
    world.start("b", ("core/orders", H7))
    world.build("b", ("core/orders", H7), content="same")
    world.end("b")
    assert world.due() == set()
    world.arrive(H7, "v3")
    world.start("c", ("core/orders", H7))
    world.build("c", ("core/orders", H7), content="other")
    world.end("c")
    assert world.due() == {("marts/hourly", H7), ("marts/daily", "2026-09-20")}


def test_failed_run_is_retried_with_backoff_without_limit(world: World) -> None:
    world.arrive(H7, "v1")
    for attempt in range(1, 9):
        world.start(f"r{attempt}", ("core/orders", H7))
        world.end(f"r{attempt}")
        assert world.due() == set()
        assert "backing off" in world.plan().waiting[("core/orders", H7)]
        world.now += backoff(attempt)
        assert ("core/orders", H7) in world.due()
    assert backoff(8) == 3600


def test_success_of_one_partition_resets_the_backoff_of_others(world: World) -> None:
    for hour in (H7, H8):
        world.arrive(hour, "v1")
    for attempt in (1, 2, 3):
        world.start(f"r{attempt}", ("core/orders", H7), ("core/orders", H8))
        world.end(f"r{attempt}")
    world.now += 60
    assert world.due() == set()
    world.start("person", ("core/orders", H7))
    world.build("person", ("core/orders", H7))
    world.end("person")
    assert ("core/orders", H8) in world.due()


def test_new_data_ends_a_backoff(world: World) -> None:
    world.arrive(H7, "v1")
    world.start("r", ("core/orders", H7))
    world.end("r")
    world.arrive(H7, "v2")
    world.now += 60
    assert ("core/orders", H7) in world.due()


def test_partially_failed_run_leaves_the_rest_due(world: World) -> None:
    world.arrive(H7, "v1")
    world.start("r", ("core/orders", H7), ("marts/hourly", H7))
    world.build("r", ("core/orders", H7))
    world.end("r")
    world.now += 60
    assert world.due() == {("marts/hourly", H7), ("marts/daily", "2026-09-20")}


def test_requested_partition_is_not_requested_again(world: World) -> None:
    world.arrive(H7, "v1")
    world.reserved = {("core/orders", H7), ("marts/hourly", H7)}
    assert world.due() == set()


def test_first_load_takes_one_run_per_table(world: World) -> None:
    hours = [f"2026-09-{d}-{h:02}:00" for d in (18, 19, 20) for h in range(24)]
    for hour in hours:
        world.arrive(hour, "v1")
    world.arrive(None, "c1", key="raw/customers")
    runs: dict[str, int] = {}
    while requests := world.plan().requests:
        for i, request in enumerate(requests):
            run = f"{world.id}-{i}"
            world.start(run, *request.targets)
            for target in request.targets:
                world.build(run, target)
            world.end(run)
            for asset in request.assets:
                runs[asset] = runs.get(asset, 0) + 1
    assert runs == {"core/orders": 1, "core/customers": 1, "marts/hourly": 1, "marts/daily": 1, "marts/stats": 1}
    assert {p for k, p in world.history.facts.builds() if k == "core/orders"} == set(hours)


def test_many_due_partitions_become_contiguous_ranges_newest_first(world: World) -> None:
    for h in (0, 1, 2, 5, 6):
        world.arrive(f"2026-09-20-{h:02}:00", "v1")
    requests = world.plan().requests
    assert [(r.partitions[0], r.partitions[-1], r.as_range) for r in requests] == [
        ("2026-09-20-05:00", "2026-09-20-06:00", True),
        ("2026-09-20-00:00", "2026-09-20-02:00", True),
    ]


def test_partitions_of_a_range_that_failed_twice_are_retried_separately(world: World) -> None:
    hours = [f"2026-09-20-{h:02}:00" for h in range(10)]
    for hour in hours:
        world.arrive(hour, "v1")
    for attempt in (1, 2):
        (request,) = world.plan().requests
        assert request.as_range
        world.start(f"r{attempt}", *request.targets)
        world.end(f"r{attempt}")
        world.now += backoff(attempt)
    assert [(len(r.partitions), r.as_range) for r in world.plan().requests] == [(1, False)] * 8


def test_few_rebuilt_partitions_run_separately(world: World) -> None:
    for hour in (H7, H8):
        world.arrive(hour, "v1")
    world.run_all()
    for hour in (H7, H8):
        world.arrive(hour, "v2")
    assert [(r.partitions, r.as_range) for r in world.plan().requests] == [((H8,), False), ((H7,), False)]


def test_new_customers_make_only_the_last_ripple_days_due(world: World) -> None:
    world.now = NOW
    for day in ("18", "19", "20", "21"):
        world.arrive(f"2026-09-{day}-07:00", "v1")
    world.arrive(None, "c1", key="raw/customers")
    world.run_all()
    world.arrive(None, "c2", key="raw/customers")
    world.start("c", ("core/customers", None))
    world.build("c", ("core/customers", None))
    world.end("c")
    assert world.due() == {("marts/stats", "2026-09-20"), ("marts/stats", "2026-09-21")}


def test_future_partition_waits_until_its_window_begins(world: World) -> None:
    future = Node(
        "core/orders",
        [Input("raw/orders", same, same)],
        ordinal,
        exists_from=lambda _: NOW + 60,
        partitioned=True,
        asap=True,
    )
    graph = Graph({"raw/orders": GRAPH.nodes["raw/orders"], "core/orders": future})
    history = History(graph)
    history.observed(("raw/orders", H7), id=1, version="v1", arrived_at=NOW, listed_at=NOW)
    planner = Planner(graph, history)
    assert planner.plan(NOW).requests == []
    assert [r.partitions for r in planner.plan(NOW + 60).requests] == [(H7,)]


def test_materialization_without_a_run_is_a_change_for_readers_only(world: World) -> None:
    world.arrive(H7, "v1")
    world.run_all()
    world.arrive(H7, "v2")
    world.history.materialized(("core/orders", H7), id=world.next(), run_id=None, as_of=None, version=None, at=NOW)
    assert ("core/orders", H7) in world.due(), "what somebody reports does not say that the new file is in it"
    world.run_all()
    world.history.materialized(("core/orders", H7), id=world.next(), run_id=None, as_of=None, version=None, at=NOW)
    assert world.due() == {("marts/hourly", H7), ("marts/daily", "2026-09-20")}


def test_range_counts_only_after_all_its_partitions_are_written(world: World) -> None:
    for hour in (H7, H8):
        world.arrive(hour, "v1")
    world.start("r", ("core/orders", H7), ("core/orders", H8))
    world.build("r", ("core/orders", H7))
    assert world.due() == set(), "the daily table would have to run twice"
    world.build("r", ("core/orders", H8))
    assert ("marts/daily", "2026-09-20") in world.due()


def test_written_partitions_of_a_failed_range_count_when_it_ends(world: World) -> None:
    for hour in (H7, H8):
        world.arrive(hour, "v1")
    world.start("r", ("core/orders", H7), ("core/orders", H8))
    world.build("r", ("core/orders", H7))
    world.end("r")
    assert ("marts/daily", "2026-09-20") in world.due()
    assert world.history.facts.is_built(("core/orders", H7))
