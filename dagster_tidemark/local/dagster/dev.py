"""The service that becomes `dagster dev`.

Belongs here: the preparations for each start, including one after a crash. Does not belong here: the order of services
(`dagster_tidemark.local.platform.whole_platform`).
"""

import os
import sys

from dagster_tidemark.local.dagster.home import end_unfinished_runs, opened_home
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.settings import Settings, load_settings


def main() -> None:
    """Clear up after a predecessor and become `dagster dev`."""
    settings = load_settings()
    if mark := os.environ.get(process_tree.MARK):
        # The webserver, daemon and runs of a killed `dagster dev` keep running; two daemons on one home conflict.
        process_tree.end(lambda: process_tree.orphans(mark))
    with opened_home(settings) as instance:
        end_unfinished_runs(instance)
    # In the checkout, `dagster dev` would warn that it ignores dagster.yaml. The home has a link to that file.
    os.chdir(settings.platform_home)
    arguments = ["-m", "dagster", "dev", *loaded(settings), "-h", "127.0.0.1", "-p", str(settings.port_ui)]
    arguments += ["--log-format", "json"] if settings.log_format == "json" else []
    os.execv(sys.executable, [sys.executable, *arguments])


def loaded(settings: Settings) -> list[str]:
    """Return the options that name the code: the project's workspace.yaml, or the module of its definitions."""
    workspace = settings.root / "workspace.yaml"
    if workspace.exists():
        return ["-w", str(workspace)]
    return ["-m", _module(settings), "-d", str(settings.root)]


def _module(settings: Settings) -> str:
    """Return the module with `defs`, as `location` finds it, without importing the user's code."""
    folder = settings.code_root.joinpath(*settings.code_location.split("."))
    is_split = (folder / "definitions.py").is_file() or (folder / "definitions").is_dir()
    holds_itself = folder.with_suffix(".py").is_file() or (folder / "__init__.py").is_file()
    return settings.code_location if holds_itself and not is_split else f"{settings.code_location}.definitions"


if __name__ == "__main__":
    main()
