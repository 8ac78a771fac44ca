"""A sensor every second, and steps in the run's own process."""

import dagster as dg

from bench.baseline import definitions

defs = definitions(minimum_interval_seconds=1, executor=dg.in_process_executor)
