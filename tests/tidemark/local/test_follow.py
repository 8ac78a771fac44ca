"""Logs on the terminal: only what is new, across a rotation, below the name of its file."""

import time
from pathlib import Path

import pytest

from dagster_tidemark.local.platform.services import log_file
from dagster_tidemark.local.platform.whole_platform import followed_logs
from tests.conftest import make_settings


def test_new_log_lines_are_printed_below_the_name_of_their_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(tmp_path)
    spark, cloud = log_file(settings, "spark"), log_file(settings, "cloud")
    spark.parent.mkdir()
    spark.write_text("said before\n")
    printed = ""

    def until(text: str) -> None:
        nonlocal printed
        deadline = time.monotonic() + 20
        while text not in printed:
            assert time.monotonic() < deadline, printed
            time.sleep(0.1)
            printed += capfd.readouterr().out

    with followed_logs(settings, ["spark", "cloud"]):
        until(f"==> {spark} <==")  # it follows from now on
        with spark.open("a") as lines:
            lines.write("listening on [0] ports\n")
        until("listening on [0] ports\n")
        spark.rename(spark.with_suffix(".log.1"))
        spark.write_text("anew\n")
        until("anew\n")
        cloud.write_text("a first word\n")
        until(f"==> {cloud} <==\na first word\n")
    assert "said before" not in printed
