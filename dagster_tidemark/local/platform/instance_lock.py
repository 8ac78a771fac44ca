"""Whether the platform of a state folder runs, and with what environment.

Belongs here: the lock `up` holds while it lives, and the environment it leaves for `tidemark env`. Does not
belong here: what the environment says (`Settings.exports`).
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.settings import Settings

_SECONDS_FOR_A_LOOK = 2


class AlreadyRunning(Transient):
    """Another `tidemark up` runs on this state folder."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            f"it runs already on {settings.state_dir}; stop that one, or set TIDEMARK_STATE_DIR and the ports"
        )


class NothingRuns(Terminal):
    """No `tidemark up` runs on this state folder."""

    exit_code = 3

    def __init__(self, settings: Settings) -> None:
        super().__init__(f"nothing runs on {settings.state_dir}; `make dev` starts it")


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """Be the platform of this state folder. The kernel gives the lock back however the process ends.

    Raises:
        AlreadyRunning: somebody else is.
    """
    path = _lock_path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        # `running_environment` holds the lock for an instant, so one refusal says nothing yet.
        deadline = time.monotonic() + _SECONDS_FOR_A_LOOK
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AlreadyRunning(settings) from None
                time.sleep(0.05)
        try:
            yield
        finally:
            _environment_path(settings).unlink(missing_ok=True)


def publish_environment(settings: Settings, environment: Mapping[str, str]) -> None:
    """Leave the platform's environment for other programs. The caller is the platform."""
    path = _environment_path(settings)
    path.touch(mode=0o600)
    path.write_text(json.dumps(environment, indent=2) + "\n")


def running_environment(settings: Settings) -> dict[str, str]:
    """The environment of the platform that runs now.

    Raises:
        NothingRuns: none does, or it has not come so far yet.
    """
    try:
        with _lock_path(settings).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                environment: dict[str, str] = json.loads(_environment_path(settings).read_text())
                return environment
    except (FileNotFoundError, ValueError):
        pass
    raise NothingRuns(settings)


def take_environment(settings: Settings) -> None:
    """Have the environment of the platform that runs; or the one there is, where it names a Dagster home.

    Raises:
        NothingRuns: neither is there.
    """
    try:
        os.environ.update(running_environment(settings))
    except NothingRuns:
        if "DAGSTER_HOME" not in os.environ:
            raise


def _lock_path(settings: Settings) -> Path:
    return settings.state_dir / "run" / "lock"


def _environment_path(settings: Settings) -> Path:
    return settings.state_dir / "run" / "environment.json"
