"""Selections of assets, changed so that they select as if some assets did not exist."""

import dagster as dg

from dagster_tidemark.dagster_internals.record_copies import changed

_KEYS = type(dg.AssetSelection.assets("any"))


def is_list_of_keys(selection: dg.AssetSelection) -> bool:
    """Return True if a selection lists its assets by their keys."""
    return isinstance(selection, _KEYS)


def without_assets(selection: dg.AssetSelection, added: dg.AssetSelection) -> dg.AssetSelection:
    """Return a selection that selects what it would select if the added assets did not exist.

    Lists of keys inside it stay. The added assets are left out before `sinks` and `roots` look at the graph: an asset
    that only an added asset reads is still a sink.

    Args:
        added: The assets by their keys.
    """
    if is_list_of_keys(selection):
        return selection
    parts = {name: getattr(selection, name) for name in ("left", "right") if hasattr(selection, name)}
    inner: dict[str, object] = {name: without_assets(part, added) for name, part in parts.items()}
    if hasattr(selection, "operands"):
        inner["operands"] = [without_assets(each, added) for each in selection.operands]
    if inner:
        return changed(selection, **inner)
    if hasattr(selection, "child"):
        selection = changed(selection, child=without_assets(selection.child, added))
    return selection - added
