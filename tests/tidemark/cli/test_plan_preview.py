"""The command around previews: what is chosen, what is printed, and the sensors meanwhile. No Spark."""

import io
import json
import os
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
)
from dagster._serdes import serialize_value
from rich.console import Console
from typer.testing import CliRunner

from dagster_tidemark.cli import plan_apply, plan_preview, plan_view, preview_view, status_view
from dagster_tidemark.cli.app import app
from dagster_tidemark.cli.plan_apply import OtherCode
from dagster_tidemark.dagster_internals.sensor_states import running_sensors, stop_sensors, stopped_sensors
from dagster_tidemark.engine.code_plan import AssetPlan, CodePlan
from dagster_tidemark.lakehouse.row_diff import Example, RowDiff, Total
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.local.platform import instance_lock
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.rehearsal import Rebuild
from dagster_tidemark.preview.lake import FROM_MESSAGES, PreviewLake
from dagster_tidemark.preview.manifest import (
    NoPreview,
    PreviewInUse,
    PreviewManifest,
    RunPreview,
    Store,
    TablePreview,
    half_published,
    publishing,
)
from dagster_tidemark.preview.preview_runs import first_line, refusals
from dagster_tidemark.preview.targets import Group, NoSuchPartitions, Targets, choose
from dagster_tidemark.settings import Settings

KEYS = [f"k{number}" for number in range(6)]


def node(key: str, *reads: str, whole: bool = False) -> Node:
    def upstream(partition: str | None) -> list[str | None]:
        return list(KEYS) if whole else [partition]

    inputs = [Input(read, upstream, upstream) for read in reads]
    return Node(
        key,
        inputs,
        order=lambda p: KEYS.index(p) if p else 0,
        problem=lambda p: None if (p in KEYS) is not whole else "no such key",
        partitioned=not whole,
    )


def planned(key: str, *partitions: str | None, after: str = "", held: str = "") -> AssetPlan:
    rebuilds = [
        Rebuild(
            key,
            p,
            "code version 1 -> 2" if not after else f"after {after}",
            certain=not after,
            held=held,
            after=((after, p),) if after else (),
        )
        for p in partitions
    ]
    return AssetPlan(key, "", rebuilds)


GRAPH = Graph(
    {n.key: n for n in (node("a", "raw"), node("b", "a"), node("c", "b", whole=True), node("d", "x"), node("e", "d"))}
)
PLAN = CodePlan(
    [
        planned("a", *KEYS),
        planned("b", *KEYS, after="a"),
        planned("c", None, after="b"),
        planned("d", *KEYS[:2]),
        planned("e", *KEYS[:2], after="d"),
    ]
)


def test_default_preview_builds_all_planned_partitions_in_graph_order() -> None:
    found = choose(PLAN, GRAPH, None, {})
    both = tuple(KEYS[:2])
    assert found.groups == [
        Group(("a",), tuple(KEYS)),
        Group(("b",), tuple(KEYS)),
        Group(("c",), (None,)),
        Group(("d",), both),
        Group(("e",), both),
    ]


@pytest.mark.parametrize(
    ("partitions", "chosen"), [("k2...k4", KEYS[2:5]), ("k2..k4", KEYS[2:5]), ("k3, k5", ["k3", "k5"])]
)
def test_preview_of_selected_partitions_includes_their_readers(partitions: str, chosen: list[str]) -> None:
    found = choose(PLAN, GRAPH, partitions, {})
    groups = {group.assets[0]: list(group.partitions) for group in found.groups}
    assert groups == {"a": chosen, "b": chosen, "c": [None]}


def test_assets_that_cannot_be_previewed_are_left_out_with_their_readers() -> None:
    found = choose(PLAN, GRAPH, None, {"a": FROM_MESSAGES})
    assert [group.assets[0] for group in found.groups] == ["d", "e"]
    assert found.left_out == {
        "a": FROM_MESSAGES,
        "b": "reads a, which is not previewed",
        "c": "reads b, which is not previewed",
    }
    held = CodePlan([planned("a", *KEYS, held="a check failed"), planned("b", *KEYS, after="a")])
    assert choose(held, GRAPH, None, {}) == Targets(
        [],
        {"a": "held, a check failed", "b": "reads a, which is not previewed"},
        {"a": 6, "b": 6},
    )


