"""`tidemark status`: what the rows say, and the exit codes."""

import dataclasses
import io
import json
from itertools import pairwise
from typing import Any

import dagster as dg
import pytest
from rich.console import Console
from typer.testing import CliRunner

from dagster_tidemark.cli import status_view
from dagster_tidemark.cli.app import app
from dagster_tidemark.cli.contract_rows import (
    ContractRow,
    NoSuchAsset,
    breached,
    quarantined,
    rows,
    set_aside,
)
from dagster_tidemark.cli.status_view import explained, table
from dagster_tidemark.engine.doubts import Cause
from dagster_tidemark.engine.stream_rows import StreamRow
from dagster_tidemark.tags import DATA_VERSION
from tests.tidemark.checks.test_contract import HOUR_7, Watched, graph, refuse
from tests.tidemark.toy_graph import HOURS, asset

NOW = 1_800_000_000.0
DAY = 86_400.0


def row(watched: Watched, asset: str) -> ContractRow:
    with watched.simulation.clock.frozen():
        (found,) = rows(watched.simulation.instance, watched._repository.asset_graph, asset)
    return found


def test_status_shows_contract_state_and_last_run_of_a_current_asset() -> None:
    watched = Watched()
    watched.simulation.arrive("raw/orders", HOUR_7, at=watched.simulation.time(hours=7))
    watched.look(hours=7, minutes=2)
    found = row(watched, "core/orders")
    assert (found.contract, found.state, found.lag, found.pending, found.due) == ("within 5 min", "met", 0.0, 0, None)
    assert found.last_run == "success"
    assert found.last_built == watched.simulation.runs[0].ended_at


def test_status_lists_a_failing_asset_as_breached_with_lag_and_reason() -> None:
    watched = Watched()
    watched.simulation.fail("core/orders", times=9)
    watched.simulation.arrive("raw/orders", HOUR_7, at=watched.simulation.time(hours=7))
    for minute in range(10):
        watched.look(hours=7, minutes=minute)
    found = row(watched, "core/orders")
    assert found.state == "breached" and breached([found]) == ["core/orders"]
    assert found.lag == pytest.approx(9 * 60, abs=2)
    assert f"core/orders {HOUR_7}" in found.reason and "failed attempts" in found.reason
    assert "failed attempts" in str(explained([found, found], NOW).renderables[1])


def test_status_shows_when_a_pending_partition_is_due() -> None:
    watched = Watched()
    watched.simulation.arrive("raw/orders", HOUR_7, at=watched.simulation.time(hours=7))
    watched.look(hours=8)
    found = row(watched, "marts/report")
    assert found.contract == "by 0 9 * * *, what arrived 30 min before"
    assert found.pending == 1 and found.due == watched.simulation.time(days=1, hours=8.5)
    assert "not due" in found.reason


def test_status_lists_all_assets_and_refuses_an_unknown_asset() -> None:
    watched = Watched()
    watched.look(hours=1)
    with watched.simulation.clock.frozen():
        graph = watched._repository.asset_graph
        found = rows(watched.simulation.instance, graph)
        assert [r.asset for r in found] == ["core/orders", "marts/report", "marts/unpromised"]
        assert table(found, NOW).row_count == 3
        assert len(explained(found, NOW).renderables) == 1, "nothing to explain"
        with pytest.raises(NoSuchAsset, match="no asset 'core/order'; known assets: core/orders"):
            rows(watched.simulation.instance, graph, "core/order")
    json.dumps([r.as_dict() for r in found])


def test_status_shows_set_aside_assets_with_the_reason_also_as_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse(monkeypatch, "marts/unpromised", "there is no pace 'fast'")
    watched = Watched()
    key = dg.AssetKey(["raw", "orders"])
    with watched.simulation.clock.frozen():
        for n in range(7):
            event = dg.AssetObservation(key, partition=f"no {n}", tags={DATA_VERSION: "1"})
            watched.simulation.instance.report_runless_asset_event(event)
        found = rows(watched.simulation.instance, watched._repository.asset_graph)
    states = {r.asset: r.state for r in found}
    assert states == {"raw/orders": "", "core/orders": "met", "marts/report": "met", "marts/unpromised": "set aside"}
    assert set_aside(found) == ["marts/unpromised"] and breached(found) == []
    source, *_, refused = [r.as_dict() for r in found]
    assert len(source["set_aside"]) == 7 and source["set_aside"][0].startswith("raw/orders no 0: ")
    assert refused["reason"] == "set aside: there is no pace 'fast'"
    console = Console(width=80, record=True)
    console.print(explained(found, NOW))
    text = console.export_text()
    assert "marts/unpromised: set aside: there is no pace 'fast'" in text and "raw/orders: set aside: " in text


