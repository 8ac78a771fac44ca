"""From Dagster's definitions to the planner's plain graph: partitions, mappings, declarations."""
