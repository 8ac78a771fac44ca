"""Contract of Dagster's asset graph and its plans of runs."""

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph, graph_of_definitions, plan_run


@dg.asset
def table() -> None: ...


@dg.asset(deps=[table], required_resource_keys={"lake"}, config_schema={"rows": int})
def configured() -> None: ...


def test_asset_graph_contains_assets_specs_and_checks_without_resources() -> None:
    @dg.asset_check(asset=table)
    def strict() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    graph: AnyGraph = graph_of_definitions([table, configured, dg.AssetSpec("outside"), strict])
    assert set(graph.toposorted_asset_keys) == {table.key, configured.key, dg.AssetKey("outside")}
    assert graph.get(configured.key).parent_keys == {table.key}
    assert graph.get_check_keys_for_assets({table.key}) == {dg.AssetCheckKey(table.key, "strict")}


def test_run_of_an_asset_without_its_required_config_cannot_be_planned() -> None:
    repository = dg.Definitions([table, configured], resources={"lake": object()}).get_repository_def()
    plan_run(repository, {table.key}, None)
    with pytest.raises(dg.DagsterInvalidConfigError):
        plan_run(repository, {configured.key}, set())
