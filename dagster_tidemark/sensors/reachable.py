"""Probes of the services that runs need: the Spark server, the catalog and the bucket.

Belongs here: one cheap request to each. Does not belong here: the consequences of a failed probe (`engine.doubts`).
"""

import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import boto3
import sqlalchemy
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.catalog_options import sqlalchemy_uri
from dagster_tidemark.lakehouse.session import connect_fault
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

SECONDS = 3.0
_HANGS_SECONDS = 60.0
_NAMESPACE = "ops"
_IMPATIENT = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})


def unreachable(settings: Settings) -> dict[str, str]:
    """Return the fault of each service, by the service's name. The fault is empty if the service answers."""
    asked = {"Spark": _spark, "catalog": _catalog, "S3": _s3}
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = {name: pool.submit(ask, settings) for name, ask in asked.items()}
        return {name: answer.result() for name, answer in answers.items()}


def _spark(settings: Settings) -> str:
    if settings.spark_remote is None:  # each run has its own local session
        return ""
    return connect_fault(settings.spark_remote, SECONDS)


def _catalog(settings: Settings) -> str:
    probe = {"jdbc": _database, "rest": _rest, "glue": _glue, "hive": _hive}[settings.catalog_options["type"]]
    return probe(settings)


def _rest(settings: Settings) -> str:
    """Request the configuration, as each client does first, then a namespace: a server may answer without its store.

    A refused login or a missing permission counts as an answer.
    """
    url = f"{settings.catalog_uri.rstrip('/')}/v1/config"
    try:
        with urlopen(url, timeout=SECONDS):
            pass
    except HTTPError as answer:
        if answer.code >= 500:
            return f"unreachable: it answers with {answer.code}"
    except OSError as error:
        return f"unreachable: {error}"
    return _namespace(settings)


def _namespace(settings: Settings) -> str:
    """Ask for a namespace, which may be missing. pyiceberg's clients wait for an answer without end.

    A request that hangs is not repeated for a minute.
    """
    # Here, so that the second of the import does not count.
    from pyiceberg.exceptions import RESTError, ServerError, ServiceUnavailableError

    from dagster_tidemark.lakehouse.append import open_lake

    def ask() -> str:
        try:
            if settings not in _lakes:
                _lakes[settings] = open_lake(settings)
            _lakes[settings].namespace_exists(_NAMESPACE)
        except (ServerError, ServiceUnavailableError) as error:
            return f"unreachable: {error}"
        except RESTError:
            return ""
        except Exception as error:  # requests, thrift and SDKs of clouds have their own error classes
            return f"unreachable: {error}"
        return ""

    begun, waiting = _waiting.get(settings, (0.0, None))
    if waiting is None or waiting.done() or time.monotonic() > begun + _HANGS_SECONDS:
        begun, waiting = _waiting[settings] = time.monotonic(), Future[str]()
        Thread(target=lambda answer=waiting: answer.set_result(ask()), daemon=True).start()
    try:
        return waiting.result(SECONDS)
    except TimeoutError:
        return f"unreachable: no answer for {time.monotonic() - begun:.0f} s"


_lakes: dict[Settings, "Catalog"] = {}
_waiting: dict[Settings, tuple[float, Future[str]]] = {}


def _glue(settings: Settings) -> str:
    try:
        client: Any = boto3.Session().client("glue", config=_IMPATIENT, region_name=settings.aws_region)
        client.get_databases(MaxResults=1)
    except (BotoCoreError, ClientError) as error:
        return f"unreachable: {error}"
    return ""


def _hive(settings: Settings) -> str:
    at = urlsplit(settings.catalog_uri)
    try:
        socket.create_connection((at.hostname or "", at.port or 9083), timeout=SECONDS).close()
    except OSError as error:
        return f"unreachable: {error}"
    return _namespace(settings)


def _database(settings: Settings) -> str:
    uri = sqlalchemy_uri(settings.catalog_uri)
    options = {"connect_timeout": int(SECONDS)} if uri.startswith("postgresql") else {"timeout": SECONDS}
    engine = sqlalchemy.create_engine(uri, connect_args=options, poolclass=sqlalchemy.NullPool)
    said = "unreachable"
    if uri.startswith("sqlite"):
        with suppress(OSError):  # the connection reports it
            settings.state_dir.mkdir(parents=True, exist_ok=True)  # as a session does: the default catalog is in it
    try:
        with engine.connect() as connection:
            said = "accepts no commit"
            for statement in _locks(connection):
                connection.execute(sqlalchemy.text(statement))
    except sqlalchemy.exc.SQLAlchemyError as error:
        return f"{said}: {str(getattr(error, 'orig', None) or error).strip().partition(chr(10))[0]}"
    finally:
        engine.dispose()
    return ""


def _locks(connection: sqlalchemy.Connection) -> list[str]:
    """Return statements that take the same lock as a commit. Closing the connection releases the lock."""
    if connection.dialect.name == "sqlite":
        return ["BEGIN IMMEDIATE"]
    if connection.dialect.name == "postgresql" and sqlalchemy.inspect(connection).has_table("iceberg_tables"):
        timeout = f"SET LOCAL lock_timeout = {int(SECONDS * 1000)}"
        return [timeout, "LOCK TABLE iceberg_tables IN ROW EXCLUSIVE MODE"]
    return ["SELECT 1"]


def _s3(settings: Settings) -> str:
    try:
        _client(settings).head_bucket(Bucket=settings.landing_bucket)
    except (BotoCoreError, ClientError) as error:
        return f"bucket {settings.landing_bucket} unreachable: {error}"
    return ""


@cache
def _client(settings: Settings) -> Any:
    # A separate session, because several threads cannot safely create clients from the default session.
    return boto3.Session().client("s3", config=_IMPATIENT, **settings.aws_options())
