"""A thousand random days with slow blocking checks that fail, raise, are skipped and time out: no gate is open.

No run that the planner requested reads a write that no passed check has seen, judged when it is requested and when it
reads.
"""

import os
from pathlib import Path

from tests.proof.conftest import Report
from tests.proof.random_days import judged_days, summary
from tests.tidemark.planner.random_graphs.judging import world_of_checks

FIRST = int(os.environ.get("GATES_FIRST", "0"))
DAYS = int(os.environ.get("GATES_DAYS", "1000"))
WHAT = "random graphs with blocking checks on most tables, of 0 to 900 s, which fail, raise, are skipped and time out"


def test_no_run_reads_data_that_failed_a_blocking_check(report: Report, tmp_path: Path) -> None:
    days = judged_days(tmp_path / "days.jsonl", range(FIRST, FIRST + DAYS), world_of_checks)
    said = summary(WHAT, days)
    report("open-gates", said)
    assert not [day for day in days if day.wrong], said["kinds"]
