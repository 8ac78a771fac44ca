"""A code location whose schedule prunes records older than two hours."""

from datetime import timedelta

from dagster_tidemark import build_definitions
from dagster_tidemark.settings import load_settings
from tests.tidemark.retention.test_prune import orders

defs = build_definitions(load_settings(), orders(), [], [], retention=timedelta(hours=2))
