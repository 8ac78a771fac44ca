"""A small code location, equal under every release: files by the hour, marts by the day and week, a stream with alerts.

It uses the public face alone, as a user's does. The state of the previous release was made with it: make that again
(`make_state.py`) after a change here, because a change is new code, which is built again.
"""
