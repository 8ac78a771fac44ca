"""Lineage of runs, for OpenLineage. Optional: the extra `lineage`, and OpenLineage's own variables."""
