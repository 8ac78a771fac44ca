"""The Dagster assets, one family per file. Each asset is a key, its inputs and one call."""
