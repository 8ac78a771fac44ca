"""Client of a Spark Connect server: how it connects, waits for the server, and shares what the server has compiled.

Belongs here: pyspark's client. Does not belong here: the configuration of sessions, and the errors of a run whose
server is away (`session`).
"""

from __future__ import annotations

import inspect
import logging
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import grpc
import pyspark
from pyspark.errors import PySparkException
from pyspark.errors import utils as error_utils
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import ChannelBuilder, DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.logging import logger as logger_of_client
from pyspark.sql.connect.session import SparkSession as ConnectSession

_SHARING = {
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
"""Session configuration that lets sessions share Python workers and compiled code.

Otherwise each session starts a daemon and workers, and compiles the code of each query again. The server keeps all of
these daemons until it stops.
"""

_TRIES, _LONGEST_WAIT_MS = 30, 5_000
"""Retries if the server does not answer: every 5 s for two minutes. By default, the client waits up to a minute between
retries, for ten minutes: if the server is back after 20 s, the client notices this only after 70 s."""

logger = logging.getLogger(__name__)


def connected(remote: str, conf: Mapping[str, bool | float | int | str | None]) -> SparkSession:
    """Return a new session on a server, which the caller must stop.

    Args:
        remote: Connection string of the server.
        conf: Configuration of the session.
    """
    quiet_client()
    note_callers_quickly()
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as the builder of `pyspark.sql.SparkSession` does
    session = _opened(remote)
    try:
        for name, value in conf.items():
            session.conf.set(name, value)
        session = _sharing(session, remote)
    except BaseException:  # also Ctrl-C: nobody else can stop this session
        with suppress(Exception):  # the server is gone
            session.stop()
        raise
    return cast("SparkSession", session)


def _opened(remote: str, session_id: str | None = None) -> Any:
    """Return a client of a new session, or of an existing one. Without a configuration, this makes no call."""
    # The same steps as in the builder of `pyspark.sql.SparkSession`, which takes no options of the channel.
    # gRPC itself would wait up to two minutes between its own attempts to connect.
    channel = DefaultChannelBuilder(remote, [("grpc.max_reconnect_backoff_ms", _LONGEST_WAIT_MS)])
    if session_id is not None:
        channel.set(ChannelBuilder.PARAM_SESSION_ID, session_id)
    # The type is Any, because mypy does not understand pyspark's decorator of `client`.
    session: Any = ConnectSession.builder.channelBuilder(channel).create()
    _closes_only_when_stopped(type(session))
    session.client.set_retry_policies([DefaultPolicy(max_retries=_TRIES, max_backoff=_LONGEST_WAIT_MS)])
    return session


def _sharing(session: Any, remote: str) -> Any:
    """Return a session with the same configuration that shares workers and compiled code with other sessions.

    A session reads this configuration only when it is created. So the given session is cloned, and stopped. If the
    server cannot clone it, it is returned.
    """
    session_id = str(uuid.uuid4())
    try:
        for name, value in _SHARING.items():
            session.conf.set(name, value)
        session.cloneSession(session_id).client.close()
    except (PySparkException, grpc.RpcError) as error:
        logger.info("this run has its own Python workers, because of %s", type(error).__name__)
        return session
    session.stop()
    return _opened(remote, session_id)


def _closes_only_when_stopped(kind: type[Any]) -> None:
    """Let the garbage collector drop sessions without closing them. `new_session` leaves that to the caller.

    PySpark also closes a session when the garbage collector frees it, even if the session was stopped. It then waits
    for the lock of a pool of threads that all sessions share. If the collector runs in a thread that holds this lock,
    that thread hangs forever.
    """
    kind.__del__ = lambda session: None


_PYSPARK = str(Path(pyspark.__file__).parent)


def note_callers_quickly() -> None:
    """Let PySpark note the caller of a column function, for errors, without a search for IPython in each call.

    PySpark names the cell of a notebook there. Without IPython it searches all folders of modules each time: 5/6 of the
    time that an expression takes.
    """
    if find_spec("IPython") is None:
        error_utils._capture_call_site = _caller


def _caller(depth: int) -> str:
    """Return the files and lines of the innermost calls from outside PySpark."""
    found = list[str]()
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None and len(found) < depth:
        if _PYSPARK not in frame.f_code.co_filename:
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return "\n".join(found)


_OF_QUERIES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def quiet_client() -> None:
    """Silence the Connect client's own log, unless `SPARK_CONNECT_LOG_LEVEL` is set.

    pyspark disables this logger, but each `logging.config.dictConfig`, such as Dagster's in each run, enables it again.
    Then a failed query logs lines such as "ReleaseExecute failed". So this function sets the level, which `dictConfig`
    does not reset. Two other loggers are silenced too: they print the stack of each failed query, even if the error is
    handled.
    """
    if "SPARK_CONNECT_LOG_LEVEL" not in os.environ:
        logger_of_client.setLevel(logging.CRITICAL + 1)
    for name in _OF_QUERIES:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
