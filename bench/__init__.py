"""Benchmarks: this project compared with plain Dagster and PySpark, as ratios from one session on one machine.

`make bench` runs them. `bench.plain` does the same work as a plain PySpark script. `bench/stock` and `bench/tuned` are
code locations that use the script, and can be run by hand. `bench.latency`, `bench.messages` and `bench.throughput`
measure.
"""
