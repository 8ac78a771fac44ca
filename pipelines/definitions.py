"""The code location, assembled from the declarations in its packages. Nothing else belongs here."""

import warnings

import dagster as dg

# Observable sources and backfill policies are beta features, used on purpose. Every run would log a warning for each
# asset and hide the messages that matter. The filter must be set before the assets are imported.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

# ruff: noqa: E402
from dagster_tidemark import Table, assets_in, build_definitions, declared, load_settings

from pipelines import assets, feeds, schemas, streams

ASSETS = assets_in(feeds, assets)
TABLES = [*declared(schemas, Table), *declared(feeds, Table)]

defs = build_definitions(load_settings(), ASSETS, feeds.FEEDS, TABLES, streams.STREAMS)
