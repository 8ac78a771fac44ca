"""A sensor every 30 s, and a process for each step."""

from bench.baseline import definitions

defs = definitions(minimum_interval_seconds=None, executor=None)
