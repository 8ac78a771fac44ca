"""Errors for unsupported declarations: their asset is set aside, and all others keep working."""

from dagster_tidemark.errors import Terminal


class Refused(Terminal):
    """A declaration that the planner does not support. The message names it and its replacement."""


def told(error: Exception) -> str:
    """Return an error of user code as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
