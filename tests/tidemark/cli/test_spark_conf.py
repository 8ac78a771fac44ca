"""`tidemark spark-conf`, `jars` and `env`: what they print, and which secrets they hide."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagster_tidemark.cli.app import app
from dagster_tidemark.lakehouse.session import server_conf
from dagster_tidemark.local.spark import jars
from dagster_tidemark.secret_values import is_secret, secrets_in
from dagster_tidemark.settings import load_settings
from tests.checkout import CHECKOUT

PRODUCTION = {
    "TIDEMARK_ENVIRONMENT": "production",
    "SPARK_REMOTE": "sc://spark:15010/;token=t0ken",
    "TIDEMARK_CATALOG_URI": "jdbc:postgresql://db:5432/lake?user=u&password=p:w&sslmode=require",
    "TIDEMARK_WAREHOUSE": "s3://lake/warehouse",
    "AWS_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "AKIA1",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "TIDEMARK_KAFKA_PASSWORD": "kafkas",
}
SECRETS = ("t0ken", "p:w", "p%3Aw", "s3cret", "kafkas", "rest-token")


@pytest.fixture
def production(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a deployment."""
    for name, value in PRODUCTION.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIDEMARK_PROJECT", str(CHECKOUT))


@pytest.mark.usefixtures("production")
def test_the_configuration_is_that_of_the_laptops_server_with_what_a_cluster_needs() -> None:
    done = CliRunner().invoke(app, ["spark-conf", "--json", "--host", "driver", "--master", "spark://m:7077"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    conf, ours = found["conf"], server_conf(load_settings(may_be_unfit=True))
    assert ours.keys() <= conf.keys() and "spark.ui.enabled" not in conf
    places = {"spark.driver.extraClassPath", "spark.executor.extraClassPath", "spark.driver.extraJavaOptions"}
    assert {name: value for name, value in ours.items() if name not in places}.items() <= conf.items()
    assert conf["spark.driver.extraClassPath"] == conf["spark.executor.extraClassPath"] == "/opt/tidemark/jars/*"
    assert "-Dorg.postgresql.pgpassfile=/etc/tidemark/pgpass" in conf["spark.driver.extraJavaOptions"]
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("driver", "0.0.0.0")
    assert (conf["spark.connect.grpc.binding.port"], conf["spark.master"]) == ("15010", "spark://m:7077")
    assert found["environment"]["PYSPARK_PYTHON"].startswith("python3.")
    assert found["files"] == {"/etc/tidemark/pgpass": "db:5432:lake:u:***"}


@pytest.mark.usefixtures("production")
@pytest.mark.parametrize("command", [["spark-conf"], ["spark-conf", "--json"], ["env"], ["env", "--json"]])
def test_secrets_are_printed_only_if_asked_for(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rest = json.dumps({"type": "rest", "token": "rest-token"})
    for catalog in (None, rest):
        if catalog:
            monkeypatch.setenv("TIDEMARK_CATALOG", catalog)
            monkeypatch.setenv("TIDEMARK_CATALOG_URI", "https://rest")
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert not [secret for secret in SECRETS if secret in done.output] and "--secrets" in done.stderr
        whole = CliRunner().invoke(app, [*command, "--secrets"])
        assert ("rest-token" if catalog else "p") in whole.stdout and whole.stderr == ""
    if command[0] == "env":
        assert "s3cret" in whole.stdout and "SPARK_REMOTE" in whole.stdout and "SPARK_REMOTE" not in done.stdout


def test_a_properties_file_has_a_line_for_each_name(production: None) -> None:
    lines = CliRunner().invoke(app, ["spark-conf"]).stdout.splitlines()
    notes = [line for line in lines if line.startswith("#")]
    assert len(notes) == 3 and "SparkConnectServer" in notes[0] and "PYSPARK_PYTHON=python3." in notes[1]
    names = [line.split(" ", 1)[0] for line in lines if line not in notes]
    assert names == sorted(set(names)) and all(name.startswith("spark.") for name in names)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("AWS_SECRET_ACCESS_KEY", "a", True),
        ("AWS_SESSION_TOKEN", "a", True),
        ("spark.sql.catalog.lake.credential", "a:b", True),
        ("spark.sql.catalog.lake.header.Authorization", "Bearer a", True),
        ("TIDEMARK_CATALOG", '{"s3.secret-access-key": "a"}', True),
        ("TIDEMARK_CATALOG", '{"type": "glue"}', False),
        ("TIDEMARK_CATALOG", '{"auth": {"type": "basic", "basic": {"username": "u", "password": "p"}}}', True),
        ("PYICEBERG_CATALOG__LAKE__HEADER__X_API_KEY", "a", True),
        ("spark.sql.catalog.lake.header.Cookie", "a", True),
        ("spark.sql.catalog.lake.header.X-Iceberg-Access-Delegation", "vended-credentials", False),
        ("PYICEBERG_CATALOG__LAKE__HEADER__X_ICEBERG_ACCESS_DELEGATION", "vended-credentials", False),
        ("spark.sql.catalog.lake.adls.sas-token.acme.dfs.core.windows.net", "a", True),
        ("spark.sql.catalog.lake.adls.connection-string", "a", True),
        ("ACME_APIKEY", "a", True),
        ("TIDEMARK_CATALOG_URI", "jdbc:postgresql://db/lake?sslpassword=a", True),
        ("PYICEBERG_CATALOG__LAKE__URI", "postgresql+psycopg2://u:p@db/lake", True),
        ("TIDEMARK_CATALOG_URI", "jdbc:postgresql://db/lake?user=u", False),
        ("SPARK_REMOTE", "sc://spark:15002", False),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "software.amazon.Provider", False),
        ("spark.sql.catalog.lake.token-refresh-enabled", "true", False),
        ("TIDEMARK_KAFKA_SASL_MECHANISM", "PLAIN", False),
    ],
)
def test_a_secret_is_known_by_name_or_value(name: str, value: str, expected: bool) -> None:
    assert is_secret(name, value) is expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TIDEMARK_CATALOG_URI", "jdbc:postgresql://db/l?user=u&password=p%3Aw&sslmode=require", {"p%3Aw", "p:w"}),
        ("SPARK_REMOTE", "sc://spark:15002/;token=abc;user_id=u", {"abc"}),
        ("TIDEMARK_CATALOG", '{"s3": {"secret-access-key": "a"}, "type": "rest", "token": "b"}', {"a", "b"}),
        ("AWS_REGION", "eu-central-1", set()),
    ],
)
def test_the_secrets_of_a_value_are_found(name: str, value: str, expected: set[str]) -> None:
    assert secrets_in(name, value) == expected


def test_jars_fill_one_folder_for_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(settings: Any, bundle: jars.Bundle = jars.LAKE) -> list[Path]:
        jar: Path = settings.jars_dir / ("iceberg.jar" if bundle is jars.LAKE else "kafka.jar")
        jar.touch()
        return [jar]

    monkeypatch.setattr(jars, "fetch_jars", fetched)
    target = tmp_path / "image" / "jars"
    done = CliRunner().invoke(app, ["jars", "--to", str(target)])
    assert done.exit_code == 0 and {jar.name for jar in target.iterdir()} == {"iceberg.jar"}
    done = CliRunner().invoke(app, ["jars", "--to", str(target), "--kafka"])
    assert done.exit_code == 0 and {jar.name for jar in target.iterdir()} == {"iceberg.jar", "kafka.jar"}
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(app, ["jars", "--to", str(tmp_path / "file" / "jars")])
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
