"""The asset `ops/freshness`: how old the data was that each asset with a contract lacked, day by day.

Belongs here: the run that computes and stores the rows. Does not belong here: the figures (`engine.lag_history`), and
the requests of its runs (`sensors.freshness_sensor`).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine.lag_history import FRESHNESS_ASSET, REPORTED_BY, AssetLag, lags, period_of
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings

FRESHNESS = Table(
    name="ops.freshness",
    columns={
        "day": "date",
        "asset": "string",
        "code_location": "string",
        "contract": "string",
        "mean_lag_s": "double",
        "p95_lag_s": "double",
        "longest_lag_s": "double",
        "within_contract": "double",
        "observed_s": "double",
        "computed_at": "timestamp",
    },
    row_key=("day", "asset", "code_location"),
    comment="Freshness of an asset with a contract on a day (UTC)",
    column_comments={
        "day": "The day, UTC",
        "asset": "The key of the asset",
        "code_location": "The code location that builds the asset",
        "contract": "The contract when the row was computed, in words",
        "mean_lag_s": "Mean age of the oldest arrived data that the asset lacked, in seconds",
        "p95_lag_s": "Age that was not exceeded for 95% of the day, in seconds",
        "longest_lag_s": "Longest age, in seconds",
        "within_contract": "Share of the day in which the contract was not breached (0 to 1)",
        "observed_s": "Length of the observed part of the day, in seconds: less than 86,400 on the first day",
        "computed_at": "When the row was computed, UTC",
    },
)


def freshness_asset(settings: Settings, graph: Callable[[], AnyGraph]) -> dg.AssetsDefinition:
    """Return the asset `ops/freshness`, one partition per day.

    Args:
        graph: Returns the assets of the code location.
    """

    @dg.asset(
        key=FRESHNESS_ASSET,
        group_name="ops",
        kinds={"iceberg"},
        partitions_def=dg.DailyPartitionsDefinition(settings.start_date.isoformat()),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Freshness of an asset with a contract on a day: mean, 95th percentile and maximum of its lag, and "
        "the share of the day within its contract. Computed from the event log after the day has ended.",
    )
    def freshness(context: dg.AssetExecutionContext) -> None:
        days = sorted(date.fromisoformat(key) for key in context.partition_keys)
        periods = [period_of(day) for day in days]
        found = lags(context.instance, graph(), periods, contract_scale=settings.contract_scale)
        store(settings, days, found)
        for day in days:
            of_day = [each for each in found if _day(each) == day]
            reported = {REPORTED_BY: settings.code_location, **_summary(of_day)}
            context.add_asset_metadata(reported, partition_key=day.isoformat())
            for each in of_day:
                context.log_event(dg.AssetObservation(each.asset, metadata=_figures(each)))

    return freshness


def store(settings: Settings, days: Sequence[date], found: Sequence[AssetLag]) -> None:
    """Replace the rows of some days of this code location, in one commit."""
    from pyiceberg.expressions import And

    from dagster_tidemark.lakehouse.append import Appendable, TableCommit, equal, one_of, open_lake, rows_of

    table, now, location = Appendable(open_lake(settings), FRESHNESS), datetime.now(UTC), settings.code_location
    rows = [_row(each, location, now) for each in found]
    replaced = And(equal("code_location", location), one_of("day", [day.isoformat() for day in days]))

    def _stored() -> None:
        is_there = table.rows(replaced, ("day",)).num_rows > 0  # pyiceberg warns of deletes without a row
        table.commit(TableCommit(rows_of(table.schema, rows), instead_of=replaced if is_there else None))

    until_committed(_stored, FRESHNESS.name, look_again=table.refresh)


def _row(each: AssetLag, location: str, now: datetime) -> Mapping[str, Any]:
    return {
        "day": _day(each),
        "asset": each.asset,
        "code_location": location,
        "contract": each.contract,
        "mean_lag_s": each.lag.mean,
        "p95_lag_s": each.lag.p95,
        "longest_lag_s": each.lag.longest,
        "within_contract": each.lag.within,
        "observed_s": each.lag.seconds,
        "computed_at": now,
    }


def _day(each: AssetLag) -> date:
    return datetime.fromtimestamp(each.start, UTC).date()


def _figures(each: AssetLag) -> Mapping[str, Any]:
    """Return an asset's figures of a day. Dagster plots them in the asset's page.

    Dagster draws one curve per name. So the lag is reported next to the promised lag, and also as a share.
    """
    found = {
        "lag, mean (seconds)": round(each.lag.mean, 3),
        "lag, p95 (seconds)": round(each.lag.p95, 3),
        "lag, longest (seconds)": round(each.lag.longest, 3),
        "within contract (share)": round(each.lag.within, 6),
        "day": _day(each).isoformat(),
    }
    if each.promised is not None:
        found["lag, promised (seconds)"] = each.promised
        found["lag, longest (share of promised)"] = round(each.lag.longest / each.promised, 6)
    return found


def _summary(found: Sequence[AssetLag]) -> Mapping[str, Any]:
    worst = max(found, key=lambda each: (1 - each.lag.within, each.lag.longest), default=None)
    if worst is None:
        return {"assets with a contract": 0}
    return {
        "assets with a contract": len(found),
        "assets outside their contract": sum(each.lag.within < 1 for each in found),
        "lag, longest (seconds)": round(max(each.lag.longest for each in found), 3),
        "within contract, least share": round(worst.lag.within, 6),
        "worst": f"{worst.asset} ({worst.contract})",
    }
