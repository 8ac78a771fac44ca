"""Assembles the code location, and does nothing else."""

import warnings

import dagster as dg

# Observable sources and backfill policies are in beta and used knowingly; said once for each asset by every run,
# it would drown what matters. It has to stand before the assets are imported.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from pipelines.assets import core, marts, raw
from pipelines.feeds import FEEDS
from pipelines.schemas import TABLES
from pipelines.tidemark import build_definitions, load_settings

ASSETS = [asset for layer in (raw, core, marts) for asset in dg.load_assets_from_package_module(layer)]

defs = build_definitions(load_settings(), ASSETS, FEEDS, TABLES.values())
