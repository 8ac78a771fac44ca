"""Spark sessions on the lake: the configuration of a server, and the session of a run.

A run only uses a `SparkSession`. If `SPARK_REMOTE` is set, it is a new session on a Spark Connect server, on a laptop
or a cluster. Otherwise it is an in-process `local[*]` session, which is slower but gives the same results.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from dagster_tidemark.catalog_options import for_spark
from dagster_tidemark.errors import Transient
from dagster_tidemark.lakehouse.table import CATALOG
from dagster_tidemark.settings import LOCAL_KEY, Settings, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


logger = logging.getLogger(__name__)

ICEBERG_VERSION = "1.12.0"
"""Version of Iceberg on the Spark server."""


class SparkUnreachable(Transient):
    """Error for a Spark Connect server that does not answer. A retry helps when the server runs again."""

    def __init__(self, remote: str, reason: object) -> None:
        shown = without_token(remote)
        super().__init__(f"no Spark Connect server answers at {shown} ({reason}); is it running? See SPARK_REMOTE")


class SparkLost(Transient):
    """Error for a Spark Connect server that stopped or restarted during a run. A retry gets a new session."""

    def __init__(self, remote: str) -> None:
        super().__init__(
            f"the Spark Connect server at {without_token(remote)} stopped during this run, and its session is "
            "lost; run it again when the server is back"
        )


class SparkFailed(Transient):
    """Error of Spark after the removal of the connection's token from the message."""


_TOKEN = re.compile(r"(token=)[^;\s'\"]+")


def without_token(text: str) -> str:
    """Return a text without the token of a connection string."""
    return _TOKEN.sub(r"\1***", text)


def error_line(error: BaseException) -> str:
    """Return the type and the first line of an error, without the token of a connection string."""
    return without_token(f"{type(error).__name__}: {error}").partition("\n")[0]


# For rows with many columns and rules, Spark generates methods that are so long that Java does not compile them by
# default. Interpreted methods take four times as long to judge rows.
_JAVA_OPTIONS = "-Duser.timezone=UTC -XX:-DontCompileHugeMethods"


