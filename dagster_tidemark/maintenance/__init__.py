"""Maintenance of the lake's tables as work with slack: one job, which runs while nothing else is due."""
