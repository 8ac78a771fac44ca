"""Contract of the console logs of runs and sensor ticks, and of the facts in their records."""

import json
import logging
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster import _loggers
from dagster._core.definitions import instigation_logger

from dagster_tidemark import json_logs
from dagster_tidemark.dagster_internals import run_logs
from dagster_tidemark.json_logs import JsonFormatter
from dagster_tidemark.settings import Settings

DAYS = dg.DailyPartitionsDefinition("2026-10-05")


@dg.asset(partitions_def=DAYS)
def good(context: dg.AssetExecutionContext) -> None:
    context.log.info("read 3 rows")


@dg.asset(partitions_def=DAYS)
def bad() -> None:
    raise ValueError("no such column")


@pytest.fixture
def unchanged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (_loggers, instigation_logger):
        monkeypatch.setattr(module, "create_console_logger", module.create_console_logger)
    yield


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.strip()]


def test_each_line_of_a_run_is_an_object_with_run_step_asset_partition_and_exception(
    unchanged: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run_logs.format_console_logs(JsonFormatter(run_logs.facts_of))
    done = dg.materialize([good, bad], partition_key="2026-10-06", raise_on_error=False)
    lines = lines_of(capsys)
    assert len(lines) > 10 and {line["run_id"] for line in lines} == {done.run_id}
    assert {line["partition"] for line in lines} == {"2026-10-06"}
    (own,) = [line for line in lines if line["message"] == "read 3 rows"]
    assert (own["step"], own["level"]) == ("good", "info")
    (made,) = [line for line in lines if line.get("event") == "ASSET_MATERIALIZATION"]
    assert made["asset"] == "good"
    (failed,) = [line for line in lines if line.get("event") == "STEP_FAILURE"]
    assert failed["step"] == "bad" and "ValueError: no such column" in failed["exception"]
    assert json.loads(JsonFormatter(run_logs.facts_of).format(logging.makeLogRecord({"msg": "x"})))["message"] == "x"


def test_ticks_of_sensors_use_the_formatter(unchanged: None, capsys: pytest.CaptureFixture[str]) -> None:
    run_logs.format_console_logs(JsonFormatter(run_logs.facts_of))
    logger = instigation_logger.create_console_logger("dagster", logging.INFO)
    logger.warning("no file")
    assert [line["message"] for line in lines_of(capsys)] == ["no file"]


def test_log_format_is_used_only_if_the_settings_say_json(unchanged: None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _loggers.create_console_logger
    run_logs.use_log_format(Settings())
    assert _loggers.create_console_logger is before and not json_logs.is_on()
    given: list[object] = []
    monkeypatch.setattr(run_logs, "write_json_logs", lambda more: given.append(more) or JsonFormatter(more))
    run_logs.use_log_format(Settings(log_format="json"))
    assert given == [run_logs.facts_of] and _loggers.create_console_logger is not before
