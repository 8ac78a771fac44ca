"""What `pipelines status` prints: the contracts, or the platform's services.

Belongs here: from settings to the instance that is meant, and the printing. Does not belong here: what a row says
(`cli.contract_rows`, `local.platform.service_status`) and exit codes (`cli.status`).
"""

import json
import time
from collections.abc import Sequence

from dagster import DagsterInstance
from rich.console import Console
from rich.live import Live
from rich.table import Table

from pipelines.tidemark import location
from pipelines.tidemark.cli.contract_rows import ContractRow, rows
from pipelines.tidemark.cli.contract_table import explained
from pipelines.tidemark.event_log.adapter import now
from pipelines.tidemark.event_log.observations import dead_letters_told
from pipelines.tidemark.local.platform.instance_lock import take_environment
from pipelines.tidemark.settings import Settings

_WATCH_SECONDS = 3.0


def show_contracts(settings: Settings, asset: str | None, *, watch: bool, as_json: bool) -> Sequence[ContractRow]:
    """Print how the contracts stand. With `watch` it ends by Ctrl-C only.

    Returns:
        What was printed.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
        NoSuchAsset: there is none of that name.
    """
    take_environment(settings)
    # Only now: the code location reads the environment when it is imported.
    graph = location.asset_graph(settings)
    with DagsterInstance.get() as instance:
        found = rows(instance, graph, asset)
        if as_json:
            print(json.dumps([row.as_dict() for row in found], indent=2))
        elif not watch:
            Console().print(explained(found, now()))
            if given_up := dead_letters_told(instance):
                Console().print(
                    f"{given_up} notifications were given up by the queue: `pipelines redrive` sends them again"
                )
        else:
            with Live(explained(found, now())) as live:
                while True:
                    time.sleep(_WATCH_SECONDS)
                    live.update(explained(rows(instance, graph, asset), now()), refresh=True)
    return found


def show_services(settings: Settings, *, as_json: bool) -> None:
    """Print each process of the platform that runs.

    Raises:
        NothingRuns: none does.
        SupervisorDied: its supervisor was killed.
    """
    from pipelines.tidemark.local.platform.service_status import services

    found = [service.as_dict() for service in services(settings)]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    shown = Table(*(str(name).replace("_", " ") for name in found[0]))
    for service in found:
        shown.add_row(*("" if value is None else str(value) for value in service.values()))
    Console().print(shown)
