"""Calls of user code. An error sets aside the asset that the code belongs to, and affects no other asset.

User code is a mapping, a partitions definition or a condition, also if Dagster calls it. Belongs here: the only place
that catches all errors of user code. Does not belong here: the consequence, which the caller decides, and rules on
messages (`streams.user_rules`), where an error may come from the message or from a service.
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
    except Exception as error:  # user code may raise anything, and the caller reports the error
        return Raised(error)
