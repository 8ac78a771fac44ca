"""A session on a Spark Connect server: what is said when it is lost, and what is said to nobody."""

import gc
import logging.config
import re
import stat
import sys
import traceback
import weakref
from pathlib import Path

import grpc
import pytest
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.errors import utils as error_utils
from pyspark.logger import PySparkLogger
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
from pyspark.sql.connect.logging import logger
from pyspark.sql.connect.session import SparkSession as ConnectSession

from dagster_tidemark.lakehouse.connect_client import quiet_client
from dagster_tidemark.lakehouse.session import (
    SESSION_CONF,
    SparkLost,
    SparkUnreachable,
    _settings,
    evaluated_once,
    keep_password,
    naming_the_server,
    new_session,
    opened_session,
    server_conf,
)
from dagster_tidemark.settings import Settings, SettingsError

SECRETS = {
    "AWS_ACCESS_KEY_ID": "an-access-key",
    "AWS_SECRET_ACCESS_KEY": "a-secret-key",
    "AWS_SESSION_TOKEN": "a-session-token",
    "TIDEMARK_CATALOG_URI": "jdbc:postgresql://host:5433/lake?user=me&password=p:w&sslmode=require",
    "TIDEMARK_WAREHOUSE": "s3://lake/warehouse",
    "TIDEMARK_ENVIRONMENT": "production",
}


def test_spark_server_configuration_contains_no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    settings = Settings(state_dir=tmp_path)
    conf = "\n".join(f"{name}={value}" for name, value in server_conf(settings).items())
    assert not [value for value in ("an-access-key", "a-secret-key", "a-session-token", "p:w") if value in conf]
    assert "jdbc:postgresql://host:5433/lake?user=me&sslmode=require" in conf
    keep_password(settings)
    (file,) = re.findall(r"-Dorg.postgresql.pgpassfile=(\S+)", conf)
    assert Path(file).read_text() == "host:5433:lake:me:p\\:w\n"
    assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    assert "AWS_SESSION_TOKEN" in settings.exports(), "the server gets it from its environment"


def test_spark_in_this_process_without_jars_is_refused_with_the_command_that_fetches_them(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    settings = Settings(spark_remote=None, jars_dir=tmp_path, state_dir=tmp_path / "state")
    with pytest.raises(SettingsError, match=f"run `tidemark jars --to {tmp_path}/jars`, or set SPARK_REMOTE"):
        new_session(settings)


@pytest.mark.parametrize("said", ["cannot connect to sc://host:1/;token=s3cret;use_ssl=true", "of another thing"])
def test_spark_errors_hide_the_connection_token(
    said: str, monkeypatch: pytest.MonkeyPatch, spark_server: Settings
) -> None:
    remote = "sc://127.0.0.1:1/;token=s3cret;user_id=me"
    monkeypatch.setenv("SPARK_REMOTE", remote)
    session = new_session(spark_server)
    _settings[session] = spark_server.model_copy(update={"spark_remote": remote})
    with pytest.raises(Exception) as raised, naming_the_server(session):
        try:
            raise PySparkRuntimeError(said)
        finally:
            session.stop()
    told = "".join(traceback.format_exception(raised.value))
    assert "s3cret" not in told and "sc://127.0.0.1:1/;token=***" in told
    with pytest.raises(SparkUnreachable) as refused:
        new_session(Settings())
    assert "s3cret" not in str(refused.value)


def test_lost_spark_session_error_names_the_server(spark_server: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", str(spark_server.spark_remote))
    gone, there = new_session(spark_server), new_session(spark_server)
    error = PySparkRuntimeError("[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND")
    try:
        # What a client sends whose server was started anew: the id of a server-side session that is not there.
        gone.client._server_session_id = "of the server before"
        with pytest.raises(SparkLost, match=str(spark_server.spark_remote)), naming_the_server(gone):
            raise error
        with pytest.raises(PySparkRuntimeError), naming_the_server(there):
            raise error
    finally:
        there.stop()


def test_session_shares_workers_and_compiled_code_and_keeps_its_configuration(spark_server: Settings) -> None:
    with opened_session(spark_server) as session:
        assert session.conf.get("spark.sql.artifact.isolation.enabled") == "false"
        assert {name: session.conf.get(name) for name in SESSION_CONF} == SESSION_CONF
        assert session.sql("SELECT 1 AS n").collect() == [Row(n=1)]


def test_session_of_a_server_that_cannot_clone_is_usable(
    spark_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(session: ConnectSession, session_id: str) -> None:
        raise grpc.RpcError("UNIMPLEMENTED")

    monkeypatch.setattr(ConnectSession, "cloneSession", refuses)
    with opened_session(spark_server) as session:
        assert session.sql("SELECT 1 AS n").collect() == [Row(n=1)]


@pytest.mark.timeout(60)
def test_stopped_session_is_collected_although_this_thread_holds_the_lock_of_the_client(spark_server: Settings) -> None:
    session = new_session(spark_server)
    gone = weakref.ref(session)
    session.sql("SELECT 1").collect()
    session.stop()
    pool = ExecutePlanResponseReattachableIterator._get_or_create_release_thread_pool()
    with pool._shutdown_lock:
        del session
        gc.collect()
    assert gone() is None


def test_spark_client_log_is_not_printed_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """An example is "ReleaseExecute failed" after a failed query. Dagster configures logging in each run."""
    quiet_client()
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    assert not logger.disabled
    assert not logger.isEnabledFor(logging.WARNING)
    logger.warning("ReleaseExecute failed with exception: anything")
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).exception("[UNRESOLVED_COLUMN]", errorClass="x")
    said = capsys.readouterr().err
    assert "ReleaseExecute" not in said
    assert "UNRESOLVED_COLUMN" not in said


class Searches:
    """A finder of modules that finds none and notes their names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, *_: object) -> None:
        self.names.append(name)


def test_caller_of_a_column_function_is_in_its_error_without_a_search_for_ipython(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_utils, "_enable_debugging_cache", True)
    searches = Searches()
    monkeypatch.setattr(sys, "meta_path", [searches, *sys.meta_path])
    missing = F.col("no_such_column") + 1
    assert "IPython" not in searches.names
    with pytest.raises(AnalysisException) as raised:
        spark.range(1).select(missing).collect()
    assert __file__ in "".join(context.callSite() for context in raised.value.getQueryContext())


def test_rows_are_evaluated_in_the_session_of_their_frame_while_another_session_is_active(
    spark: SparkSession, other_spark: SparkSession
) -> None:
    active = ConnectSession.getActiveSession()
    for session in (spark, other_spark):
        rows = evaluated_once(session.range(3))
        assert rows.count() == 3
        assert rows.sparkSession is session
    assert ConnectSession.getActiveSession() is active