def test_preview_reports_the_reason_for_each_left_out_partition() -> None:
    some = CodePlan(
        [AssetPlan("a", "", [*planned("a", *KEYS[:4]).rebuilds, *planned("a", *KEYS[4:], held="paused").rebuilds])]
    )
    found = choose(some, GRAPH, None, {})
    assert found.groups == [Group(("a",), tuple(KEYS[:4]))]
    assert found.left_out == {"a": "2 of 6 partitions: held, paused"}
    assert found.planned == {"a": 6}
    # The reader alone is selected.
    reader = CodePlan([planned("b", *KEYS, after="a")])
    assert choose(reader, GRAPH, None, {}).left_out == {"b": "depends on a, which is not selected"}
    # A changed asset without any of the chosen partitions is named; further partitions of a previewed one are no gap.
    other = CodePlan([planned("a", *KEYS), planned("d", *KEYS[:2])])
    assert choose(other, GRAPH, "k4...k5", {}).left_out == {
        "d": "--partitions k4...k5 selects none of its 2 partitions"
    }
    assert choose(other, GRAPH, "k0", {}).left_out == {}
    unpartitioned = CodePlan([planned("a", *KEYS), planned("c", None)])
    assert choose(unpartitioned, GRAPH, "k0", {}).left_out == {"c": "--partitions k0 selects none of its 1 partitions"}


@pytest.mark.parametrize(
    ("left_out", "differs", "code"),
    [({}, False, 0), ({}, True, 2), ({"core/x": FROM_MESSAGES}, False, 7), ({"core/x": FROM_MESSAGES}, True, 7)],
)
def test_incomplete_preview_has_its_own_exit_code_and_message(
    left_out: dict[str, str], differs: bool, code: int
) -> None:
    manifest, diffs, _ = a_preview()
    manifest.left_out = left_out
    if not differs:
        diffs = {key: RowDiff(1, 1, 0, 0, 0) for key in diffs}
    assert preview_view.exit_code(manifest, diffs, []) == code
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(preview_view.shown(manifest, diffs, []))
    text = console.export_text()
    assert ("not all of this change was previewed" in text) is bool(left_out)
    assert "nothing to preview" not in text


def test_empty_preview_reports_whether_assets_were_left_out() -> None:
    for left_out, code, said in (
        ({}, 0, "nothing to preview: no partition would run"),
        ({"core/x": FROM_MESSAGES}, 7, "none of this change was previewed"),
    ):
        manifest = PreviewManifest.begun({}, left_out)
        assert preview_view.exit_code(manifest, {}, []) == code
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(preview_view.shown(manifest, {}, []))
        text = console.export_text()
        assert said in text
        assert ("nothing to preview" in text) is not bool(left_out)


class _NoTables:
    """A session whose catalog has no table."""

    catalog = SimpleNamespace(tableExists=lambda _: False)


def test_preview_refuses_assets_fed_by_messages_but_not_by_files() -> None:
    def asset(key: str, reads: str) -> dg.AssetsDefinition:
        @dg.asset(key=key.split("/"), deps=[reads.split("/")], required_resource_keys={"lakehouse"})
        def _body() -> None:
            raise NotImplementedError

        return _body

    sources = [dg.AssetSpec(["raw", "orders"]), dg.AssetSpec(["raw", "pings"])]
    found = dg.Definitions([*sources, asset("core/orders", "raw/orders"), asset("alerts/strong", "raw/pings")])
    tables = {name: Table(name, {"id": "string"}, ("id",)) for name in ("core.orders", "alerts.strong", "raw.pings")}
    spark: Any = _NoTables()
    lake = PreviewLake(spark, tables, PreviewManifest.begun({}, {}), Settings())
    graph = Graph(
        {key: node(key, reads) for key, reads in (("core/orders", "raw/orders"), ("alerts/strong", "raw/pings"))}
    )
    graph = Graph(graph.nodes | {key: Node(key, source=True) for key in ("raw/orders", "raw/pings")})
    assert refusals(found, graph, lake, ["core/orders", "alerts/strong"]) == {"alerts/strong": FROM_MESSAGES}


