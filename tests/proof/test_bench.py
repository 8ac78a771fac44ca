"""The whole benchmark runs: every part with few lines and one round, into a separate report."""

import json
import subprocess
import sys
from pathlib import Path


def test_every_part_of_the_benchmark_ends_with_figures(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench", "--rounds", "1", "--lines", "24000", "--no-warm-up", "--to", str(report)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=850, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4_000:]
    found = json.loads(report.read_text())
    assert found.keys() >= {"throughput", "start", "latency", "memory", "messages"}
    for table, figures in found["throughput"]["tables"].items():
        assert all(rate > 0 for rate in figures["rows per second"].values()), table
    for part in ("latency", "messages"):
        assert all(figures["median"] > 0 for figures in found[part]["contestants"].values()), part
