"""Commands `tidemark pause`, `resume`, `skip`, `rebuild`, `overrides`, and lines of `status`, on a real instance."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_run_id
from typer.testing import CliRunner

from dagster_tidemark.cli.app import app
from dagster_tidemark.cli.override_selection import NotSelectable, Selectable, partitions, selected
from dagster_tidemark.dagster_internals import event_storage, event_time, instance_store
from dagster_tidemark.engine import engine
from dagster_tidemark.engine.doubts import PostOf, Watched, doubts
from dagster_tidemark.engine.override_store import OverrideStore, OverridesUnreadable, end_finished, owed_again
from dagster_tidemark.engine.saved_overview import Kept, StandingRow, keep
from dagster_tidemark.execution.load_asset import owed, partitions_to_read_again
from dagster_tidemark.incidents.causes import _platform
from dagster_tidemark.incidents.incident import CauseKind
from dagster_tidemark.planner.graph import Graph, Input, Moment, Node
from dagster_tidemark.planner.overrides import Override, OverrideKind
from dagster_tidemark.sensors import streams as sensor
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.streams.shift_lease import Post
from dagster_tidemark.tags import OVERRIDES, REBUILD, REQUESTED_BY, STREAM, WORKER
from tests.tidemark.streams import toy
from tests.tidemark.toy_graph import HOURS, asset, source
from tests.tidemark.world import ordinal, same

HOUR = "2026-10-05-07:00"


@pytest.fixture
def instance(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path))
    with dg.DagsterInstance.get() as made:
        yield made
        OverrideStore(made).change(lambda _: ())


def said(*command: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, list(command))
    assert found.exit_code == code, found.output
    return " ".join(found.output.split())


def override(kind: OverrideKind = OverrideKind.PAUSE, **more: Any) -> Override:
    made = Override("o-1", kind, "core/orders", ("core/orders",), "anna", "migration", event_time.now())
    return replace(made, **{"location": load_settings().code_location, **more})


def test_pause_is_stored_listed_and_resumed(instance: DagsterInstance) -> None:
    told = said("pause", "core/orders", "--until", "4h", "--reason", "migration", "--by", "anna")
    assert "paused by anna until" in told and "concerns core/orders" in told
    (stored,) = OverrideStore(instance).read()
    assert stored.until is not None and 14_390 < stored.until - stored.at <= 14_400
    assert "core/orders is paused since" in said("overrides")
    assert json.loads(said("overrides", "--json"))[0]["reason"] == "migration"
    assert "this pause of core/orders has ended" in said("resume", "core/orders", "--by", "ben")
    assert said("overrides") == "nothing is paused, skipped or to be rebuilt"
    assert "by ben" in said("overrides", "--history")
    assert "nothing is paused" in said("resume", "core/orders", code=2)


def test_group_feed_stream_and_one_asset_of_a_paused_group(instance: DagsterInstance) -> None:
    watched = Watched(posts=(PostOf("readings", "raw/readings", ()),))
    keep(instance, load_settings().code_location, Kept(event_time.now(), "", watched, ()))
    said("pause", "customers", "--reason", "x")
    said("pause", "readings", "--reason", "x")
    assert "purge or redrive" in said("skip", "readings", "--reason", "x", code=2)
    feed, stream = OverrideStore(instance).read()
    assert feed.assets == ("core/customers",) and feed.until is None
    assert stream.streams == ("readings",)
    said("resume", "customers")
    group = json.loads(said("pause", "group:default", "--reason", "x", "--json"))
    assert {"core/orders", "core/customers"} <= {*group["assets"]} and "raw/orders" not in group["assets"]
    said("pause", "core/orders", "--reason", "twice")
    assert "group:default is still paused by" in said("resume", "core/orders")
    said("resume", json.loads(said("overrides", "--json"))[-1]["id"])
    said("pause", "group:default", "--reason", "x")
    said("resume", "core/prices")
    left = {key for each in OverrideStore(instance).read() if each.lasts(event_time.now()) for key in each.assets}
    assert "core/prices" not in left and "core/customers" in left


def test_skip_rebuild_and_the_end_of_one_by_its_id(instance: DagsterInstance) -> None:
    made = json.loads(
        said("skip", "core/orders", "--partitions", f"{HOUR}..2026-10-05-09:00", "--reason", "x", "--json")
    )
    assert (made["first"], made["last"]) == (HOUR, "2026-10-05-09:00") and made["codes"]["core/orders"]
    assert "built again" in said("rebuild", "core/orders", "--partitions", HOUR)
    assert "the skip of core/orders has ended" in said("overrides", "--end", made["id"])
    assert "no override o-none applies" in said("overrides", "--end", "o-none", code=2)


@pytest.mark.parametrize("command", ["skip", "rebuild"])
def test_second_command_about_the_same_assets_does_not_end_the_first(instance: DagsterInstance, command: str) -> None:
    first, second = (
        json.loads(said(command, "core/orders", "--reason", "x", "--by", by, "--json")) for by in ("anna", "ben")
    )
    said("overrides", "--end", second["id"])
    assert [each["id"] for each in json.loads(said("overrides", "--json"))] == [first["id"]]


def test_resume_of_a_selection_ends_only_pauses_of_the_own_code_location(instance: DagsterInstance) -> None:
    keep(
        instance,
        load_settings().code_location,
        Kept(event_time.now(), "", Watched(posts=(PostOf("readings", "raw/readings", ()),)), ()),
    )
    theirs = [
        override(id="o-group", what="group:default", assets=("claims",), location="insurance"),
        override(id="o-stream", what="readings", assets=("raw/other",), streams=("readings",), location="insurance"),
    ]
    OverrideStore(instance).change(lambda _: theirs)
    for what in ("group:default", "readings"):
        assert f"{what} of insurance (o-" in said("resume", what, code=2)
        said("pause", what, "--reason", "x")
        assert "still paused" not in said("resume", what)
    assert {each.id for each in OverrideStore(instance).read() if each.lasts(event_time.now())} == {
        "o-group",
        "o-stream",
    }
    assert "o-group: this pause of group:default has ended" in said("resume", "o-group")
    assert [each["id"] for each in json.loads(said("overrides", "--json"))] == ["o-stream"]


def test_what_cannot_be_meant_is_refused_by_name(instance: DagsterInstance) -> None:
    assert "did you mean core/orders" in said("pause", "core/order", "--reason", "x", code=2)
    assert "group:default" in said("pause", "group:defaults", "--reason", "x", code=2)
    assert "a time zone is missing" in said(
        "pause", "core/orders", "--until", "2050-01-01T00:00", "--reason", "x", code=2
    )
    assert "has passed" in said("pause", "core/orders", "--until", "2020-01-01T00:00Z", "--reason", "x", code=2)
    assert "expected a reason" in said("pause", "core/orders", "--reason", " ", code=2)
    assert "--reason" in said("skip", "core/orders", code=2)
    assert "no such partition" in said("skip", "core/orders", "--partitions", "2026-10-05", "--reason", "x", code=2)
    assert "has no partitions" in said("skip", "core/customers", "--partitions", HOUR, "--reason", "x", code=2)
    assert not OverrideStore(instance).read()


def test_unit_selection_refuses_ranges_and_assets_that_only_people_run() -> None:
    nodes = (
        Node("raw/a", source=True, automated=False, partitioned=True),
        Node("core/a", [Input("raw/a", same, same)], ordinal, partitioned=True),
        Node("core/b", [Input("raw/a", same, same)], automated=False),
    )
    known = Selectable(
        Graph({node.key: node for node in nodes}), {"core": ["core/a", "core/b"]}, {"a": "raw/a"}, {}, {"core/a"}
    )
    assert selected(known, "a", OverrideKind.PAUSE).assets == ("core/a",)
    assert "only people run it" in selected(known, "group:core", OverrideKind.PAUSE).left_out["core/b"]
    for what, kind, why in (
        ("core/b", OverrideKind.PAUSE, "only people run it"),
        ("core/b", OverrideKind.SKIP, "its own condition or a person"),
    ):
        with pytest.raises(NotSelectable, match=why):
            selected(known, what, kind)
    assert partitions(known.graph, ["core/a"], [f"{HOUR}...{HOUR}"]).first == HOUR, "as Dagster writes a range"
    for given, why in (([f"{HOUR}..2026-10-05-06:00"], "comes after"), ([HOUR, f"{HOUR}..{HOUR}"], "one range")):
        with pytest.raises(NotSelectable, match=why):
            partitions(known.graph, ["core/a"], given)


def test_unit_dynamic_keys_must_exist_and_form_no_range() -> None:
    def shop(key: str | None) -> frozenset[tuple[str, str | None]]:
        return frozenset({("shops", str(key).split("|")[-1])})

    nodes = [Node(key, partitioned=True, dynamic=shop) for key in ("core/shops", "core/shop_days")]
    graph = Graph({node.key: node for node in nodes}, Moment(dynamic={"shops": ["west", "east"]}))
    assert partitions(graph, ["core/shops"], ["west", "east"]).keys == ("west", "east")
    assert partitions(graph, ["core/shop_days"], ["2026-10-05|east"]).keys == ("2026-10-05|east",)
    for asset_, given, why in (
        ("core/shops", "wets", "keys of shops, found 'wets', which does not exist; did you mean west"),
        ("core/shop_days", "2026-10-05|north", "found 'north', which does not exist; add the key first"),
        ("core/shops", "west..east", "name single keys"),
    ):
        with pytest.raises(NotSelectable, match=why):
            partitions(graph, [asset_], [given])


def test_unit_removed_asset_can_be_resumed_by_its_old_name(instance: DagsterInstance) -> None:
    OverrideStore(instance).change(lambda _: [override(what="core/former", assets=("core/former",))])
    assert "this pause of core/former has ended" in said("resume", "core/former")


def test_cancel_ends_only_queued_runs_of_the_automation(instance: DagsterInstance) -> None:
    def queued(tags: dict[str, str], key: str = "core/orders", status: Any = DagsterRunStatus.QUEUED) -> str:
        code = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="nowhere"))
        origin = RemoteRepositoryOrigin(code, "__repository__").get_job_origin("job")
        tags = {"dagster/partition": HOUR, **tags}
        run = dg.DagsterRun("job", make_new_run_id(), status=status, remote_job_origin=origin, tags=tags)
        instance.add_run(run._replace(asset_selection=frozenset({dg.AssetKey.from_user_string(key)})))
        return str(run.run_id)

    ours, theirs = queued({REQUESTED_BY: "planner"}), queued({})
    other = queued({REQUESTED_BY: "planner"}, "core/customers")
    begun = queued({REQUESTED_BY: "planner"}, status=DagsterRunStatus.STARTED)
    assert json.loads(said("pause", "core/orders", "--reason", "x", "--cancel", "--json"))["canceled_runs"] == [ours]
    states = {run.run_id: run.status for run in instance.get_runs()}
    assert states[ours] is DagsterRunStatus.CANCELED and states[begun] is DagsterRunStatus.STARTED
    assert states[theirs] is states[other] is DagsterRunStatus.QUEUED
    ends = ("2026-10-05-05:00", "2026-10-05-09:00")
    names = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
    around = queued({REQUESTED_BY: "planner", **dict(zip(names, ends, strict=True))})
    command = ("pause", "core/orders", "--partitions", "2026-10-05-08:00", "--reason", "x", "--cancel", "--json")
    assert json.loads(said(*command))["canceled_runs"] == [around]


def test_two_operators_at_once_lose_nothing(instance: DagsterInstance) -> None:
    store, tries = OverrideStore(instance), []

    def change(before: tuple[Override, ...]) -> Sequence[Override]:
        if not tries:
            tries.append(1)
            store.change(lambda other: [*other, override(id="o-2")])
        return [*before, override()]

    store.change(change)
    assert {each.id for each in store.read()} == {"o-1", "o-2"}


def test_unreadable_overrides_stop_the_automation_and_say_so(instance: DagsterInstance) -> None:
    instance_store.save(instance, OVERRIDES, json.dumps({"version": 99, "overrides": []}))
    with pytest.raises(OverridesUnreadable, match="expected version 1, found version 99"):
        OverrideStore(instance).read()
    graph = dg.Definitions(
        [source("orders", HOURS), asset("core/orders", "raw/orders", by=HOURS)]
    ).resolve_asset_graph()
    made = engine.engine_for(instance, graph)
    assert "cannot be read" in made.look(event_time.now(), instance).catching_up
    assert made.paused("core/orders", [HOUR])[0] == {HOUR}
    engine.forget(instance)
    instance_store.save(instance, OVERRIDES, "")


def test_finished_rebuilds_and_expired_pauses_are_ended(instance: DagsterInstance) -> None:
    now, place = event_time.now(), load_settings().code_location
    rebuilds = [override(OverrideKind.REBUILD, id=name, at=now - 60) for name in ("done", "left")]
    elsewhere = override(OverrideKind.REBUILD, id="elsewhere", at=now - 60, location="other")
    fresh = replace(rebuilds[0], id="fresh", at=now)
    OverrideStore(instance).change(lambda _: [*rebuilds, elsewhere, fresh, override(id="expired", until=now - 1)])
    end_finished(instance, place, {"left"}, now, planned=())
    assert len([each for each in OverrideStore(instance).read() if each.ended_at is None]) == 4, "only the pause"
    end_finished(instance, place, {"left"}, now, planned={"core/orders"})
    assert {each.id for each in OverrideStore(instance).read() if each.ended_at is None} == {
        "left",
        "elsewhere",
        "fresh",
    }


def test_load_owes_a_rebuild_until_a_later_run_has_materialized_the_partition(instance: DagsterInstance) -> None:
    during: list[Override] = []

    @dg.asset(partitions_def=HOURS)
    def owes(context: dg.AssetExecutionContext) -> None:
        if not during:  # the command comes while the run is under way
            at = event_storage.last_event_id(instance)
            during.append(override(OverrideKind.REBUILD, assets=("owes",), first=HOUR, last=later, as_of=at))
            OverrideStore(instance).change(lambda _: during)

    key, later = dg.AssetKey("owes"), "2026-10-05-08:00"
    dg.materialize([owes], partition_key=HOUR, instance=instance)
    assert owed(instance, key, HOURS, [HOUR, later, "2026-10-06-07:00"]) == [HOUR, later]
    instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=HOUR))
    assert owed(instance, key, HOURS, [HOUR, later]) == [HOUR, later], "a person has reported it, and no run has read"
    dg.materialize([owes], partition_key=HOUR, instance=instance)
    assert owed(instance, key, HOURS, [HOUR, later]) == [later]
    assert owed_again(instance, "other", [None], lambda *_: True) == []


def test_load_owes_no_rebuild_that_a_later_skip_holds_back(instance: DagsterInstance) -> None:
    rebuild = override(OverrideKind.REBUILD, assets=("owes",))
    skip = override(OverrideKind.SKIP, id="o-2", assets=("owes",), keys=("b",))
    held, store = {}, OverrideStore(instance)
    for name, records in (("skip first", [skip, rebuild]), ("skip last", [rebuild, skip])):
        store.change(lambda _: records)  # noqa: B023 - it is called at once
        held[name] = owed_again(instance, "owes", ["a", "b"], lambda each, one: not each.keys or one in each.keys)
    assert held == {"skip first": ["a", "b"], "skip last": ["a"]}


def test_run_tag_makes_a_load_read_all_its_partitions_again(instance: DagsterInstance) -> None:
    found: list[frozenset[str | None]] = []

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
    def tagged(context: dg.AssetExecutionContext) -> None:
        found.append(partitions_to_read_again(context))

    for tags in ({}, {REBUILD: "true"}):
        dg.materialize([tagged], partition_key="a", instance=instance, tags=tags)
    assert found == [frozenset(), frozenset({"a"})]


def test_paused_stream_gets_no_shift_its_shift_ends_and_its_contract_names_the_pause(instance: DagsterInstance) -> None:
    pings, settings, now = toy.stream("pings"), Settings(), event_time.now()
    made = override(assets=(pings.asset,), streams=("pings",), what="pings", location=settings.code_location)
    tags = {STREAM: "pings", WORKER: "0"}
    run = create_run_for_test(instance, job_name=pings.job, tags=tags, status=DagsterRunStatus.STARTED)
    post = Post(instance, settings, "pings", "0", run.run_id)
    post._look()
    assert post.ends() is None
    OverrideStore(instance).change(lambda _: [made])
    post._look()
    assert post.ends() == "pings is paused by anna until it is resumed: migration"
    instance.delete_run(run.run_id)
    asked, why = sensor._wanted(instance, [pings], settings, now)
    assert not asked and why == {"pings": "pings is paused by anna until it is resumed: migration"}
    watched = Watched(settings.code_location, posts=(PostOf("pings", pings.asset, ("none",)),))
    cause = doubts(instance, watched, now).sources[pings.asset]
    assert cause.said == why["pings"] and _platform(cause).kind is CauseKind.PAUSED


def test_status_lists_overrides_and_has_them_in_its_json(instance: DagsterInstance) -> None:
    settings, made = load_settings(), override(OverrideKind.REBUILD)
    row = StandingRow("core/orders", "", "", None, 0, None, "", (), False, False, True, "automation", ())
    keep(instance, settings.code_location, Kept(event_time.now(), "", Watched(), (row,), {"o-1": 7}))
    OverrideStore(instance).change(lambda _: [made])
    found = CliRunner().invoke(app, ["status"])
    assert "core/orders is to be rebuilt since" in " ".join(found.output.split()) and "7 partitions" in found.output
    listed = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    assert listed[0]["overrides"][0]["reason"] == "migration"
