"""Logs with one JSON object per line (`TIDEMARK_LOG_FORMAT=json`), for commands, code servers and runs.

Belongs here: the members of a line, and the handlers of this process. Does not belong here: what Dagster adds to a
record of a run (`dagster_internals.run_logs`).

A line has `time` (ISO 8601, UTC), `level`, `logger` and `message`, and where they are known `asset`, `partition`,
`run_id`, `step`, `stream`, `exception` and `stack`.
"""

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

COMMAND = "tidemark"
"""Logger of the commands' messages."""
_process: dict[str, str] = {}
_on: list["JsonFormatter"] = []


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object per record.

    Args:
        more: Returns further members of a record. They replace the formatter's own.
    """

    def __init__(self, more: Callable[[logging.LogRecord], Mapping[str, str]] = lambda _: {}) -> None:
        super().__init__()
        self.more = more

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_process,
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        line |= self.more(record)
        return _without_surrogates(json.dumps(line, ensure_ascii=False, default=str))


def _message(record: logging.LogRecord) -> str:
    """Return the message. If its arguments do not fit, `logging` would print a traceback of many lines instead."""
    try:
        return record.getMessage()
    except Exception as error:  # any type: an argument formats itself
        return f"{record.msg} (its arguments do not fit: {type(error).__name__}: {error})"


def write_json_logs(more: Callable[[logging.LogRecord], Mapping[str, str]] | None = None) -> JsonFormatter:
    """Write all logs of this process as JSON. Later calls only add `more`.

    Handlers that other libraries have set up keep their place and level, and get the formatter.
    """
    if not _on:
        _on.append(JsonFormatter())
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
    if more is not None:
        _on[0].more = more
    root = logging.getLogger()
    if not root.handlers:
        own = logging.StreamHandler()
        own.addFilter(_has_no_other_handler)
        root.addHandler(own)
    named = (each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger))
    for logger in (root, *named):
        for handler in logger.handlers:
            if type(handler) is logging.StreamHandler:
                handler.setFormatter(_on[0])
    return _on[0]


def is_on() -> bool:
    """Return True if this process writes its logs as JSON."""
    return bool(_on)


def about_this_process(**members: str | None) -> None:
    """Add members to all further lines, such as the id of the run that this process executes."""
    _process.update({name: value for name, value in members.items() if value})


def _has_no_other_handler(record: logging.LogRecord) -> bool:
    """Return True if only the root's handler gets a record. Else the record would be written twice."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger is not logging.root:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return False
        logger = logger.parent
    return True


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(COMMAND).critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))


def _log_uncaught_in_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit or ended.exc_value is None:  # as Python's own hook
        return
    name = ended.thread.name if ended.thread else "unknown"
    logging.getLogger(COMMAND).error(
        "thread %s: %s: %s",
        name,
        ended.exc_type.__name__,
        ended.exc_value,
        exc_info=(ended.exc_type, ended.exc_value, ended.exc_traceback),
    )


class JsonLines:
    """A text stream that passes on JSON objects, and makes one of each other line.

    Args:
        stream: Receives the lines.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._rest = stream, ""

    def write(self, text: str) -> int:
        """Write text. An incomplete line waits for its end."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._stream.write((_without_surrogates(line) if _is_object(line) else _of_text(line)) + "\n")
        return len(text)

    def flush(self) -> None:
        """Flush the complete lines."""
        self._stream.flush()

    def close_line(self) -> None:
        """Write the incomplete line, at the end of the process."""
        if self._rest:
            self.write("\n")
        self.flush()

    def isatty(self) -> bool:
        """Return False: no colors, no progress bars."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _without_surrogates(text: str) -> str:
    """Return JSON that can be written. A surrogate, as from a file name that is no UTF-8, becomes an escape of JSON."""
    return text.encode(errors="backslashreplace").decode()


def _is_object(line: str) -> bool:
    if not line.startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _of_text(line: str) -> str:
    record = logging.LogRecord(COMMAND, logging.INFO, "", 0, "%s", (line.removeprefix("tidemark: "),), None)
    return JsonFormatter().format(record)
