"""Run the tests of Dagster's private names with the lowest and the newest Dagster of the range in pyproject.toml.

    python -m tests.check_range            both ends, each in a temporary environment
    python -m tests.check_range 1.13.28    these versions

`make check-range` calls it. Everything but Dagster has the versions of constraints.txt. Dagster's integrations are
released after Dagster, and each demands its own version of it. So the newest Dagster is installed over the newest set
that fits together: a fault is known before users can have that version. Exits with 1 if a test fails or a version
cannot be installed.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.checkout import CHECKOUT

TESTS = (
    "tests/tidemark/test_dagster_range.py",
    "tests/tidemark/dagster_internals",
    "tests/tidemark/asset_graph/test_asset_graph.py",
    "tests/tidemark/event_log/test_checkpoint_parts.py",
    "tests/tidemark/engine/test_engine.py",
    "tests/tidemark/engine/test_guarded_conditions.py",
    "tests/tidemark/event_log/test_intake.py",
    "tests/tidemark/asset_graph/test_partition_mappings.py",
    "tests/tidemark/engine/test_run_requests.py",
    "tests/tidemark/sensors/test_sensors.py",
    "tests/tidemark/simulation/test_simulated_log.py",
    "tests/tidemark/simulation/test_storages.py",
    "tests/tidemark/checks/test_dead_runs.py",
    "tests/tidemark/local/test_home.py",
    "tests/tidemark/local/test_warm_runs.py",
    "tests/tidemark/test_component_errors.py",
    "tests/tidemark/test_components.py",
    "tests/tidemark/test_extend.py",
)
"""The contract tests of private names, and the tests of the modules that use most of them."""

_DAGSTER = re.compile(r"dagster(-[\w-]+)?(?=[<>=])")
_LOWEST = re.compile(r">=\s*([\w.]+)")
_EXTRAS = "local,models,kafka,avro"


def main(versions: Sequence[str]) -> int:
    """Check the versions, by default both ends of the range. Return the exit code."""
    core = in_range()
    ends = [(each, {}, f"dagster=={each}") for each in versions] or [("lowest", lowest(), ""), ("newest", {}, core)]
    lines, is_good = [], True
    for name, pins, over in ends:
        with tempfile.TemporaryDirectory(prefix="tidemark-range-") as folder:
            print(f"{name}: installing", flush=True)
            line, is_held = checked(Path(folder), name, pins, over)
        print(line, flush=True)
        lines.append(line)
        is_good &= is_held
    print("\n" + "\n".join(lines))
    return 0 if is_good else 1


def lowest() -> dict[str, str]:
    """Return the lowest version of each distribution of Dagster that pyproject.toml allows."""
    found = {}
    for requirement in requirements():
        name, least = _DAGSTER.match(requirement), _LOWEST.search(requirement)
        if name and least:
            found[name[0]] = least[1]
    return found


def in_range() -> str:
    """Return the requirement of pyproject.toml on Dagster itself."""
    return next(each for each in requirements() if re.match(r"dagster[<>=]", each))


def requirements() -> list[str]:
    """Return every requirement of the project, with those of its extras and of its development."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    groups = project["project"]["optional-dependencies"].values()
    development = [each for each in project["dependency-groups"]["dev"] if isinstance(each, str)]  # others name groups
    return [*project["project"]["dependencies"], *development, *(each for group in groups for each in group)]


def checked(folder: Path, name: str, pins: Mapping[str, str], over: str) -> tuple[str, bool]:
    """Install the project with some versions of Dagster and run the tests.

    Args:
        pins: Versions of Dagster's distributions; others are the newest that fit together.
        over: The requirement of a Dagster that is installed over them; empty for none.

    Returns:
        A line, and True if all tests pass.
    """
    python = str(folder / "venv" / "bin" / "python")
    others = [line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if not _DAGSTER.match(line)]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join([*others, *(f"{each}=={version}" for each, version in pins.items())]) + "\n")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [*pip, "pip>=25.1"],
        [*pip, "-c", str(constraints), "-e", f".[{_EXTRAS}]", "--group", "dev"],
        *([[*pip, "-c", str(constraints), "--upgrade", over]] if over else []),
    ):
        if subprocess.run(command, cwd=CHECKOUT).returncode:
            return f"{name}: cannot be installed", False
    asked = [python, "-c", "import importlib.metadata as m; print(m.version('dagster'))"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    print(f"{name}: dagster {version}", flush=True)
    begun = time.monotonic()
    options = ["-q", "-p", "no:cacheprovider", "--basetemp", str(folder / "tests"), "--maxfail=20"]
    options += ["-W", "ignore:Found version mismatch"] if over else []  # the integrations are of another release
    environment = os.environ | {"PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([python, "-m", "pytest", *options, *TESTS], cwd=CHECKOUT, env=environment)
    held = "holds" if not done.returncode else "FAILS, see above"
    return f"{name}: dagster {version} {held} ({time.monotonic() - begun:.0f} s of tests)", not done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
