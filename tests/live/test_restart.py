"""Ctrl-C, and the platform once more on what it left: nothing is looked at, run or written twice."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.live.conftest import Judge, Loaded
from tests.live.platform import Platform
from tests.live.waiting import holds_for
from tests.oracle import TABLES

SOURCES = ("raw/orders", "raw/prices", "raw/customers")
LISTED = "from pyiceberg.catalog import load_catalog; print(load_catalog('lake').list_tables('marts'))"


def happened(platform: Platform) -> dict[str, Any]:
    """How many of everything that could happen did."""
    ui = platform.ui
    return {
        "runs": len(ui.runs()),
        "observations": {source: len(ui.observations(source)) for source in SOURCES},
        "materializations": {table: len(ui.materializations(table.replace(".", "/"))) for table in TABLES},
        "commits": {table: platform.snapshots(table) for table in TABLES},
    }


def test_second_start_on_the_same_state_runs_and_writes_nothing(
    loaded: Loaded, judge: Judge, note: Callable[[str], None]
) -> None:
    platform = loaded.platform
    platform.quiet()
    before = happened(platform)
    stopped = platform.stop(signal.SIGINT)
    note(f"Ctrl-C: {stopped.seconds:.1f} s")
    assert stopped.left == []
    assert stopped.exit_code == 0
    assert stopped.seconds < 15
    assert "tidemark up" in platform.pipelines("env", code=3).stderr

    seconds = platform.start()
    note(f"second start: {seconds:.0f} s to the greeting")

    def nothing_happens() -> None:
        assert happened(platform) == before

    holds_for(nothing_happens, seconds=15, every=3)
    judge(seconds=0)


def test_env_command_connects_a_shell_to_the_platform(loaded: Loaded) -> None:
    pipelines = shlex.quote(str(sys.executable).rpartition("/")[0] + "/tidemark")
    script = f'eval "$({pipelines} env)"; {shlex.quote(sys.executable)} -c {shlex.quote(LISTED)}'
    done = subprocess.run(
        ["bash", "-ec", script], env=loaded.platform.asked, cwd="/", capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for table in TABLES:
        space, name = table.split(".")
        assert (f"'{space}', '{name}'" in done.stdout) == (space == "marts")
