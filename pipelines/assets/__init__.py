"""What Dagster shows: the assets, one family a file. Each is a key, its inputs and one call."""
