"""What we compute: frames in, one frame out.

Belongs here: pure PySpark on declared tables, for classic sessions and Spark Connect alike.
Does not belong here: Dagster, reading and writing, clocks and the environment. Sessions run in UTC
(`lakehouse/session.py`): hours and days are cut in the session's zone.
"""
