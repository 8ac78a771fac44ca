"""Contract of selections without some assets."""

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals.asset_graph import is_list_of_keys, without_assets

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
