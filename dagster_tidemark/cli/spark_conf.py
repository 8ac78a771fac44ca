"""`tidemark spark-conf` and `tidemark jars`: what a Spark Connect server of a cluster needs."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.secret_values import is_secret
from dagster_tidemark.settings import load_settings

HIDDEN = "***"


def spark_conf(
    jars: Annotated[str, typer.Option(help="Folder of the jars on the server's and the workers' hosts.")] = "",
    pgpass: Annotated[str, typer.Option(help="File with the catalog's password on the server's host.")] = "",
    host: Annotated[
        str | None, typer.Option(help="Name at which workers find the server's driver.", show_default=False)
    ] = None,
    master: Annotated[str | None, typer.Option(help="The cluster, such as spark://host:7077.")] = None,
    python: Annotated[str, typer.Option(help="Python of the workers; by default this minor version.")] = "",
    secrets: Annotated[bool, typer.Option("--secrets", help="Print passwords and tokens too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a properties file.")] = False,
) -> None:
    """Print the configuration of a Spark Connect server for these settings, as a properties file.

    The lines with # say how to start it, and which environment and files it needs. It connects to nothing.
    """
    from dagster_tidemark.lakehouse.connect_server import JARS, MAIN_CLASS, PGPASS, PYTHON, connect_server

    settings = load_settings(may_be_unfit=True)  # an image is built before all addresses are known
    pgpass = pgpass or PGPASS
    server = connect_server(
        settings, jars=jars or JARS, pgpass=pgpass, host=host, master=master, python=python or PYTHON
    )
    hidden = [] if secrets else [name for name, value in server.conf.items() if is_secret(name, value)]
    conf = {name: HIDDEN if name in hidden else value for name, value in server.conf.items()}
    password = server.pgpass
    if password is not None and not secrets:  # host:port:database:user:password
        hidden.append(pgpass)
        password = f"{':'.join(password.split(':')[:4])}:{HIDDEN}"
    if as_json:
        files = {pgpass: password} if password else {}
        typer.echo(json.dumps({"conf": conf, "environment": dict(server.environment), "files": files}, indent=2))
    else:
        typer.echo(f"# spark-submit --properties-file THIS --class {MAIN_CLASS} spark-internal")
        typer.echo("# Environment: " + " ".join(f"{name}={value}" for name, value in server.environment.items()))
        if password:
            typer.echo(f"# File {pgpass}, mode 0600: {password}")
        for name, value in conf.items():
            escaped = value.replace("\\", "\\\\")
            typer.echo(f"{name} {escaped}")
    if hidden:
        typer.echo(f"tidemark: secrets are shown as {HIDDEN}; --secrets prints them", err=True)


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
