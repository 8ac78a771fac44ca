"""The request of commands to the webserver is valid in its schema."""

from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
from dagster_graphql.schema import create_schema
from graphql import parse, validate

from dagster_tidemark.cli import plan_apply
from dagster_tidemark.engine.code_plan import CodePlan
from dagster_tidemark.settings import Settings


def test_request_to_reload_is_valid_in_the_dagster_schema() -> None:
    assert validate(create_schema().graphql_schema, parse(plan_apply._RELOAD)) == []


def test_webserver_that_does_not_answer_is_reported() -> None:
    with pytest.raises(plan_apply.NoWebserver, match=r"does not answer.*deploy it in your usual way"):
        plan_apply.reload_code(Settings(port_ui=9))


def test_apply_without_rebuilds_reports_the_reload_and_shows_no_progress_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(plan_apply, "reload_code", lambda _: steps.append(capsys.readouterr().err))
    monkeypatch.setattr(plan_apply, "wait_for_code", lambda *_: steps.append(capsys.readouterr().err))
    monkeypatch.setattr(plan_apply, "opened_instance", nullcontext)
    for name in ("planned_graph", "location"):
        monkeypatch.setattr(plan_apply, name, MagicMock())
    plan_apply.apply(Settings(), CodePlan([]))
    assert steps == ["reloading the code location, then waiting until its sensors see this code\n", ""]
    assert capsys.readouterr() == ("", "loaded; nothing has to be rebuilt\n")
