"""The executor of every run of a code location."""

import subprocess
import sys

CYCLE = """
from dagster_tidemark.event_log.executor import end_without_collection
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("collected")
cycle = Cycle()
{call}
"""


def test_process_of_a_run_ends_without_garbage_collection() -> None:
    assert _printed("pass") == "collected"
    assert _printed("end_without_collection()") == ""


def _printed(call: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", CYCLE.format(call=call)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
