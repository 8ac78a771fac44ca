"""Random days with bulk work and few slots: a table with ten minutes is never late, and nothing is lost or endless."""

import os
from pathlib import Path

from tests.proof.conftest import Report
from tests.proof.random_days import judged_days, summary
from tests.tidemark.planner.random_graphs.judging import world_of_bulk

FIRST = int(os.environ.get("BULK_FIRST", "0"))
DAYS = int(os.environ.get("BULK_DAYS", "1000"))
WHAT = "random graphs with 4 to 12 bulk tables (six hours, runs up to two minutes), and 2 to 4 slots"


def test_no_contract_is_breached_by_bulk_work_with_a_free_slot(report: Report, tmp_path: Path) -> None:
    days = judged_days(tmp_path / "days.jsonl", range(FIRST, FIRST + DAYS), world_of_bulk)
    said = summary(WHAT, days)
    report("bulk-days", said)
    assert not [day for day in days if day.wrong], said["kinds"]
