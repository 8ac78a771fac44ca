"""Benchmarks: this project beside what people do without it, as ratios measured in one session on one machine.

`make bench` runs them. `bench.plain` is the work as a plain PySpark script, `bench/stock` and `bench/tuned` are code
locations around it that can be run by hand, `bench.latency` and `bench.throughput` measure.
"""