def test_preview_of_unplanned_partitions_is_refused_with_the_planned_ones() -> None:
    with pytest.raises(NoSuchPartitions, match=r"planned partitions: a k0\.\.\.k5, d k0\.\.\.k1"):
        choose(PLAN, GRAPH, "2026-10-01", {})


@pytest.mark.parametrize(
    "options",
    [
        ("--partitions", "a...b"),
        ("--preview", "--publish"),
        ("--preview", "--apply"),
        ("--discard", "--mark-current"),
        ("--publish", "--select", "core/orders"),
        ("--discard", "--json"),
        ("--preview", "--against", "x.json"),
        ("--preview", "one", "--publish", "two"),
        ("--previews", "--apply"),
        ("--partitions", "a...b", "--json"),
    ],
)
def test_contradictory_plan_options_are_refused(options: tuple[str, ...]) -> None:
    found = CliRunner().invoke(app, ["plan", *options])
    assert found.exit_code == 1 and found.stderr.startswith("tidemark: --"), found.output


def a_preview() -> tuple[PreviewManifest, dict[str, RowDiff], list[Any]]:
    diff = RowDiff(
        rows_before=1_000,
        rows_after=1_001,
        added=2,
        removed=1,
        changed=30,
        columns={"margin_usd": 30, "note": 1},
        examples={
            "margin_usd": [Example({"hour": "2026-10-01 00:00:00", "product_id": "17"}, "1.25", None)] * 3,
            "note": [Example({"hour": "2026-10-01 00:00:00", "product_id": "17"}, "x" * 200, "y")],
            "": [Example({"hour": "2026-10-01 00:00:00", "product_id": "18"}, None, "there")],
        },
        totals={"margin_usd": Total(Decimal("12345678.25"), Decimal("12345600.00")), "share": Total(0.1, 0.1)},
    )
    manifest = PreviewManifest.begun({}, {"core/orders": FROM_MESSAGES})
    manifest.tables = [TablePreview("marts/margin_hourly", partitions=["2026-10-01-00:00", "2026-10-01-01:00"])]
    check = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(["marts", "margin_hourly"]),
        check_name="cost_usd_filled",
        passed=False,
        metadata={},
        severity=dg.AssetCheckSeverity.WARN,
        description="3 hours without a purchase cost",
    )
    manifest.runs = [RunPreview(["marts/margin_hourly"], [], [], [serialize_value(check)])]
    return manifest, {"marts/margin_hourly": diff}, [check]


def test_preview_output_fits_into_80_columns() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(preview_view.shown(*a_preview()))
    text = console.export_text()
    assert "marts/margin_hourly 2 partitions, 2026-10-01-00:00 to 2026-10-01-01:00" in text
    assert "1,000 rows -> 1,001: 2 added, 1 removed, 30 changed" in text
    assert "added: 2026-10-01 00:00:00 18" in text
    assert "check cost_usd_filled warns: 3 hours without a purchase cost" in text
    for word in ("margin_usd", "12,345,678.25", "12,345,600.00", "1.25", "--publish"):
        assert word in text, text
    assert max(map(len, text.splitlines())) <= 80


def test_preview_is_written_as_json() -> None:
    found = json.loads(json.dumps(preview_view.as_dict(*a_preview())))
    (asset,) = found["assets"]
    assert (asset["key"], asset["added"], asset["columns"]["margin_usd"]["rows"]) == ("marts/margin_hourly", 2, 30)
    assert asset["totals"]["margin_usd"] == {"before": "12345678.25", "after": "12345600.00"}
    assert asset["checks"][0]["passed"] is False and found["left_out"] == {"core/orders": FROM_MESSAGES}


