"""Output of `tidemark status --arrivals`: the expected arrivals of sources, for a terminal or as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.incidents.incident import ArrivalRow
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.planner.wording import moment
from dagster_tidemark.settings import Settings


def show_arrivals(settings: Settings, *, as_json: bool) -> None:
    """Print the misses, the newest and the next window of each source with expected arrivals.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
        StorageUnreachable: Dagster's storage does not answer.
    """
    settings = take_environment(settings)
    with opened_instance() as instance:
        rows = IncidentStore(instance, settings.code_location).read().arrivals
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    elif rows:
        Console().print(arrival_table(rows))
    else:
        print("no expected arrivals, or the sensor contracts has not run yet")


def arrival_table(rows: Sequence[ArrivalRow]) -> Table:
    """Return a table with a row for the windows of a source in the same state."""
    table = Table("source", "windows", "state", "due", "arrived")
    for row in rows:
        more = f" and {row.count - len(row.partitions)} more" if row.count > len(row.partitions) else ""
        state = f"{row.state}: {row.said}" if row.said else str(row.state)
        times = ("" if at is None else moment(at) for at in (row.due_at, row.arrived_at))
        table.add_row(*map(Text, (row.source, ", ".join(row.partitions) + more, state, *times)))
    return table
