"""Converts Dagster's asset graph into the planner's plain graph: partitions, mappings, declarations."""
