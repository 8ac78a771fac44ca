"""What an asset declares and the planner has no answer for: the asset is set aside, and every other one goes on."""

from dagster_tidemark.errors import Terminal


class Refused(Terminal):
    """A declaration the planner cannot follow. The message says what of it, and what to declare instead."""


def told(error: Exception) -> str:
    """An error of somebody's code, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
