"""What an asset's page in the UI says of it: its table and columns, where it lies, its contract, its code.

All of it follows from declarations, so no asset has to repeat it. What an asset says itself stays. Does not belong
here: what a materialization says (`execution.io_manager`, `execution.load_asset`).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.tidemark.asset_graph.declarations import contract_of
from pipelines.tidemark.asset_graph.refusal import Refused
from pipelines.tidemark.execution.io_manager import COLUMNS, column_schema
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.planner.contract_status import span
from pipelines.tidemark.planner.contracts import Contract, LagContract
from pipelines.tidemark.settings import Settings

_MACHINERY = Path(__file__).parent


def with_pages(assets: Iterable[Any], tables: Mapping[str, Table], settings: Settings) -> list[Any]:
    """The assets, each with what its page shows.

    Args:
        tables: By name, which is the asset key joined by a dot.
    """
    found = [_linked(each) for each in assets]
    of_spec = partial(_with_page, tables=tables, settings=settings)
    return [_page_of(each, of_spec) for each in found]


def _page_of(asset: Any, of_spec: Callable[[dg.AssetSpec], dg.AssetSpec]) -> Any:
    if isinstance(asset, dg.AssetsDefinition):
        return asset.map_asset_specs(of_spec)
    return of_spec(asset) if isinstance(asset, dg.AssetSpec) else asset


def _linked(asset: Any) -> Any:
    """With a link to its code, unless that is the machinery's: a factory says itself where it was called."""
    if not isinstance(asset, dg.AssetsDefinition) or not asset.is_executable:
        return asset
    [linked] = dg.with_source_code_references([asset])
    assert isinstance(linked, dg.AssetsDefinition)
    references = next(iter(linked.metadata_by_key.values()), {}).get("dagster/code_references")
    paths = [Path(str(getattr(r, "file_path", ""))) for r in getattr(references, "code_references", ())]
    return asset if any(path.is_relative_to(_MACHINERY) for path in paths) else linked


def _with_page(spec: dg.AssetSpec, tables: Mapping[str, Table], settings: Settings) -> dg.AssetSpec:
    table = tables.get(".".join(spec.key.path))
    said = _of_table(table, settings) if table else {}
    description = "\n\n".join(filter(None, (spec.description, _promise(spec, settings.contract_scale))))
    return spec.replace_attributes(metadata=said | dict(spec.metadata), description=description or None)


def _of_table(table: Table, settings: Settings) -> dict[str, Any]:
    return {
        "dagster/table_name": table.identifier,
        "dagster/uri": f"{settings.warehouse}/{table.name.replace('.', '/')}",
        COLUMNS: column_schema(table),
        "row key": ", ".join(table.row_key),
    }


def _promise(spec: dg.AssetSpec, scale: float) -> str:
    """The contract in words, as Dagster's own panel cannot say it: it counts from the last materialization."""
    try:
        contract = contract_of(spec.freshness_policy)
    except Refused:  # the location warns of it as it loads
        return ""
    if contract is None:
        return ""
    here = contract.scaled(scale)
    faster = f" Here, on a faster clock: {_told(here)} (TIDEMARK_CONTRACT_SCALE={scale:g})." if here != contract else ""
    return f"**Contract**: {_told(contract)}.{faster}"


def _told(contract: Contract) -> str:
    if isinstance(contract, LagContract):
        return f"what arrives is in it within {span(contract.fail)}"
    before = f" up to {span(contract.bound)} before" if contract.bound else ""
    return f"at each `{contract.schedule}` ({contract.timezone}) what has arrived{before} is in it"
