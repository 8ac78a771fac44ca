"""A session on a Spark Connect server that another server has taken the place of."""

import pytest
from pyspark.errors import PySparkRuntimeError

from pipelines.lakehouse.session import SparkLost, naming_the_server, new_session
from pipelines.settings import Settings


def test_an_error_of_a_session_the_server_does_not_know_names_the_server(
    spark_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
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
