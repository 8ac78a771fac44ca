"""Errors of a code location in the log of Dagster's code server: one line, as commands print it.

Dagster logs an error of the code location as a traceback of 90 lines. Most of them are frames of Dagster, and the line
with the remedy is in the middle. Does not belong here: logs as JSON (`json_logs`).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dagster_tidemark.errors import TidemarkError

CODE_SERVER = "dagster.code_server"
"""Logger of Dagster's code servers."""

_WRAPPING = ("dagster", "dagster_shared")
"""Packages whose errors wrap errors of the code location."""


class NamedErrors(logging.Filter):
    """Filter that replaces the traceback of an error of Tidemark by its message. Other tracebacks stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        while error is not None and type(error).__module__.partition(".")[0] in _WRAPPING:
            error = error.__cause__ or error.__context__
        if isinstance(error, TidemarkError):
            record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error}", (), None
        return True


_filter = NamedErrors()


@contextmanager
def logged_in_one_line() -> Iterator[None]:
    """Let the code server log an error of Tidemark that the block raises in one line."""
    try:
        yield
    except TidemarkError:
        logging.getLogger(CODE_SERVER).addFilter(_filter)
        raise