def server_conf(settings: Settings, *, class_path: str | None = None, pgpass: str | None = None) -> dict[str, str]:
    """Return the Spark configuration that a server (or a local session) must start with, as conf name to value.

    Args:
        class_path: The jars, on the hosts of the server; by default those of the laptop platform.
        pgpass: The file with the catalog's password, on the driver's host; by default that of the laptop platform.
    """
    catalog = f"spark.sql.catalog.{CATALOG}"
    password = settings.catalog_login[1]
    java_options = (
        _JAVA_OPTIONS
        if password is None
        else f"{_JAVA_OPTIONS} -Dorg.postgresql.pgpassfile={pgpass or _pgpass(settings)}"
    )
    class_path = class_path or _class_path(settings)
    remote_warehouse = "://" in settings.warehouse
    conf = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        "spark.hadoop.fs.s3a.endpoint.region": settings.aws_region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    if remote_warehouse:
        conf[f"{catalog}.io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
        conf[f"{catalog}.client.region"] = settings.aws_region
    if settings.aws_endpoint_url:
        conf["spark.hadoop.fs.s3a.endpoint"] = settings.aws_endpoint_url
        conf["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(settings.aws_endpoint_url.startswith("https")).lower()
        if remote_warehouse:
            conf[f"{catalog}.s3.endpoint"] = settings.aws_endpoint_url
            conf[f"{catalog}.s3.path-style-access"] = "true"
    if settings.own_cloud:  # the local cloud does not check keys, and must not get keys of the environment
        conf["spark.hadoop.fs.s3a.access.key"] = conf["spark.hadoop.fs.s3a.secret.key"] = LOCAL_KEY
        if remote_warehouse:
            conf[f"{catalog}.s3.access-key-id"] = conf[f"{catalog}.s3.secret-access-key"] = LOCAL_KEY
    else:
        # The AWS SDK on the server finds and renews the keys, so that clients of the server cannot read them.
        conf["spark.hadoop.fs.s3a.aws.credentials.provider"] = _FROM_ITS_SURROUNDINGS
    return conf | {f"{catalog}.{name}": value for name, value in for_spark(settings.catalog_options).items()}


def lake_jars(settings: Settings) -> str:
    """Return the class path of the jars that the lake needs."""
    return f"{settings.jars_dir}/jars/*"


def kafka_jars(settings: Settings) -> str | None:
    """Return the class path of Spark's Kafka source; None if Kafka is off."""
    return f"{settings.jars_dir}/spark-kafka/jars/*" if settings.kafka_bootstrap_servers else None


def _class_path(settings: Settings) -> str:
    return ":".join(filter(None, (lake_jars(settings), kafka_jars(settings))))


ONE_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "16",
}
"""Additional configuration for Spark on a laptop. A cluster's server starts with its own configuration."""


SESSION_TIMEOUTS = {
    # After a run was killed, its query is interrupted first. Later its session is dropped, with views and caches.
    "spark.connect.execute.manager.detachedTimeout": "60s",
    "spark.connect.session.manager.defaultSessionTimeout": "20m",
}
"""When a Connect server gives up what a killed run has left."""


_FROM_ITS_SURROUNDINGS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def require_jars(settings: Settings) -> None:
    """Raise if Spark cannot open the catalog with the jars of the laptop platform.

    Raises:
        SettingsError: the catalog is AWS Glue.
    """
    if settings.catalog_options["type"] == "glue":
        raise SettingsError(
            "TIDEMARK_CATALOG__TYPE=glue: the jars of the laptop's Spark lack the AWS SDK for Glue; set SPARK_REMOTE "
            "to a server that has Iceberg's AWS bundle"
        )


def _require_downloaded(settings: Settings) -> None:
    folder = settings.jars_dir / "jars"
    if not any(folder.glob("*.jar")):
        raise SettingsError(
            f"SPARK_REMOTE is not set, so Spark runs in this process, and needs Iceberg's jars in {folder}, which has "
            f"none: run `tidemark jars --to {folder}`, or set SPARK_REMOTE to a Spark Connect server"
        )


def keep_password(settings: Settings) -> None:
    """Write the catalog's password to a file for the JDBC driver.

    It must not be in the server's configuration, which every client can read.
    """
    _, password = settings.catalog_login
    if password is not None:
        file = _pgpass(settings)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_text(f"{password}\n")


def _pgpass(settings: Settings) -> Path:
    return settings.state_dir / "run" / "pgpass"


SESSION_CONF: dict[str, bool | float | int | str | None] = {
    "spark.sql.session.timeZone": "UTC",
    # A load caches its rows until the commit. Compressing them took a quarter of the time of reading and judging.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # In the merge mode copy-on-write, Spark first searches for the files that change. If the source of the MERGE reads
    # a table, this search fails in Spark 4.1 ("No plan for TableReference"). It is not needed, because the ON clause
    # restricts the partitions.
    "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled": "false",
}
"""Session configuration that the code requires on every server."""

SECONDS_OF_A_RESTART = 60.0
"""How long a run waits for a server that does not answer: as long as a restart takes. If the run failed at once, it
would be requested again after a pause that is longer than the outage."""
_PROBE_SECONDS, _BETWEEN_PROBES = 5.0, 1.0


def new_session(settings: Settings, *, wait_seconds: float = 0.0) -> SparkSession:
    """Return a new session, which the caller must stop.

    Args:
        wait_seconds: How long to wait for a server that does not answer.

    Raises:
        SparkUnreachable: `SPARK_REMOTE` names a server that does not answer.
        SettingsError: `SPARK_REMOTE` is not set, and there are no jars for Spark in this process.
    """
    from pyspark.sql import SparkSession

    if settings.spark_remote:
        _await_server(settings.spark_remote, wait_seconds)
        with _keeping_the_token(settings.spark_remote):
            # Imported here, because pyspark takes longer to import than the server to answer.
            from dagster_tidemark.lakehouse.connect_client import connected

            session = connected(settings.spark_remote, SESSION_CONF)
    else:
        require_jars(settings)
        _require_downloaded(settings)
        settings.state_dir.mkdir(parents=True, exist_ok=True)  # the default catalog is a file in it
        keep_password(settings)
        builder = SparkSession.builder.master("local[*]").appName("tidemark")
        session = builder.config(map={**server_conf(settings), **ONE_MACHINE, **SESSION_CONF}).getOrCreate()
        session.sparkContext.pythonExec = sys.executable  # the default is the `python3` on the path
    _settings[session] = settings
    return session


@contextmanager
def opened_session(settings: Settings) -> Iterator[SparkSession]:
    """Open a new session, and stop it at the end of the block.

    Raises:
        SparkUnreachable: as in `new_session`.
    """
    session = new_session(settings)
    try:
        yield session
    finally:
        with suppress(Exception):  # the server is gone, and its error is reported already
            session.stop()


_settings: WeakKeyDictionary[SparkSession, Settings] = WeakKeyDictionary()


def settings_of(session: SparkSession) -> Settings | None:
    """Return the settings of a session that `new_session` created; None for other sessions."""
    return _settings.get(session)


def evaluated_once(frame: DataFrame) -> DataFrame:
    """Return a frame with the same rows, which Spark evaluates now and keeps until the frame is deleted.

    Spark Connect's client looks for these rows in the active session of the thread, but only the session of `frame` has
    them. The two differ if the code location has its own session. So the frame's session is active during this call.
    """
    session = frame.sparkSession
    active = getattr(type(session), "_active_session", None)  # only Spark Connect has it
    if active is None:
        return frame.localCheckpoint()
    before = getattr(active, "session", None)
    active.session = session
    try:
        return frame.localCheckpoint()
    finally:
        active.session = before


@contextmanager
def _keeping_the_token(remote: str) -> Iterator[None]:
    """Remove the connection's token from errors, because the event log stores the errors of runs."""
    try:
        yield
    except Exception as error:  # any error may quote the connection string
        found = _TOKEN.search(remote)
        token = found[0].removeprefix("token=") if found else ""
        if not token or not any(token in f"{cause} {cause!r}" for cause in _causes(error)):
            raise
        if token in f"{error} {error!r}":
            raise SparkFailed(f"{type(error).__name__}: {error}".replace(token, "***")) from None
        raise error from None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def naming_the_server(session: SparkSession) -> Iterator[None]:
    """Replace errors of a lost server with an error that names the server. The client's errors name only sessions.

    Raises:
        SparkLost: the server stopped during the session, or was replaced.
        SparkFailed: the message of an error had the connection's token.
    """
    settings = settings_of(session)
    remote = (settings.spark_remote if settings else None) or ""
    with _keeping_the_token(remote):
        try:
            yield
        except Exception as error:  # a lost server causes many errors of the client, gRPC and Python
            if remote and _is_lost(session, remote):
                raise SparkLost(remote) from error
            raise


def _is_lost(session: SparkSession, remote: str) -> bool:
    try:
        _require_server(remote)
        # An error in the middle of a result does not close a lost session. This call closes the session if the server
        # answers that it does not know the session.
        _ = session.version
    except SparkUnreachable:
        return True
    except Exception:  # any error of the client: only check if the client has closed the session
        return bool(getattr(session, "is_stopped", False))
    return False


def _await_server(remote: str, wait_seconds: float) -> None:
    """Wait until the server answers. Raise SparkUnreachable if it does not answer in time."""
    end, is_first = time.monotonic() + wait_seconds, True
    while True:
        try:
            return _require_server(remote)
        except SparkUnreachable as error:
            if time.monotonic() >= end:
                raise
            if is_first:
                logger.warning("%s; waiting for %.0f s", error, wait_seconds)
        is_first = False
        time.sleep(_BETWEEN_PROBES)


def _require_server(remote: str) -> None:
    # The client silently retries for minutes if the server is down, so check that it answers first.
    address = urlsplit(remote)
    try:
        socket.create_connection((address.hostname or "127.0.0.1", address.port or 15002), _PROBE_SECONDS).close()
    except OSError as error:
        raise SparkUnreachable(remote, error) from error
    if fault := connect_fault(remote, _PROBE_SECONDS):
        raise SparkUnreachable(remote, fault)


def connect_fault(remote: str, seconds: float) -> str:
    """Return why no server answers at a connection string; empty if one does.

    The probe is an HTTP/2 handshake, because the kernel accepts connections also for a stopped server. It chooses
    between plain text and TLS as `DefaultChannelBuilder` of pyspark does, which takes a second to import.
    """
    import grpc

    at = urlsplit(remote.replace("sc://", "http://", 1))
    given = dict(each.partition("=")[::2] for each in at.path.split(";")[1:])
    host = at.hostname or "127.0.0.1"
    address = f"[{host}]:{at.port or 15002}" if ":" in host else f"{host}:{at.port or 15002}"
    has_token = "token" in given or "SPARK_CONNECT_AUTHENTICATE_TOKEN" in os.environ
    # A pool of its own: gRPC would give this channel the connection of another one, with that one's pauses.
    options = [("grpc.use_local_subchannel_pool", 1)]
    if given.get("use_ssl", "").lower() == "true" or (has_token and host != "localhost"):
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(), options)
    elif has_token:
        channel = grpc.secure_channel(address, grpc.local_channel_credentials(), options)
    else:
        channel = grpc.insecure_channel(address, options)
    with closing(channel):
        try:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        except grpc.FutureTimeoutError:
            return f"unreachable at {address}"
    return ""
