"""Thin Dagster resources for the landing bucket, the queue and Spark."""
