"""The feeds that land in the bucket: one module per feed. A new module here is found without registration."""

import sys

from dagster_tidemark import Feed, declared

FEEDS = declared(sys.modules[__name__], Feed)
"""Every declared feed."""
