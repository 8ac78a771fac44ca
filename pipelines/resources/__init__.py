"""With what: thin Dagster resources over `sources` and `lakehouse`."""
