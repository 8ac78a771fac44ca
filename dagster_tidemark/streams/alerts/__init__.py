"""Alerts on a stream: the declaration, the worker of a shift that raises and sends them, and their table."""
