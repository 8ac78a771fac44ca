"""Spark sessions on the lake: what a server must be started with, and how a run gets its session.

A run sees only a `SparkSession`. With `SPARK_REMOTE` it is a new session on a Spark Connect server (a
laptop's or a cluster's); without it an in-process `local[*]` session: slower, same result.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from pipelines.lakehouse.tables import CATALOG
from pipelines.settings import Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkUnreachable(Exception):
    """No Spark Connect server answers. A retry helps once it runs again."""

    def __init__(self, remote: str, reason: object) -> None:
        super().__init__(f"no Spark Connect server answers at {remote} ({reason}); is it running? See SPARK_REMOTE")


class SparkLost(Exception):
    """The Spark Connect server ended or was started anew under a run. A retry helps: it gets a new session."""

    def __init__(self, remote: str) -> None:
        super().__init__(
            f"the Spark Connect server at {remote} went away while this run was using it, and the run's session "
            "with it; run it again once the server is back"
        )


# What Spark generates for a row of many columns and rules is a method too long for Java to compile by itself: it stays
# interpreted, and to judge rows takes four times as long.
_JAVA_OPTIONS = "-Duser.timezone=UTC -XX:-DontCompileHugeMethods"


def server_conf(settings: Settings) -> dict[str, str]:
    """The Spark configuration a server (or a local session) has to be started with, as conf name to value."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    remote_warehouse = "://" in settings.warehouse
    conf = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": settings.catalog_uri,
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": settings.warehouse,
        # A long-lived server must see the commits of other processes at once.
        f"{catalog}.cache-enabled": "false",
        "spark.driver.extraClassPath": f"{settings.jars_dir}/jars/*",
        "spark.executor.extraClassPath": f"{settings.jars_dir}/jars/*",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
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
    if settings.aws_access_key_id and settings.aws_secret_access_key:
        conf["spark.hadoop.fs.s3a.access.key"] = settings.aws_access_key_id
        conf["spark.hadoop.fs.s3a.secret.key"] = settings.aws_secret_access_key
        if remote_warehouse:
            conf[f"{catalog}.s3.access-key-id"] = settings.aws_access_key_id
            conf[f"{catalog}.s3.secret-access-key"] = settings.aws_secret_access_key
    return conf


SESSION_CONF: dict[str, bool | float | int | str | None] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # A task of a file or two: with Spark's 128 MB the last of a handful keeps the other cores waiting.
    "spark.sql.files.maxPartitionBytes": "32m",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "16",
    # Files of many shapes are a union of many scans. With this rule every scan would carry a copy of all that is
    # computed from their rows: 6 MB a task for 200 files, and minutes instead of seconds.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion",
}
"""What the code relies on, whoever started the server."""


_TRIES, _LONGEST_WAIT_MS = 30, 5_000
"""How a run tries again when the server does not answer: every 5 s for two minutes. The client's own way is up to a
minute between tries, ten minutes long: a server that is back after 20 s is noticed after 70."""


def new_session(settings: Settings) -> SparkSession:
    """A session of the caller's own, which has to stop it.

    Raises:
        SparkUnreachable: `SPARK_REMOTE` names a server that does not answer.
    """
    from pyspark.sql import SparkSession

    if settings.spark_remote:
        from pyspark.sql.connect.client.retries import DefaultPolicy

        _require_server(settings.spark_remote)
        # Any, because mypy cannot read pyspark's decorator of `client`.
        remote: Any = SparkSession.builder.remote(settings.spark_remote).config(map=SESSION_CONF).create()
        remote.client.set_retry_policies([DefaultPolicy(max_retries=_TRIES, max_backoff=_LONGEST_WAIT_MS)])
        return cast("SparkSession", remote)
    builder = SparkSession.builder.master("local[*]").appName("tidemark")
    return builder.config(map={**server_conf(settings), **SESSION_CONF}).getOrCreate()


@contextmanager
def naming_the_server(session: SparkSession) -> Iterator[None]:
    """Make errors that come from the server's death say so; the client's own speak of sessions and handles.

    Raises:
        SparkLost: the server ended under the session, or is another one by now.
    """
    try:
        yield
    except Exception as error:
        remote = load_settings().spark_remote
        if remote and _is_lost(session, remote):
            raise SparkLost(remote) from error
        raise


def _is_lost(session: SparkSession, remote: str) -> bool:
    try:
        _require_server(remote)
        # Not every error of a session that is gone closes it: one in the middle of a result does not. An answer that
        # the server does not know it does.
        _ = session.version
    except SparkUnreachable:
        return True
    except Exception:
        return bool(getattr(session, "is_stopped", False))
    return False


def _require_server(remote: str) -> None:
    # The client retries a dead server for minutes without a word, so the port is tried first.
    address = urlsplit(remote)
    try:
        socket.create_connection((address.hostname or "127.0.0.1", address.port or 15002), timeout=5).close()
    except OSError as error:
        raise SparkUnreachable(remote, error) from error
