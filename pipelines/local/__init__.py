"""The laptop platform: what `make dev` starts, watches and stops. In production a cluster takes its place.

Belongs here: the embedded cloud, the Spark Connect server, the Dagster home, the jars, and starting and
stopping them. Does not belong here: Dagster definitions.
"""
