"""Assembles the code location, and does nothing else: what its packages declare is found."""

import warnings

import dagster as dg

# Observable sources and backfill policies are in beta and used knowingly; said once for each asset by every run,
# it would drown what matters. It has to stand before the assets are imported.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

# ruff: noqa: E402
from dagster_tidemark import Table, assets_in, build_definitions, declared, load_settings

from pipelines import assets, feeds, schemas, streams

ASSETS = assets_in(feeds, assets)
TABLES = [*declared(schemas, Table), *declared(feeds, Table)]

defs = build_definitions(load_settings(), ASSETS, feeds.FEEDS, TABLES, streams.STREAMS)
