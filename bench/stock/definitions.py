"""A sensor every 30 s, a process per step."""

from bench.baseline import definitions

defs = definitions(minimum_interval_seconds=None, executor=None)
