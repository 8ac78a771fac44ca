"""A baseline with Dagster's fastest settings: intervals of 1 s, one process per run. See `bench.stock` to run it."""