@pytest.mark.parametrize(
    ("states", "code", "said"),
    [
        ({"a": "met"}, 0, ""),
        ({"a": "at risk"}, 0, ""),
        ({"a": "met", "c": "rejected"}, 6, "rows are missing: c"),
        ({"a": "not judged", "c": "rejected"}, 5, "the automation ignores them: a"),
        ({"a": "set aside", "b": "breached", "c": "rejected"}, 4, "broken: b"),
        ({"a": "unknown", "b": "behind", "c": "rejected"}, 9, "unknown (no sensor has run lately): a"),
        ({"a": "met", "b": "behind", "c": "rejected"}, 10, "no shift reads: b"),
        ({"a": "met", "b": "unread", "c": "set aside"}, 10, "no shift reads: b"),
    ],
)
def test_status_exit_code_depends_on_breached_ignored_and_rejected_assets_and_late_streams(
    monkeypatch: pytest.MonkeyPatch, states: dict[str, str], code: int, said: str
) -> None:
    def found(*_: object, **__: object) -> list[ContractRow]:
        empty = ContractRow("", "", "", 0.0, 0, None, "", None, None)

        def one(asset: str, state: str) -> ContractRow:
            if state == "rejected":
                return dataclasses.replace(empty, asset=asset, files_rejected=("x.csv",))
            if state in ("behind", "unread"):
                stream = StreamRow(
                    asset, asset, 3, 70.0, None, None, None, None, "", state == "behind", state == "unread"
                )
                return dataclasses.replace(empty, asset=asset, stream=stream)
            return dataclasses.replace(empty, asset=asset, state=state)

        return [one(asset, state) for asset, state in states.items()]

    monkeypatch.setattr(status_view, "show_contracts", found)
    monkeypatch.setattr(status_view, "dead_channels", lambda _: [])
    result = CliRunner().invoke(app, ["status"])
    assert (result.exit_code, said in result.output) == (code, True)


def test_status_shows_quarantined_files_and_rows_until_none_are_left() -> None:
    watched = Watched()
    watched.look(hours=1)
    for files, count, said in ((["orders/bad.csv"], 3, True), ([], 2, True), ([], 1, True), ([], 0, False)):
        watched.simulation.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(["core", "orders"]),
                check_name="quarantine",
                passed=not count,
                metadata={"files": files, "rows": count},
            )
        )
        found = row(watched, "core/orders")
        assert (list(found.files_rejected), found.rows_rejected) == (files, count)
        assert quarantined([found]) == (["core/orders"] if files else [])
        lines = [str(line) for line in explained([found, found], NOW).renderables[1:]]
        assert any("tidemark quarantine --asset core/orders" in line for line in lines) == said
        assert any("1 file cannot be loaded (orders/bad.csv); 3 rows" in line for line in lines) == bool(files)


def test_status_reports_edited_code_until_the_code_location_is_reloaded() -> None:
    before, edited = graph(), graph(version="2")
    edited.append(asset("marts/new", "core/orders", by=HOURS))

    def said(watched: Watched, assets: list[Any]) -> dict[str, str]:
        simulation = watched.simulation
        with simulation.clock.frozen():
            found = rows(simulation.instance, dg.Definitions(assets).resolve_asset_graph())
        told = {each.asset: each.not_loaded for each in found if each.as_dict()["not_loaded"]}
        below = [str(line) for line in explained(found, NOW).renderables[1:]]
        assert below == [f"{key}: {what}: reload the code location" for key, what in told.items()]
        return told

    assert said(Watched(before), edited) == {}, "nobody knows what is loaded"
    watched = Watched(before)
    watched.look(minutes=1)
    assert said(watched, before) == {}
    assert said(watched, edited) == {
        "core/orders": "code 2 is not loaded yet, the platform has 1",
        "marts/new": "not loaded yet",
    }
    loaded = Watched(edited)
    loaded.look(minutes=1)
    assert said(loaded, edited) == {}


def test_status_exits_with_code_3_when_no_platform_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path_factory.mktemp("state")))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    for options in ([], ["--services"]):
        result = CliRunner().invoke(app, ["status", *options])
        assert result.exit_code == 3 and "no platform runs" in result.output


def test_status_prints_each_cause_once_and_contracts_refer_to_its_number() -> None:
    away = Cause("code server", NOW - 60, "code server: Dagster's daemon cannot reach it", "see its log")
    off = Cause("sensor landing", NOW - 90, "sensor landing is switched off")
    empty = ContractRow("", "within 5 min", "unknown", 0.0, 0, None, "unknown since ...", None, None)
    found = [dataclasses.replace(empty, asset=f"marts/{n}", causes=(away,)) for n in range(5)]
    found[0] = dataclasses.replace(found[0], causes=(off, away))
    found[1] = dataclasses.replace(found[1], state="breached", reason="late; in doubt since ...: code server")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(explained(found, NOW))
    lines = [line.strip() for line in console.export_text().splitlines()]
    assert [line.split()[-2:] for line in lines if line.startswith("marts/3")] == [["unknown", "(1)"]]
    assert [line for line in lines if line.startswith("(")] == [f"(1) {away.said}", f"(2) {off.said}"]
    assert {"concerns: all 5 contracts", "concerns: marts/0", "next: see its log"} < set(lines)
    assert lines[-1] == "marts/1: late; in doubt since ...: code server"
    assert "unknown since ..." not in "".join(lines)
    assert found[0].as_dict()["causes"][0]["name"] == "sensor landing"


def test_status_table_fits_in_80_columns() -> None:
    day = 86_400.0
    made = ContractRow("marts/executive_rollup", "", "not judged", 3 * day, 3, NOW + 6 * day, "", "success", NOW)
    contracts = ("within 1 h 12 min", "by 30 9 * * 1-5, what arrived 1 h 30 min before", "", "within 23 d 4 h")
    runs = ("success", "canceled", None, "failure")
    every = [dataclasses.replace(made, contract=c, last_run=r) for c, r in zip(contracts, runs, strict=True)]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table(every, NOW + 50_000))
    lines = console.export_text().rstrip().splitlines()[3:]
    starts = [number for number, line in enumerate(lines) if "marts/executive_rollup" in line]
    heights = [after - at for at, after in pairwise([*starts, len(lines)])]
    assert len(starts) == 4 and max(heights) <= 2 and not any("…" in line for line in lines), lines
