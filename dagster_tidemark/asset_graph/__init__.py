"""Converts Dagster's definitions into the planner's plain graph: partitions, mappings, declarations."""
