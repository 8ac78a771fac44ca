"""Assembles the code location, and does nothing else: what its packages declare is found."""

import warnings

import dagster as dg

# Observable sources and backfill policies are in beta and used knowingly; said once for each asset by every run,
# it would drown what matters. It has to stand before the assets are imported.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from pipelines import feeds, schemas
from pipelines.assets import core, marts, raw
from pipelines.tidemark import Table, build_definitions, declared, load_settings

ASSETS = [asset for package in (feeds, raw, core, marts) for asset in dg.load_assets_from_package_module(package)]
TABLES = [*declared(schemas, Table), *declared(feeds, Table)]

defs = build_definitions(load_settings(), ASSETS, feeds.FEEDS, TABLES)
