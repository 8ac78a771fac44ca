"""A code server logs a wrong setting or declaration in one line. It logs other errors with their traceback."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_tidemark.code_server_log import CODE_SERVER, NamedErrors
from dagster_tidemark.settings import SettingsError, load_settings
from tests.conftest import free_port

DEFINITIONS = (
    "import dagster as dg\nfrom dagster_tidemark import load_settings\nload_settings()\ndefs = dg.Definitions()\n"
)


def logged_by_a_code_server(folder: Path, text: str, **variables: str) -> list[str]:
    """Return the lines that Dagster's code server logs about a module that it cannot load."""
    (folder / "wrong_definitions.py").write_text(text)
    command = [sys.executable, "-m", "dagster", "api", "grpc", "--lazy-load-user-code", "--host", "127.0.0.1"]
    command += ["--port", str(free_port()), "-m", "wrong_definitions", "-d", str(folder)]
    environment = {**os.environ, "DAGSTER_HOME": str(folder), **variables}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        lines: list[str] = []
        for line in server.stdout:
            lines.append(line.rstrip())
            if "Started Dagster code server" in line:
                break
        server.terminate()
    return lines


def test_code_server_logs_a_wrong_setting_in_one_line(tmp_path: Path) -> None:
    lines = logged_by_a_code_server(tmp_path, DEFINITIONS, TIDEMARK_WAREHOUS="x")
    errors = [line for line in lines if "Error while importing code" in line]
    assert len(errors) == 1
    assert "TIDEMARK_WAREHOUS" in errors[0]
    assert not [line for line in lines if "Traceback" in line or line.startswith("  File")]


def test_code_server_logs_another_error_with_its_traceback(tmp_path: Path) -> None:
    lines = logged_by_a_code_server(tmp_path, DEFINITIONS.replace("load_settings()\n", "1 / 0\n"))
    assert [line for line in lines if "ZeroDivisionError" in line]
    assert [line for line in lines if "wrong_definitions.py" in line]


def test_error_that_user_code_raises_because_of_ours_keeps_its_traceback() -> None:
    try:
        try:
            raise SettingsError("a setting")
        except SettingsError as error:
            raise ValueError("own words") from error
    except ValueError:
        record = logging.LogRecord(CODE_SERVER, logging.ERROR, "", 0, "Error", (), sys.exc_info())
    assert NamedErrors().filter(record)
    assert record.exc_info
    assert record.getMessage() == "Error"


def test_settings_that_can_be_read_leave_the_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger(CODE_SERVER)
    monkeypatch.setattr(logger, "filters", [])
    load_settings()
    assert logger.filters == []
