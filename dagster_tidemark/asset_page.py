"""Content of an asset's page in the UI: table, columns, location, stream, contract and code.

All content follows from declarations, so no asset has to repeat it. Metadata that an asset declares itself stays. Does
not belong here: metadata of materializations (`execution.metadata`).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.declarations import Refused, contract_of
from dagster_tidemark.execution.metadata import COLUMNS, column_schema
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import Contract, LagContract
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.checks import STREAM
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.stream_declaration import Stream


def with_pages(
    assets: Iterable[Any],
    tables: Mapping[str, Table],
    settings: Settings,
    streams: Iterable[Stream | Deliveries] = (),
) -> list[Any]:
    """Return the assets with the content of their pages.

    Args:
        tables: Tables by name: the parts of the asset key, joined by dots.
        streams: Streams and deliveries. Each fills the table of the asset with the same key.
    """
    found = [_linked(each) for each in assets]
    by_asset = {stream.asset: stream for stream in streams}
    of_spec = partial(_with_page, tables=tables, settings=settings, streams=by_asset)
    found = [of_spec(each) if isinstance(each, dg.AssetSpec) else each for each in found]
    return [each.map_asset_specs(of_spec) if isinstance(each, dg.AssetsDefinition) else each for each in found]


def _linked(asset: Any) -> Any:
    """Return an asset with a link to its code. Assets of the library's factories already link to the user's call."""
    if not isinstance(asset, dg.AssetsDefinition) or not asset.is_executable:
        return asset
    try:
        [linked] = dg.with_source_code_references([asset])
    except (OSError, TypeError):  # code without a file, for example of a notebook
        return asset
    assert isinstance(linked, dg.AssetsDefinition)
    references = next(iter(linked.metadata_by_key.values()), {}).get("dagster/code_references")
    paths = [Path(str(getattr(r, "file_path", ""))) for r in getattr(references, "code_references", ())]
    library = str(files("dagster_tidemark"))
    return asset if any(path.is_relative_to(library) for path in paths) else linked


def _with_page(
    spec: dg.AssetSpec,
    tables: Mapping[str, Table],
    settings: Settings,
    streams: Mapping[str, Stream | Deliveries],
) -> dg.AssetSpec:
    table = tables.get(".".join(spec.key.path))
    said = _of_table(table, settings) if table else {}
    if (stream := streams.get(spec.key.to_user_string())) is not None:
        said |= _of_stream(stream, settings)
    description = "\n\n".join(filter(None, (spec.description, _promise(spec, settings.contract_scale))))
    return spec.replace_attributes(metadata=said | dict(spec.metadata), description=description or None)


def _of_table(table: Table, settings: Settings) -> dict[str, Any]:
    return {
        "dagster/table_name": table.identifier,
        **_folder(table, settings),
        COLUMNS: column_schema(table),
        "row key": ", ".join(table.row_key),
    }


def _folder(table: Table, settings: Settings) -> dict[str, Any]:
    """Return the table's folder; nothing if the catalog chooses it."""
    if settings.catalog_options["type"] != "jdbc":
        return {}
    return {"dagster/uri": f"{settings.warehouse}/{table.name.replace('.', '/')}"}


def _of_stream(stream: Stream | Deliveries, settings: Settings) -> dict[str, Any]:
    queue = stream.queue
    topic = stream.topic_in(settings) if isinstance(stream, Stream) else None
    sources = [f"sqs:{queue}" if queue else "", f"kafka:{topic}" if topic else ""]
    return {
        "messages from": ", ".join(filter(None, sources)) or f"nowhere: {stream.why_off(settings)}",
        "shifts": f"{stream.workers} run(s) of {stream.job}",
        "state of the stream": dg.MetadataValue.md(
            f"The check `{STREAM}` of this asset shows the waiting messages, the last commit and any fault; "
            f"`tidemark status --asset {stream.asset}` shows the same."
        ),
    }


def _promise(spec: dg.AssetSpec, scale: float) -> str:
    """Return the contract in words. Dagster's own panel cannot show it: it counts from the last materialization."""
    try:
        contract = contract_of(spec.freshness_policy)
    except Refused:  # the location logs a warning when it loads
        return ""
    if contract is None:
        return ""
    here = contract.scaled(scale)
    faster = f" In this environment: {_told(here)} (TIDEMARK_CONTRACT_SCALE={scale:g})." if here != contract else ""
    kept = "The check `contract` shows its state, and keeps the last one while Dagster's daemon is stopped."
    return f"**Contract**: {_told(contract)}.{faster} {kept}"


def _told(contract: Contract) -> str:
    if isinstance(contract, LagContract):
        return f"it contains new data within {span(contract.fail)}"
    before = f"up to {span(contract.bound)} before" if contract.bound else "before"
    return f"at each `{contract.schedule}` ({contract.timezone}) it contains the data that arrived {before}"
