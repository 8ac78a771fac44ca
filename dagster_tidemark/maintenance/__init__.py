"""Maintenance of the lake's tables as work for spare time: one job, which runs while nothing else is due."""
