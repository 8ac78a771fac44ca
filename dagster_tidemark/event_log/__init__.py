"""Reads Dagster's event log into the planner's history, and wraps all non-public parts of Dagster."""
