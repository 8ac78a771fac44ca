"""Assembles the toy, as `pipelines.definitions` does the user's."""

from dagster_tidemark import build_definitions, load_settings
from tests.toys.assets import ASSETS
from tests.toys.feeds import FEEDS
from tests.toys.schemas import CUSTOMERS, ORDERS, PRICES

TABLES = [ORDERS, CUSTOMERS, PRICES]

defs = build_definitions(load_settings(), ASSETS, FEEDS, TABLES)
