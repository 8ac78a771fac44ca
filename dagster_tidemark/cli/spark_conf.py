"""`tidemark spark-conf` and `tidemark jars`: what a Spark Connect server of a cluster needs."""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.secret_values import is_secret
from dagster_tidemark.settings import Settings, load_settings

HIDDEN = "***"
_MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_PORT = 15002


def spark_conf(
    jars: Annotated[
        str, typer.Option(help="Folder of the jars on the server's and the workers' hosts.", show_default=False)
    ] = "/opt/tidemark/jars",
    pgpass: Annotated[
        str, typer.Option(help="File with the catalog's password on the server's host.", show_default=False)
    ] = "/etc/tidemark/pgpass",
    host: Annotated[
        str | None, typer.Option(help="Name at which workers find the server's driver.", show_default=False)
    ] = None,
    master: Annotated[str | None, typer.Option(help="The cluster, such as spark://host:7077.")] = None,
    python: Annotated[
        str, typer.Option(help="Python of the workers; by default this minor version.", show_default=False)
    ] = _PYTHON,
    secrets: Annotated[bool, typer.Option("--secrets", help="Print passwords and tokens too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a properties file.")] = False,
) -> None:
    """Print the configuration of a Spark Connect server for these settings, as a properties file.

    The lines with # say how to start it, and which environment and files it needs. It connects to nothing.
    """
    settings = load_settings(may_be_unfit=True)  # an image is built before all addresses are known
    found = _server_conf(settings, jars, pgpass)
    if host is not None:
        found["spark.driver.host"] = host
    if master is not None:
        found["spark.master"] = master
    # Workers take their Python from the environment of the server, not from `spark.pyspark.python`.
    environment = {"PYSPARK_PYTHON": python, "AWS_REGION": settings.aws_region}
    if settings.aws_endpoint_url:
        environment["AWS_ENDPOINT_URL"] = settings.aws_endpoint_url
    hidden = [] if secrets else [name for name, value in found.items() if is_secret(name, value)]
    conf = {name: HIDDEN if name in hidden else value for name, value in sorted(found.items())}
    password = settings.catalog_login[1]
    if password is not None and not secrets:  # host:port:database:user:password
        hidden.append(pgpass)
        password = f"{':'.join(password.split(':')[:4])}:{HIDDEN}"
    if as_json:
        files = {pgpass: password} if password else {}
        typer.echo(json.dumps({"conf": conf, "environment": environment, "files": files}, indent=2))
    else:
        typer.echo(f"# spark-submit --properties-file THIS --class {_MAIN_CLASS} spark-internal")
        typer.echo("# Environment: " + " ".join(f"{name}={value}" for name, value in environment.items()))
        if password:
            typer.echo(f"# File {pgpass}, mode 0600: {password}")
        for name, value in conf.items():
            escaped = value.replace("\\", "\\\\")
            typer.echo(f"{name} {escaped}")
    if hidden:
        typer.echo(f"tidemark: secrets are shown as {HIDDEN}; --secrets prints them", err=True)


def _server_conf(settings: Settings, jars: str, pgpass: str) -> dict[str, str]:
    from dagster_tidemark.lakehouse.session import SESSION_TIMEOUTS, server_conf

    port = urlsplit(settings.spark_remote or "").port or _PORT
    return {
        **server_conf(settings, class_path=f"{jars.rstrip('/')}/*", pgpass=pgpass),
        **SESSION_TIMEOUTS,
        "spark.app.name": "tidemark",
        "spark.connect.grpc.binding.address": "0.0.0.0",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "0.0.0.0",
    }


def jars(
    to: Annotated[Path, typer.Option("--to", help="Folder to fill. Other jars in it stay.", show_default=False)],
    kafka: Annotated[bool, typer.Option("--kafka", help="Also the jars of Spark's Kafka source.")] = False,
) -> None:
    """Download the jars that the Spark server needs, into one folder for an image. Needs Java."""
    from dagster_tidemark.local.spark.jars import KAFKA, fetch_jars, put

    settings = load_settings(may_be_unfit=True)
    if settings.catalog_options["type"] == "glue":
        typer.echo("tidemark: for AWS Glue, add org.apache.iceberg:iceberg-aws-bundle of the same version", err=True)
    if shutil.which("java") is None:
        fail("`tidemark jars` needs Java 17 or 21 on the PATH, because Spark's own resolver downloads the jars", code=2)
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--to {to}: the folder cannot be created ({error.strerror}); give another one", code=2)
    with tempfile.TemporaryDirectory() as folder:
        downloads = settings.model_copy(update={"jars_dir": Path(folder)})
        found = fetch_jars(downloads)
        if kafka or settings.kafka_bootstrap_servers:
            found += fetch_jars(downloads, KAFKA)
        for jar in found:
            put(jar, to / jar.name)
    typer.echo(f"{len(found)} jars are in {to}")
