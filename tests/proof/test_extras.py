"""In an empty environment the wheel works with no extra and with each one: its modules, and a code location."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.proof.conftest import Report
from tests.tidemark import extras


def test_wheel_works_with_each_extra_alone(wheel: Path, tmp_path: Path, report: Report) -> None:
    found: dict[str, Any] = {}
    for extra in ("", *extras.PACKAGES):
        folder, begun = tmp_path / f"with-{extra or 'none'}", time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
        python, what = folder / "bin" / "python", f"{wheel}[{extra}]" if extra else str(wheel)
        subprocess.run([python, "-m", "pip", "install", "--quiet", what], check=True, timeout=1800)
        installed = round(time.monotonic() - begun, 1)
        program = [python, "-W", "ignore", extras.__file__, *filter(None, [extra])]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        packages = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
        found[extra or "none"] = {
            "seconds to install": installed,
            "packages": len(packages.splitlines()) - 2,
            "exit code": done.returncode,
            "said": done.stdout.strip()[-2000:],
            "stderr": done.stderr.strip()[-2000:],
        }
    report("extras", {"extras": found})
    failed = {
        extra: each for extra, each in found.items() if each["exit code"] or not each["said"].endswith("; 0 failed")
    }
    assert not failed, failed
