"""Dagster on one host: its home, its web server, and runs that start fast."""
