"""Calls of user code: what raises sets its own asset aside, and harms no other asset.

User code are mappings, partitions definitions and conditions, also where Dagster calls them. Belongs here: the one
place that catches everything they raise. Does not belong here: the consequence, which the caller decides, and rules on
messages (`streams.user_rules`), whose errors may be about the message or about a service.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Raised:
    """Error that user code has raised. Its text is the reason why an asset is set aside."""

    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


def called(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | Raised:
    """Return the result of a function that may run user code, or the error that it raised."""
    try:
        return function(*args, **kwargs)
    except Exception as error:  # user code may raise anything, and the caller has a reason to give for it
        return Raised(error)
