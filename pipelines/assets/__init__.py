"""What Dagster shows: the grocer's assets, one family a file. Each is a key, its inputs and one call."""
