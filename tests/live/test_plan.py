"""`pipelines plan` beside a platform whose contracts run at a part of their time, which the shell does not know."""

import subprocess
import sys
from pathlib import Path

from tests.live.conftest import Loaded


def test_the_code_that_is_deployed_leaves_nothing_to_do(loaded: Loaded) -> None:
    platform = loaded.platform
    platform.quiet()
    asked = {name: value for name, value in platform.asked.items() if name != "TIDEMARK_CONTRACT_SCALE"}
    command = [Path(sys.executable).parent / "pipelines", "plan"]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (
        0,
        "nothing to do: no partition would run because of this code",
    ), done.stdout + done.stderr
