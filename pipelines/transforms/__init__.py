"""The transforms: DataFrames in, one DataFrame out.

Belongs here: pure PySpark on declared tables, for classic sessions and Spark Connect alike.
Does not belong here: Dagster, reading and writing, clocks and the environment. Hours and days are truncated in the
session's time zone, which is UTC (`lakehouse/session.py`).
"""