def test_publish_stops_the_catch_up_sensor_and_restores_it(tmp_path: Path) -> None:
    store, manifest, graph = Store(tmp_path), a_preview()[0], Graph({})
    with dg.instance_for_test() as instance:
        code = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
        origin = RemoteInstigatorOrigin(code, "catch_up")
        state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING, SensorInstigatorData())
        instance.add_instigator_state(state)

        def is_off() -> bool:
            return "catch_up" in stopped_sensors(instance)

        with pytest.raises(KeyError), plan_preview._no_rebuilds(instance, graph, store, manifest):
            kept = store.read()
            assert is_off() and kept is not None and [each["sensorName"] for each in kept.sensors_off] == ["catch_up"]
            raise KeyError
        assert not is_off() and not manifest.sensors_off
        # A process that was killed has left it off, and noted that it did.
        manifest.sensors_off = running_sensors(instance, "catch_up", ())
        stop_sensors(instance, manifest.sensors_off)
        with plan_preview._no_rebuilds(instance, graph, store, manifest):
            assert is_off()
        assert not is_off()
        # The new code has not arrived. The old code would rebuild what is published, but nothing is published yet.
        with pytest.raises(OtherCode), plan_preview._no_rebuilds(instance, graph, store, manifest):
            raise OtherCode
        assert not is_off()
        manifest.tables[0].decided = ["2026-10-01-00:00"]
        with pytest.raises(OtherCode), plan_preview._no_rebuilds(instance, graph, store, manifest):
            raise OtherCode
        kept = store.read()
        assert is_off() and kept is not None and kept.sensors_off
        with pytest.raises(KeyError), plan_preview._no_rebuilds(instance, graph, store, manifest):
            raise KeyError
        assert is_off(), "after any failure the old code may run"
        with plan_preview._no_rebuilds(instance, graph, store, manifest):  # the repetition after the deploy
            assert is_off()
        assert not is_off() and not manifest.sensors_off
        # Somebody else has switched it off: it stays off.
        stop_sensors(instance, running_sensors(instance, "catch_up", ()))
        with plan_preview._no_rebuilds(instance, graph, store, manifest):
            pass
        assert is_off()


def test_preview_record_is_read_back_and_a_damaged_one_refused(tmp_path: Path) -> None:
    store, manifest = Store(tmp_path / "new"), a_preview()[0]
    assert store.read() is None
    store.write(manifest)
    assert store.read() == manifest
    store.path.write_text("{")
    with pytest.raises(NoPreview, match="contains no preview"):
        store.read()
    store.delete()
    store.delete()


def test_plan_apply_loads_the_code_without_any_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    """An asset that is new has no data yet: before the code is loaded nobody listens for any."""
    applied: list[CodePlan] = []
    nothing = CodePlan([])
    monkeypatch.setattr(plan_view, "show", lambda *_, **__: nothing)
    monkeypatch.setattr(instance_lock, "take_environment", lambda settings: settings)
    monkeypatch.setattr(plan_apply, "apply", lambda settings, plan: applied.append(plan))
    assert CliRunner().invoke(app, ["plan", "--apply"]).exit_code == 0
    assert applied == [nothing]
    assert CliRunner().invoke(app, ["plan"]).exit_code == 0
    assert len(applied) == 1


def test_unnamed_preview_option_selects_the_only_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(plan_preview, "preview", lambda _, name, *__, **___: asked.append(("preview", name)))
    monkeypatch.setattr(plan_preview, "publish", lambda _, name: asked.append(("publish", name)))
    monkeypatch.setattr(plan_preview, "discard", lambda _, name: asked.append(("discard", name)))
    for options in (["--preview"], ["--preview", "--json"], ["--preview", "one", "--select", "a"], ["--publish=one"]):
        assert CliRunner().invoke(app, ["plan", *options]).exit_code == 0, options
    assert CliRunner().invoke(app, ["plan", "--discard"]).exit_code == 0
    assert asked == [("preview", ""), ("preview", ""), ("preview", "one"), ("publish", "one"), ("discard", "")]
    settings: Any = SimpleNamespace(state_dir=tmp_path)
    with pytest.raises(NoPreview, match="there is no preview; `tidemark plan --preview` builds one"):
        plan_preview.chosen(settings, "")
    for name in ("one", "two"):
        Store(tmp_path, name).write(a_preview()[0])
        assert plan_preview.chosen(settings, name).name == name
        assert Store.names(tmp_path) == (["one"] if name == "one" else ["one", "two"])
        if name == "one":
            assert plan_preview.chosen(settings, "").name == "one"
    with pytest.raises(NoPreview, match="several previews exist: give a name; existing previews: one, two"):
        plan_preview.chosen(settings, "")
    with pytest.raises(NoPreview, match="there is no preview 'three'; existing previews: one, two"):
        plan_preview.chosen(settings, "three")
    for name in ("../one", "", ".hidden", "x" * 41):
        with pytest.raises(NoPreview, match="invalid preview name"):
            Store(tmp_path, name)


