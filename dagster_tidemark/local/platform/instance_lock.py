"""The lock and the environment of a running platform, in its state folder.

Belongs here: the lock that `up` holds while it runs, and the environment that it leaves for `tidemark env`. Does not
belong here: the variables of the environment (`Settings.exports`).
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.settings import Settings, SettingsError, load_settings

_SECONDS_FOR_A_LOOK = 2


class AlreadyRunning(Transient):
    """Another `tidemark up` runs on this state folder."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            f"the platform already runs on {settings.state_dir}; stop it, or set TIDEMARK_STATE_DIR and the ports"
        )


class NothingRuns(Terminal):
    """No `tidemark up` runs on this state folder."""

    exit_code = 3

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            f"no platform runs on {settings.state_dir}; `tidemark up` starts it. Beside a `dagster dev` of your own, "
            "set DAGSTER_HOME to its home"
        )


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """Hold the lock of this state folder. The kernel releases it however the process ends.

    Raises:
        AlreadyRunning: another `tidemark up` holds it.
    """
    path = _lock_path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        # `running_environment` also holds the lock for an instant, so one refusal is no proof of another platform.
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
    """Write the platform's environment for other programs. Only the platform itself calls this."""
    path = _environment_path(settings)
    path.touch(mode=0o600)
    path.write_text(json.dumps(environment, indent=2) + "\n")


def running_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of the running platform.

    Raises:
        NothingRuns: no platform runs, or it has not published its environment yet.
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


def take_environment(settings: Settings) -> Settings:
    """Adopt the environment of the running platform, and return its settings, which may scale the times of contracts.

    If no platform runs, keep the present environment and settings. In production, never use a platform.

    Raises:
        NothingRuns: no platform runs, and the present environment names no Dagster home.
        SettingsError: production, and the environment names no Dagster home.
    """
    if settings.environment == "production":
        if settings.dagster_home is None:
            raise SettingsError("DAGSTER_HOME is not set: set it to the folder with production's dagster.yaml")
        return settings
    try:
        os.environ.update(running_environment(settings))
    except NothingRuns:
        if "DAGSTER_HOME" not in os.environ:
            raise
        return settings
    return load_settings()


def _lock_path(settings: Settings) -> Path:
    return settings.state_dir / "run" / "lock"


def _environment_path(settings: Settings) -> Path:
    return settings.state_dir / "run" / "environment.json"
