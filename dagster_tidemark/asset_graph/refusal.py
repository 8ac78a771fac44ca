"""Error for unsupported declarations. The automation ignores the asset, and all other assets keep working."""

from dagster_tidemark.errors import Terminal


class Refused(Terminal):
    """A declaration is not supported by the planner. The message names the declaration and an alternative."""


def told(error: Exception) -> str:
    """Return an error of user code as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
