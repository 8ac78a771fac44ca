"""Thin Dagster resources over the landing bucket, the queue and Spark."""
