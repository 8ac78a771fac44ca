"""Calls of user code. An error sets aside the asset that the code belongs to, and affects no other asset.

User code is a mapping, a partitions definition or a condition, also if Dagster calls it. Belongs here: the only place
that catches all errors of user code. Does not belong here: the consequence, which the caller decides, and rules on
messages (`streams.user_rules`), where an error may come from the message or from a service.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

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


class LimitedCall(Generic[_T]):
    """A call of user code in its own thread. The caller can stop waiting; the call itself cannot be ended.

    Args:
        name: Name of the thread.
        function: Called at once.
    """

    def __init__(self, name: str, function: Callable[[], _T]) -> None:
        self._results, self._errors = list[_T](), list[BaseException]()
        self._thread = threading.Thread(target=self._run, args=(function,), name=name, daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], _T]) -> None:
        try:
            self._results.append(function())
        except BaseException as error:  # user code may also raise SystemExit; the caller of `result` gets it
            self._errors.append(error)

    @property
    def is_open(self) -> bool:
        """True if the call has not ended."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the call for some seconds. Return True if it has ended."""
        self._thread.join(seconds)
        return not self.is_open

    def result(self) -> _T:
        """Return the result of the call, which has ended, or raise its error."""
        if self._errors:
            raise self._errors[0]
        return self._results[0]