def test_previews_are_listed_with_age_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: Any = SimpleNamespace(state_dir=tmp_path)
    monkeypatch.setattr(plan_preview, "take_environment", lambda given: given)
    made = {}
    for name in ("broken", "half", "old", "ready", "unbuilt", "used"):
        made[name] = manifest = a_preview()[0]
        manifest.is_built = name != "unbuilt"
        if name == "old":
            manifest.created -= 3 * 86_400
        if name == "half":
            manifest.tables[0].decided = []
        Store(tmp_path, name).write(manifest)
    Store(tmp_path, "broken").path.write_text("{")
    with Store(tmp_path, "used").used_for("being published"):
        plan_preview.show_previews(settings, as_json=True)
        listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
        in_use = pytest.raises(PreviewInUse, match=f"being published by process {os.getpid()} since")
        with in_use, Store(tmp_path, "used").used_for("being dropped"):
            raise AssertionError
        assert half_published(tmp_path)[1].startswith("preview half is half published: `tidemark plan --publish half`")
    states = {name: row["state"] for name, row in listed.items()}
    assert states["ready"] == "ready: `tidemark plan --publish ready`"
    assert states["half"].startswith("half published") and states["old"].startswith("expired")
    assert states["unbuilt"].startswith("not completely built") and "contains no preview" in states["broken"]
    assert states["used"].startswith("being published by process")
    assert listed["old"]["age_seconds"] >= 3 * 86_400 and listed["ready"]["branch"] == made["ready"].branch
    assert len({row.get("branch") for row in listed.values()}) == 6, "each has branches of its own"
    plan_preview.show_previews(settings, as_json=False)
    assert "old: 3 d old; marts/margin_hourly (2); expired" in capsys.readouterr().out


def test_second_concurrent_publish_is_refused(tmp_path: Path) -> None:
    in_use = pytest.raises(PreviewInUse, match="preview one is being published by process")
    with publishing(tmp_path, "one"), in_use, publishing(tmp_path, "two"):
        raise AssertionError
    with publishing(tmp_path, "two"):
        pass


@pytest.mark.parametrize(
    ("name", "message", "said"),
    [
        (
            "pyspark.errors.exceptions.connect.ArithmeticException",
            "pyspark.errors.exceptions.connect.ArithmeticException: [DIVIDE_BY_ZERO] Division by zero.\n\nJVM "
            "stacktrace:\n\tat org.apache.spark.sql.errors.QueryExecutionErrors$.divideByZeroError\n",
            "ArithmeticException: [DIVIDE_BY_ZERO] Division by zero.",
        ),
        ("ValueError", "ValueError: no hour\n", "ValueError: no hour"),
        ("KeyError", "KeyError: 'x'\n", "KeyError: 'x'"),
        (
            "SparkException",
            "\n  job aborted: sc://host:1/;token=abc\n at x",
            "SparkException: job aborted: sc://host:1/;token=***",
        ),
        ("CommitConflict", "core.orders: 20 commits lost", "CommitConflict: core.orders: 20 commits lost"),
        ("Failure", "", "Failure"),
    ],
)
def test_preview_failure_is_reported_by_its_first_line(name: str, message: str, said: str) -> None:
    assert first_line(message, name) == said


def test_status_and_plan_report_a_half_published_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path))
    manifest = a_preview()[0]
    manifest.tables[0].decided = ["2026-10-01-00:00"]
    Store(tmp_path, "fix").write(manifest)
    monkeypatch.setattr(status_view, "show_contracts", lambda *_, **__: [])
    monkeypatch.setattr(status_view, "dead_channels", lambda _: [])
    monkeypatch.setattr(plan_view, "show", lambda *_, **__: CodePlan([]))
    for command in ("status", "plan"):
        found = CliRunner().invoke(app, [command])
        assert "preview fix is half published: `tidemark plan --publish fix` completes it" in found.stderr, command


@pytest.mark.parametrize(
    ("environment", "said"), [("local", "was reloaded"), ("production", "then repeat this command")]
)
def test_code_that_is_not_deployed_is_reported_with_the_remedy_of_its_place(
    environment: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_apply, "_DEPLOYED_WITHIN", -1.0)
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(OtherCode, match=said):
        plan_apply.wait_for_code(instance, GRAPH, Settings(environment=environment))
