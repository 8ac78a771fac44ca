"""Assembles the shop."""

import warnings

import dagster as dg

warnings.filterwarnings("ignore", category=dg.BetaWarning)

from dagster_tidemark import build_definitions, load_settings
from shop import tables
from shop.assets import ASSETS
from shop.feeds import FEEDS
from shop.streams import STREAMS

TABLES = [tables.SALES, tables.DAILY, tables.WEEKLY, tables.READINGS, tables.ALERTS]

defs = build_definitions(load_settings(), ASSETS, FEEDS, TABLES, STREAMS)
