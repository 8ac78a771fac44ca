"""`TIDEMARK_LOG_FORMAT=json`: each line on stderr is a JSON object, whoever wrote it."""

import io
import json
import logging
import os
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dagster_tidemark.json_logs import JsonFormatter, JsonLines
from tests.checkout import CHECKOUT
from tests.warm_python import run_python

_PROGRAM = """
import logging, sys, threading, warnings
from dagster_tidemark.json_logs import about_this_process, write_json_logs
early = logging.StreamHandler()
logging.getLogger("other").addHandler(early)
write_json_logs()
about_this_process(run_id="r1", stream=None)
logging.getLogger("other").warning("two\\nlines")
logging.getLogger("dagster_tidemark.x").warning("%s rows", 3)
warnings.warn("old")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("dagster_tidemark.x").exception("no sum")
logging.getLogger("other").warning("%d rows", "three")
logging.getLogger("dagster_tidemark.x").warning("here", stack_info=True)
thread = threading.Thread(target=lambda: 1 / 0, name="heartbeat")
thread.start()
thread.join()
raise OSError("gone")
"""


def program(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    given = {**os.environ, "TIDEMARK_LOG_FORMAT": "json", "TIDEMARK_PROJECT": str(CHECKOUT), **environment}
    return run_python(command, env=given)


def test_logs_warnings_and_uncaught_errors_of_a_process_are_objects() -> None:
    done = program("-c", _PROGRAM)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    other, ours, warned, caught, unfit, traced, threaded, uncaught = lines
    assert unfit["message"].startswith("%d rows (its arguments do not fit: TypeError") and "File" in traced["stack"]
    assert threaded["message"].startswith("thread heartbeat: ZeroDivisionError") and threaded["level"] == "error"
    assert "Traceback" in threaded["exception"] and other["message"] == "two\nlines"
    assert {line["run_id"] for line in lines} == {"r1"} and "stream" not in ours
    assert (other["logger"], ours["message"], warned["logger"]) == ("other", "3 rows", "py.warnings")
    assert caught["message"] == "no sum" and "ZeroDivisionError" in caught["exception"]
    assert (uncaught["message"], uncaught["level"]) == ("OSError: gone", "critical")
    assert ours["time"].endswith("+00:00") and ours["level"] == "warning" and done.stdout == ""


def test_commands_report_an_error_as_one_object(tmp_path: Path) -> None:
    done = program("-m", "dagster_tidemark.cli.app", "env", TIDEMARK_STATE_DIR=str(tmp_path))
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (done.returncode, line["logger"], line["level"]) == (3, "tidemark", "error") and "tidemark up" in line[
        "message"
    ]


_LOCATION = """
import logging
import dagster as dg
from dagster_tidemark import build_definitions, load_settings

@dg.asset(key=["core", "numbers"])
def numbers(context: dg.AssetExecutionContext) -> None:
    context.log.info("3 rows")
    logging.getLogger("acme").warning("own")
    raise ValueError("no such column")

defs = build_definitions(load_settings(), [numbers], [], [])
"""


def test_each_line_of_a_run_is_an_object_with_its_asset_and_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tidemark]\npackage = "acme"\n')
    (tmp_path / "acme.py").write_text(_LOCATION)
    # Dagster's usual manager captures a step's lines and prints them by a `tail`, which it may end before the last one.
    manager = "{module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}"
    (tmp_path / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\ncompute_logs: {manager}\n")
    folder = str(tmp_path)
    command = ("-W", "ignore", "-m", "dagster", "asset", "materialize", "--select", "core/numbers", "-m", "acme")
    done = program(*command, "-d", folder, DAGSTER_HOME=folder, TIDEMARK_PROJECT=folder)
    text = done.stderr.splitlines()
    begun = next(number for number, line in enumerate(text) if line.startswith("{"))
    if text[-1].startswith("Error:"):  # of Dagster's command, which is not the run
        text.pop()
    lines = [line for line in map(json.loads, text[begun:]) if "run_id" in line]
    by_message = {line["message"]: line for line in lines}
    assert by_message["3 rows"]["asset"] == by_message["own"]["asset"] == "core/numbers"
    assert by_message["own"]["run_id"] == by_message["3 rows"]["run_id"]
    (failed,) = [line for line in lines if line.get("event") == "STEP_FAILURE"]
    assert "ValueError: no such column" in failed["exception"]


def test_a_wrong_format_is_named(tmp_path: Path) -> None:
    done = program("-m", "dagster_tidemark.cli.app", "env", TIDEMARK_LOG_FORMAT="xml")
    assert done.returncode == 2 and "TIDEMARK_LOG_FORMAT=xml" in done.stderr and done.stderr.count("\n") == 1


@given(st.lists(st.text(max_size=8), max_size=6), st.lists(st.integers(1, 5), max_size=9))
def test_any_text_in_any_pieces_becomes_objects_with_its_lines(lines: list[str], cuts: list[int]) -> None:
    written = io.StringIO()
    stream = JsonLines(written)
    lines = [line.replace("\n", " ") for line in lines]
    text = "\n".join(lines)
    while text:
        cut = cuts.pop() if cuts else len(text)
        stream.write(text[:cut])
        text = text[cut:]
    stream.close_line()
    found = written.getvalue().split("\n")
    assert found.pop() == ""
    messages = [json.loads(line).get("message", line) for line in found]  # an object such as {} passes unchanged
    assert messages == [line.removeprefix("tidemark: ") for line in lines if line.strip()]


def test_an_object_passes_unchanged_and_other_text_in_braces_does_not() -> None:
    written = io.StringIO()
    stream = JsonLines(written)
    stream.write('{"message": "a"}\n{not json}\n[1]\n')
    first, second, third = written.getvalue().splitlines()
    assert first == '{"message": "a"}'
    assert [json.loads(line)["message"] for line in (second, third)] == ["{not json}", "[1]"]
    assert not stream.isatty()


def test_a_line_with_a_surrogate_is_written_with_an_escape(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    name = b"caf\xe9.csv".decode(errors="surrogateescape")
    with path.open("w", encoding="utf-8") as written:
        stream = JsonLines(written)
        stream.write(f"{name} \U0001f600 é\n" + json.dumps({"message": name}, ensure_ascii=False) + "\n")
        record = logging.LogRecord("x", logging.INFO, "", 0, "%s", (name,), None)
        stream.write(JsonFormatter().format(record) + "\n")
    text = path.read_text(encoding="utf-8")
    assert text.count("\\udce9") == 3 and "\U0001f600 é" in text
    assert [json.loads(line)["message"] for line in text.splitlines()] == [f"{name} \U0001f600 é", name, name]
