"""The check `contract`: whether an asset's promise on its freshness is kept, seen in the UI beside the asset.

No run is needed for it: the sensor `contracts` writes a result when the state becomes another one, and after each
materialization, because the UI shows a result of the latest one only. A person may also execute it. Does not belong
here: how a contract stands (`planner.contract_status`).

An asset that is set aside stands "not judged", and fails as with a breach: its promise may be broken, nobody looks.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from zlib import crc32

import dagster as dg
from dagster import AutomationContext, AutomationResult

from pipelines.tidemark.asset_graph.build import AnyGraph, loaded
from pipelines.tidemark.engine.overview import overview
from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.planner.contracts import FreshnessStatus
from pipelines.tidemark.planner.decisions import Standing
from pipelines.tidemark.planner.wording import names

_IN_DAGSTERS_PANEL: Mapping[FreshnessStatus, adapter.Freshness] = {
    FreshnessStatus.MET: "PASS",
    FreshnessStatus.AT_RISK: "WARN",
    FreshnessStatus.BREACHED: "FAIL",
    FreshnessStatus.NOT_JUDGED: "UNKNOWN",
}
CHECK = "contract"
STATE = "state"


class ReportedBySensor(dg.AutomationCondition[dg.AssetCheckKey]):
    """Never true: nothing but the sensor `contracts` has to do with this check.

    It has a condition at all so that Dagster does not execute the check within every run of its asset.
    """

    asks_for_nothing = True  # no automation sensor need evaluate it
    requires_cursor = False

    @property
    def name(self) -> str:
        return "reported by the sensor contracts"

    def evaluate(self, context: AutomationContext[dg.AssetCheckKey]) -> AutomationResult[dg.AssetCheckKey]:
        return AutomationResult(context, true_subset=context.get_empty_subset())


def contract_checks(assets: Iterable[Any]) -> list[dg.AssetChecksDefinition]:
    """A check for each asset with a freshness policy."""
    every = list(assets)
    specs = (spec for found in every if isinstance(found, dg.AssetsDefinition) for spec in found.specs)
    graph = cache(lambda: loaded(every))
    return [_check(spec.key, graph) for spec in specs if spec.freshness_policy is not None]


def contract_sensor() -> dg.SensorDefinition:
    """The sensor that says how the contracts stand."""

    @dg.sensor(
        name="contracts",
        description="Writes a result of the check `contract`, and Dagster's freshness state, where a contract stands "
        "otherwise or its asset was built again.",
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def contracts(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        repository = context.repository_def
        if repository is None:
            raise dg.DagsterInvariantViolationError("the contracts are those of a code location")
        built = _last_built(context.instance, repository.asset_graph)  # first: what comes meanwhile is told next time
        plan, standings = overview(context.instance, repository.asset_graph)
        if plan.catching_up:
            return dg.SkipReason(plan.catching_up)
        told: Mapping[str, list[Any]] = json.loads(context.cursor or "{}")
        states = {asset: _state(standing, built.get(asset)) for asset, standing in standings.items()}
        changed = [standing for asset, standing in standings.items() if told.get(asset) != states[asset]]
        if not changed:
            return dg.SkipReason(_summary(list(standings.values())))
        events = [_evaluation(standing, plan.now) for standing in changed]
        shown = {standing.asset: _IN_DAGSTERS_PANEL[standing.verdict] for standing in changed}
        adapter.report_freshness(context.instance, shown, plan.now)
        return dg.SensorResult(asset_events=events, cursor=json.dumps(states))

    return contracts


def _state(standing: Standing, built: int | None) -> list[Any]:
    """What has to become another one for a result to be written again."""
    # No hash of Python's: those of strings differ from process to process.
    aside = [crc32("\n".join(standing.set_aside).encode())] if standing.set_aside else []
    return [standing.verdict, built, *aside]


def _last_built(instance: dg.DagsterInstance, assets: AnyGraph) -> dict[str, int | None]:
    """The storage id of each asset's last materialization."""
    records = instance.get_asset_records(sorted(assets.materializable_asset_keys))
    entries = [record.asset_entry for record in records]
    return {entry.asset_key.to_user_string(): entry.last_materialization_storage_id for entry in entries}


def _check(key: dg.AssetKey, graph: Callable[[], AnyGraph]) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=key,
        name=CHECK,
        description="Whether what arrived is incorporated as the freshness policy promises.",
        automation_condition=ReportedBySensor(),
    )
    def contract(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        plan, standings = overview(context.instance, graph(), wait=True)
        standing = standings[key.to_user_string()]
        return dg.AssetCheckResult(**_result(standing, plan.now))

    return contract


def _evaluation(standing: Standing, now: float) -> dg.AssetCheckEvaluation:
    key = dg.AssetKey.from_user_string(standing.asset)
    result = _result(standing, now)
    return dg.AssetCheckEvaluation(asset_key=key, check_name=CHECK, **result)


def _result(standing: Standing, now: float) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        STATE: str(standing.verdict),
        "lag (seconds)": round(standing.lag, 1),
        "reason": standing.reason,
        "judged at": dg.MetadataValue.timestamp(now),
    }
    if standing.partition is not None:
        metadata["partition"] = standing.partition
    if standing.set_aside:
        metadata["set aside"] = names(standing.set_aside)
    if standing.deadline is not None:
        metadata["promised for"] = dg.MetadataValue.timestamp(standing.deadline)
    return {
        # At risk, nothing is late yet.
        "passed": standing.verdict in (FreshnessStatus.MET, FreshnessStatus.AT_RISK),
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": f"{standing.verdict}: {standing.reason}",
        "metadata": metadata,
    }


def _summary(standings: Sequence[Standing]) -> str:
    counted = {verdict: sum(standing.verdict is verdict for standing in standings) for verdict in FreshnessStatus}
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.items() if count) or "no contract"
