"""The benchmark runs: every part with few lines and one round, into a separate report.

`make test` runs the part without a platform; `make proof` runs the others too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import CHECKOUT
from tests.conftest import INTERPRETED, MANY_STATEMENTS, QUICKLY_COMPILED
from tests.sampling import sample
from tests.warm_python import run_python


@pytest.mark.parametrize("name", ["stock", "tuned"])
def test_benchmark_baseline_definitions_load(name: str, tmp_path: Path) -> None:
    """The short benchmark leaves out `tuned`."""
    names = ("LANDING_BUCKET", "READINGS_QUEUE", "ALERTS_QUEUE", "CATALOG_URI", "WAREHOUSE")
    environment = os.environ | {f"TIDEMARK_{each}": "x" for each in names} | {"DAGSTER_HOME": str(tmp_path)}
    code = f"from bench.{name}.definitions import defs; print(len(list(defs.resolve_all_asset_keys())))"
    ended = run_python(["-c", code], env=environment, cwd=CHECKOUT)
    assert ended.returncode == 0 and int(ended.stdout) > 0, ended.stderr[-2_000:]


@pytest.mark.live
@pytest.mark.timeout(900)
@pytest.mark.parametrize("parts", sample(["throughput", "start,latency,messages"], "throughput"))
def test_each_benchmark_part_reports_figures(parts: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    few = ["--rounds", "1", "--lines", "240", "--no-warm-up"]
    command = [sys.executable, "-m", "bench", "--parts", parts, *few, "--to", str(report)]
    options = {"SPARK_SUBMIT_OPTS": f"{QUICKLY_COMPILED} {INTERPRETED} {MANY_STATEMENTS}"}  # the figures are not judged
    ended = subprocess.run(command, capture_output=True, text=True, timeout=850, check=False, env=os.environ | options)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4_000:]
    found = json.loads(report.read_text())
    expected = set(parts.split(","))
    assert found.keys() == expected | ({"memory"} if "latency" in expected else set())
    for part in expected & {"throughput"}:
        for table, figures in found[part]["tables"].items():
            assert all(rate > 0 for rate in figures["rows per second"].values()), table
    for part in expected & {"latency", "messages"}:
        assert all(figures["median"] > 0 for figures in found[part]["contestants"].values()), part
