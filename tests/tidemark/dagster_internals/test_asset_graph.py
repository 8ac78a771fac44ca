"""Contract of Dagster's asset graph, its plans of runs, and selections without some assets."""

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals.asset_graph import (
    AnyGraph,
    graph_of_definitions,
    is_list_of_keys,
    plan_run,
    undeclared,
    without_assets,
)


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


def test_assets_that_only_dependencies_name_are_undeclared() -> None:
    @dg.asset(deps=[table, "mistyped", "outside"])
    def reader() -> None: ...

    repository = dg.Definitions([table, reader, dg.AssetSpec("outside")]).get_repository_def()
    assert undeclared(repository.asset_graph) == {"mistyped"}


def test_run_of_an_asset_without_its_required_config_cannot_be_planned() -> None:
    repository = dg.Definitions([table, configured], resources={"lake": object()}).get_repository_def()
    plan_run(repository, {table.key}, None)
    with pytest.raises(dg.DagsterInvalidConfigError):
        plan_run(repository, {configured.key}, set())


S = dg.AssetSelection


def graph_of(*names: str) -> dg.Definitions:
    """Return a chain of assets, with the added one at both ends and in the middle."""
    specs = [dg.AssetSpec(name, group_name="all") for name in names]
    return dg.Definitions(
        assets=[
            dg.multi_asset(specs=[each.replace_attributes(deps=before)], name=f"op_{each.key.path[0]}")(lambda: None)
            for each, before in zip(specs, [[], *([name] for name in names)], strict=False)
        ]
    )


THEIRS, BOTH = graph_of("a", "b", "c"), graph_of("first", "a", "b", "c", "last")
ADDED = S.assets("first", "last")


@pytest.mark.parametrize(
    "selection",
    [
        S.all(),
        S.groups("all"),
        S.from_string("group:all"),
        S.from_string("sinks(*)"),
        S.from_string("not key:b"),
        S.all().sinks(),
        S.all().roots(),
        S.groups("all").sinks() | S.assets("a"),
        S.all() - S.all().sinks(),
        S.assets("b").downstream(),
        S.assets("b").upstream(),
        S.assets("a", "b") & S.all(),
        S.assets("a", "b"),
        S.all().materializable(),
        S.assets("b").required_multi_asset_neighbors(),
    ],
    ids=str,
)
def test_selection_without_added_assets_selects_as_before(selection: dg.AssetSelection) -> None:
    before = selection.resolve(THEIRS.resolve_asset_graph())
    assert without_assets(selection, ADDED).resolve(BOTH.resolve_asset_graph()) == before and before


def test_list_of_keys_inside_a_selection_stays() -> None:
    chosen = without_assets(S.assets("first") | S.all().roots(), ADDED)
    assert chosen.resolve(BOTH.resolve_asset_graph()) == {dg.AssetKey("first"), dg.AssetKey("a")}
    assert is_list_of_keys(S.assets("first")) and not is_list_of_keys(chosen)
