"""Programs forked from a process with libraries do what they do in a Python of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm_python import run_python, run_script

_TOLD = "import os, sys; print(sys.argv, os.getcwd(), sorted(os.environ), __name__)"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", _TOLD, "a", "b c"],
        ["-P", "-c", "import own; print(own.__file__)"],
        ["-m", "own", "x"],
        ["-c", "import sys; print('out'); print('ü', file=sys.stderr); sys.exit(3)"],
        ["-c", "import sys; sys.exit('reason')"],
        ["-c", "import atexit; atexit.register(print, 'last')"],
        ["-c", "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"],
        ["-W", "error", "-c", "import warnings; warnings.warn('shown')"],
        ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"],
        ["-c", "import sys; print({'dagster_tidemark', 'pipelines', 'pyiceberg', 'tests'} & {*sys.modules})"],
        ["-c", "import os; os._exit(4)"],
    ],
)
def test_forked_program_does_what_it_does_in_a_new_python(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "own.py").write_text("import sys; print(__name__, sys.argv[1:])\n")
    place = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(tmp_path / "lib"), "OWN": "1"}}
    found = run_python(arguments, **place)  # type: ignore[arg-type]
    expected = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **place)  # type: ignore[call-overload]
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout), found.stderr
    assert found.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


def test_forked_program_that_hangs_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_python(["-c", "import time; time.sleep(60)"], timeout=0.3)
    assert run_python(["-c", "print(1)"]).stdout == "1\n"


def test_script_is_run_under_its_name(tmp_path: Path) -> None:
    done = run_script("tidemark", ["--help"], cwd=tmp_path)
    assert done.returncode == 0 and "Usage: tidemark " in done.stdout
