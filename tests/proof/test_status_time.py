"""`tidemark status` answers in two seconds on an idle machine.

Counted in seconds of the processor, and compared with an import of Dagster, because other programs may run beside.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path

from tests.checkout import CHECKOUT
from tests.proof.conftest import Report

MOST = 2.0 / 0.55
"""Two seconds, in imports of Dagster. One takes 0.55 s on an idle machine."""
ROUNDS = 3


def test_status_takes_at_most_two_seconds_of_the_processor(tmp_path: Path, report: Report) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    environment |= {"DAGSTER_HOME": str(tmp_path), "TIDEMARK_STATE_DIR": str(tmp_path / "state")}
    environment["TIDEMARK_PROJECT"] = str(CHECKOUT)

    def spent(*arguments: str, code: int) -> float:
        before = _of_children()
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return _of_children() - before

    status = ("-m", "dagster_tidemark.cli.app", "status")
    spent(*status, code=9)  # creates the instance
    rounds = [(spent("-c", "import dagster", code=0), spent(*status, code=9)) for _ in range(ROUNDS)]
    imports, answers = min(each for each, _ in rounds), min(each for _, each in rounds)
    report(
        "status-time",
        {
            "what": "seconds of the processor, the shortest of each round",
            "import of Dagster": round(imports, 2),
            "tidemark status": round(answers, 2),
            "imports of Dagster": round(answers / imports, 2),
            "most": round(MOST, 2),
        },
    )
    assert answers <= MOST * imports, rounds


def _of_children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
