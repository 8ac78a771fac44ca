"""From Dagster's event log to the planner's history, and every part of Dagster that is not public."""
