"""The check `arrival`: shows in the page of a source if its expected data came, and fails while some is missing.

The sensor `contracts` writes a result when a state changes. Does not belong here: the states (`incidents.arrivals`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_tidemark.incidents.arrivals import MISSES
from dagster_tidemark.incidents.expected import ExpectedArrival
from dagster_tidemark.incidents.incident import ArrivalRow
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.planner.wording import names
from dagster_tidemark.sensors.reported_check import ReportedBySensor
from dagster_tidemark.settings import Settings

ARRIVAL = "arrival"


def arrival_checks(expected: Sequence[ExpectedArrival], settings: Settings) -> list[dg.AssetChecksDefinition]:
    """Return a check for each source with expected arrivals."""
    return [_check(source, settings) for source in dict.fromkeys(each.source for each in expected)]


def _check(source: str, settings: Settings) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=dg.AssetKey.from_user_string(source),
        name=ARRIVAL,
        description="Fails while data that is expected is missing, empty, repeated or too small.",
        automation_condition=ReportedBySensor(),
    )
    def arrival(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        book = IncidentStore(context.instance, settings.code_location).read()
        return dg.AssetCheckResult(**_result([row for row in book.arrivals if row.source == source]))

    return arrival


def changed_arrivals(
    rows: Iterable[ArrivalRow], told: Mapping[str, Any]
) -> tuple[list[dg.AssetCheckEvaluation], dict[str, list[Any]]]:
    """Return results for the sources whose state has changed since the last report, and the states of all sources."""
    by_source: dict[str, list[ArrivalRow]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).append(row)
    states = {
        f"arrival {source}": [[row.state, row.count, *row.partitions] for row in every]
        for source, every in by_source.items()
    }
    events = [
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey.from_user_string(source), check_name=ARRIVAL, **_result(by_source[source])
        )
        for source in by_source
        if told.get(f"arrival {source}") != states[f"arrival {source}"]
    ]
    return events, states


def _result(rows: Sequence[ArrivalRow]) -> dict[str, Any]:
    misses = [row for row in rows if row.state in MISSES]
    metadata: dict[str, Any] = {str(row.state): _windows(row) for row in rows}
    metadata |= {f"{row.state}, due": dg.MetadataValue.timestamp(row.due_at) for row in rows if row.due_at is not None}
    return {
        "passed": not misses,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": "; ".join(f"{row.state}: {row.said or _windows(row)}" for row in misses) or "nothing is missing",
        "metadata": {**metadata, "windows missing or incomplete": sum(row.count for row in misses)},
    }


def _windows(row: ArrivalRow) -> str:
    more = row.count - len(row.partitions)
    return names(row.partitions) + (f" and {more} more" if more else "")
