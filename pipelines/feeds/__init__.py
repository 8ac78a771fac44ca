"""What lands in the bucket: one module a feed. A module that is added here is found; nothing else names it."""

import sys

from dagster_tidemark import Feed, declared

FEEDS = declared(sys.modules[__name__], Feed)
"""Every declared feed."""
