"""Logs on the terminal: only what is new, in whole lines, across a rotation."""

import io
import time
from pathlib import Path

from rich.console import Console

from dagster_tidemark.local.platform.log_tail import followed_logs
from dagster_tidemark.local.platform.services import log_file
from tests.conftest import make_settings


def test_new_log_lines_are_printed_with_the_service_name(tmp_path: Path) -> None:
    settings, printed = make_settings(tmp_path), io.StringIO()
    log = log_file(settings, "spark")
    log.parent.mkdir()
    log.write_text("said before\n")

    with followed_logs(settings, ["spark", "cloud"], Console(file=printed)):
        time.sleep(0.5)
        with log.open("a") as lines:
            lines.write("listening on [0] ports\nhalf a li")
        time.sleep(0.7)
        log.write_text("anew\n")  # shorter: it was rotated
        log_file(settings, "cloud").write_text("a first word\n")

    assert printed.getvalue().split("\n") == [
        "   spark listening on [0] ports",
        "   spark anew",
        "   cloud a first word",
        "",
    ]
