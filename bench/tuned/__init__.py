"""Everything that Dagster's settings can give: intervals of a second, one process a run. By hand: see `bench.stock`."""
