"""Configuration and environment of a Spark Connect server of a cluster.

Belongs here: additions to `session.server_conf`, which the laptop's server has too. Does not belong
here: the names of the jars (`local.spark.jars`).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from dagster_tidemark.lakehouse.session import SESSION_TIMEOUTS, server_conf
from dagster_tidemark.settings import Settings

MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
JARS = "/opt/tidemark/jars"
PGPASS = "/etc/tidemark/pgpass"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_PORT = 15002


@dataclass(frozen=True)
class ConnectServer:
    """Configuration, environment and password file of a Connect server.

    Args:
        conf: Configuration, as conf name to value.
        environment: Variables of its process.
        pgpass: The line of the file with the catalog's password, if the catalog has one. It is a secret.
    """

    conf: Mapping[str, str]
    environment: Mapping[str, str]
    pgpass: str | None


def connect_server(
    settings: Settings,
    *,
    jars: str = JARS,
    pgpass: str = PGPASS,
    host: str | None = None,
    master: str | None = None,
    python: str = PYTHON,
) -> ConnectServer:
    """Return what the server of `SPARK_REMOTE` starts with.

    Args:
        jars: The folder that `tidemark jars` filled, on the driver's and on every worker's host.
        pgpass: The file with the catalog's password, on the driver's host.
        host: The name or address at which the workers find the driver.
        master: The address of the cluster.
        python: The Python of the workers. Workers without pyarrow fail only after minutes.
    """
    port = urlsplit(settings.spark_remote or "").port or _PORT
    conf = server_conf(settings, class_path=f"{jars.rstrip('/')}/*", pgpass=pgpass) | SESSION_TIMEOUTS
    conf |= {
        "spark.app.name": "tidemark",
        "spark.connect.grpc.binding.address": "0.0.0.0",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "0.0.0.0",
    }
    if host is not None:
        conf["spark.driver.host"] = host
    if master is not None:
        conf["spark.master"] = master
    # Workers take their Python from the environment of the server, not from `spark.pyspark.python`.
    environment = {"PYSPARK_PYTHON": python, "AWS_REGION": settings.aws_region}
    if settings.aws_endpoint_url:
        environment["AWS_ENDPOINT_URL"] = settings.aws_endpoint_url
    return ConnectServer(dict(sorted(conf.items())), environment, settings.catalog_login[1])
