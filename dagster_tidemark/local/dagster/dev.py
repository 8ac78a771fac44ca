"""The service that becomes `dagster dev`.

Belongs here: the preparations for each start, including one after a crash. Does not belong here: the order of services
(`dagster_tidemark.local.platform.whole_platform`).
"""

import os
import sys

from dagster_tidemark.local.dagster.home import end_unfinished_runs, opened_home
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.settings import load_settings


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
    workspace, port = str(settings.root / "workspace.yaml"), str(settings.port_ui)
    arguments = ["-m", "dagster", "dev", "-w", workspace, "-h", "127.0.0.1", "-p", port]
    arguments += ["--log-format", "json"] if settings.log_format == "json" else []
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main()
