"""A code location of external tables and tables of its own, each with one reader that has a contract of a minute.

Its assets need no Spark. Belongs here: what is declared. Does not belong here: the events that are reported, and what
follows (`tests.live.test_ways_to_update`).
"""

import os
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark import extend, load_settings

DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-11-01")
_SOON: dict[str, Any] = {
    "freshness_policy": dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=1)),
    "tags": {"tidemark/pace": "asap"},  # otherwise a run begins just in time for the contract
}

UPSTREAM = dg.AssetSpec(["raw", "upstream_of_vendor"], partitions_def=DAYS)
VENDOR = dg.AssetSpec(["ext", "vendor"], deps=[UPSTREAM], partitions_def=DAYS)
"""An external table with upstreams: another system builds it."""
RATES = dg.AssetSpec(["ext", "rates"])
LANDED = [dg.AssetSpec(["raw", "orders"], partitions_def=DAYS), dg.AssetSpec(["raw", "customers"])]


def _table(name: str, reads: str, by: dg.PartitionsDefinition[str] | None, **more: Any) -> dg.AssetsDefinition:
    policy = dg.BackfillPolicy.single_run() if by is not None else None

    @dg.asset(key=name.split("/"), deps=[reads.split("/")], partitions_def=by, backfill_policy=policy, **more)
    def _body() -> None:
        """Build nothing: only the runs count."""

    return _body


ASSETS: list[Any] = [
    UPSTREAM,
    VENDOR,
    RATES,
    *LANDED,
    _table("core/orders", "raw/orders", DAYS),
    _table("core/customers", "raw/customers", None),
    _table("marts/of_vendor", "ext/vendor", DAYS, **_SOON),
    _table("marts/of_rates", "ext/rates", None, **_SOON),
    _table("marts/of_orders", "core/orders", DAYS, **_SOON),
    _table("marts/of_customers", "core/customers", None, **_SOON),
]


def location() -> dg.Definitions:
    """Return the code location."""
    theirs = dg.Definitions(executor=dg.in_process_executor)
    return extend(theirs, load_settings(), assets=ASSETS, tables=[], feeds=[])


if "WAYS_HOME" in os.environ:
    defs = location()
