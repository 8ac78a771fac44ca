"""The grocer's code as text, the fingerprint of each of its assets, and the state of an instance that runs it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark import build_definitions, location
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.code_versions.fingerprint import Code
from dagster_tidemark.code_versions.project import Definition, Project
from dagster_tidemark.engine.code_plan import SavedState, state_of
from dagster_tidemark.event_log import deployed
from dagster_tidemark.event_log.deployed import code_texts
from dagster_tidemark.settings import Settings, load_settings
from tests.checkout import CHECKOUT
from tests.code_edits import Sources

FUNCTIONS = {
    "core/orders": ("core.orders", "orders"),
    "core/customers": ("core.customers", "customers"),
    "core/prices": ("core.prices", "prices"),
    "core/readings": ("core.readings", "readings"),
    "marts/hot_spots": ("marts.hot_spots", "hot_spots"),
    "alerts/cold_chain": ("alerts.cold_chain", "cold_chain"),
    "marts/sales_hourly": ("marts.sales", "sales_hourly"),
    "marts/sales_daily": ("marts.sales", "sales_daily"),
    "marts/margin_hourly": ("marts.margin", "margin_hourly"),
    "marts/offer_reach": ("marts.offers", "offer_reach"),
    "marts/order_stats": ("marts.order_stats", "order_stats"),
    "marts/executive_rollup": ("marts.reviews", "executive_rollup"),
    "marts/weekly_review": ("marts.reviews", "weekly_review"),
    "ml/demand_features": ("ml.demand_features", "demand_features"),
    "ml/demand_model": ("ml.demand_model", "demand_model"),
    "ml/demand_forecast": ("ml.demand_forecast", "demand_forecast"),
}
"""Where each asset's function is, below `pipelines.assets`."""


def grocer_sources() -> Sources:
    """What is the user's, without the sample feed: path from the root to text."""
    folders = ("assets", "feeds", "models", "schemas", "streams", "transforms")
    paths = [path for folder in folders for path in (CHECKOUT / "pipelines" / folder).rglob("*.py")]
    paths += [CHECKOUT / "pipelines" / name for name in ("__init__.py", "partitions.py")]
    return {path.relative_to(CHECKOUT).as_posix(): path.read_text() for path in paths}


def digests(sources: Sources, root: Path) -> Mapping[str, str]:
    """The fingerprint of each asset of a project, from its text alone."""
    for name, text in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    code = Code(Project(root, "pipelines"))
    return {
        asset: code.fingerprint(Definition(f"pipelines.assets.{module}", function)).digest
        for asset, (module, function) in FUNCTIONS.items()
    }


def resources(settings: Settings) -> dict[str, Any]:
    """The grocer's resources in another deployment."""
    return dict(build_definitions(settings, [], [], list(location.tables(settings).values())).resources or {})


def deployed_state() -> SavedState:
    """The state that `plan --save` writes for an instance that runs the code of this checkout."""
    settings = load_settings()
    with DagsterInstance.ephemeral() as instance:
        definitions = location.definitions(settings)
        graph = graph_of(definitions.resolve_asset_graph(), contract_scale=1.0)
        deployed.keep(instance, ("pipelines", "here"), graph)
        deployed.keep_code(instance, ("pipelines", "here"), graph, code_texts(CHECKOUT, settings.code_location))
        return state_of(definitions, instance, contract_scale=1.0)
