"""Tests if Dagster can plan a run of an asset or a check without config.

The daemon plans each run before it creates the run. An error, such as config without a default or a missing environment
variable, ends the whole tick of the sensor, so that no run of the tick starts. This module therefore tries the plan
first. Does not belong here: the existence of a run's partitions (`engine.run_requests`).
"""

from collections.abc import Collection, Iterable, Set

import dagster as dg

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph, plan_run
from dagster_tidemark.planner.user_code import Raised, called

EntityKey = dg.AssetKey | dg.AssetCheckKey

_LONGEST = 300


class RunPlans:
    """Cached attempts to plan runs of a repository. Each plan is tried once, because it depends only on the code.

    Args:
        repository: The loaded definitions of one code location.
    """

    def __init__(self, repository: dg.RepositoryDefinition) -> None:
        self.repository = repository
        self._problems: dict[tuple[Set[dg.AssetKey], Set[dg.AssetCheckKey]], str] = {}

    def problems(self, assets: Iterable[str]) -> dict[str, str]:
        """Return the assets whose runs cannot be planned, with the reasons."""
        found = {asset: self.problem(dg.AssetKey.from_user_string(asset)) for asset in assets}
        return {asset: why for asset, why in found.items() if why}

    def problem(self, key: EntityKey) -> str:
        """Return the reason why a run of an asset or check cannot be planned; empty if it can.

        The run includes all assets and checks that must run together with the given one.
        """
        graph = self.repository.asset_graph
        if not graph.has(key) or (isinstance(key, dg.AssetKey) and not graph.get(key).is_materializable):
            return ""
        together = graph.get_execution_set_asset_and_check_keys(key)
        assets = {each for each in together if isinstance(each, dg.AssetKey)}
        checks = {each for each in together if isinstance(each, dg.AssetCheckKey)}
        return self.problem_of(assets, checks | checks_along(graph, assets))

    def problem_of(self, assets: Collection[dg.AssetKey], checks: Collection[dg.AssetCheckKey]) -> str:
        """Return the reason why a run of exactly these assets and checks cannot be planned; empty if it can."""
        of = (frozenset(assets), frozenset(checks))
        if of not in self._problems:
            self._problems[of] = self._tried(*of)
        return self._problems[of]

    def _tried(self, assets: Set[dg.AssetKey], checks: Set[dg.AssetCheckKey]) -> str:
        found = called(plan_run, self.repository, assets, checks)
        if isinstance(found, Raised):
            return f"no run of it can be planned without config: {_in_short(found.error)}"
        return ""


def checks_along(graph: AnyGraph, assets: Set[dg.AssetKey]) -> set[dg.AssetCheckKey]:
    """Return the checks that run together with assets: checks without an automation condition."""
    checks = graph.get_check_keys_for_assets(assets)
    return {check for check in checks if graph.get(check).automation_condition is None}


def _in_short(error: Exception) -> str:
    told = " ".join(error.error_messages) if isinstance(error, dg.DagsterInvalidConfigError) else str(error)
    text = " ".join(told.partition("Stack Trace")[0].split())
    return f"{type(error).__name__}: {text}"[:_LONGEST]
