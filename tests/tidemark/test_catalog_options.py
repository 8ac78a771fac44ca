"""One mapping for the catalog: read from variables, handed to Spark and to pyiceberg in their own words."""

import json
import traceback
from pathlib import Path
from typing import Any

import pytest

from dagster_tidemark.asset_page import _of_table
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.lakehouse.session import server_conf
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.local.spark.server import prepare
from dagster_tidemark.sensors.reachable import unreachable
from dagster_tidemark.settings import Settings, SettingsError, load_settings
from tests.conftest import free_port

LAKE = "spark.sql.catalog.lake."
REST = {"type": "rest", "uri": "http://catalog:8181", "warehouse": "acme", "credential": "me:hunter2"}


@pytest.fixture(autouse=True)
def no_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("URI", "WAREHOUSE"):
        monkeypatch.delenv(f"TIDEMARK_CATALOG_{name}", raising=False)
        monkeypatch.delenv(f"TIDEMARK_{name}", raising=False)
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path))


def conf_of(settings: Settings) -> dict[str, str]:
    return {name.removeprefix(LAKE): v for name, v in server_conf(settings).items() if name.startswith(LAKE)}


def given(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"TIDEMARK_{name}", value)
    return load_settings()


def test_each_catalog_option_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given(
        monkeypatch,
        CATALOG__TYPE="rest",
        CATALOG__URI="http://catalog:8181",
        CATALOG__WAREHOUSE="acme",
        CATALOG__OAUTH2_SERVER_URI="http://login",
        CATALOG__S3__ACCESS_KEY_ID="key",
        CATALOG__TOKEN="",
        WAREHOUSE="s3://acme/lake",
    )
    wanted = {
        "type": "rest",
        "uri": "http://catalog:8181",
        "warehouse": "acme",
        "oauth2-server-uri": "http://login",
        "s3.access-key-id": "key",
    }
    assert settings.catalog_options == wanted
    assert conf_of(settings).items() >= (wanted | {"cache-enabled": "false"}).items()
    assert settings.warehouse == "s3://acme/lake"


def test_json_catalog_options_are_read_and_exported_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    first = given(monkeypatch, CATALOG=json.dumps(REST), WAREHOUSE="s3://acme/lake")
    exports = first.exports()
    assert exports["PYICEBERG_CATALOG__LAKE__TYPE"] == "rest"
    assert exports["PYICEBERG_CATALOG__LAKE__URI"] == "http://catalog:8181"
    assert exports["PYICEBERG_CATALOG__LAKE__CREDENTIAL"] == "me:hunter2"
    for name, value in exports.items():
        monkeypatch.setenv(name, value)
    assert load_settings().exports() == exports
    assert load_settings().catalog_options == REST
    assert hash(load_settings()) == hash(load_settings())


def test_short_catalog_settings_give_the_same_catalog_as_the_full_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    short = given(monkeypatch, CATALOG_URI="jdbc:sqlite:/a/c.db", WAREHOUSE="/a/house")
    for name in ("CATALOG_URI", "WAREHOUSE"):
        monkeypatch.delenv(f"TIDEMARK_{name}")
    long = given(monkeypatch, CATALOG__TYPE="jdbc", CATALOG__URI="jdbc:sqlite:/a/c.db", CATALOG__WAREHOUSE="/a/house")
    assert conf_of(short) == conf_of(long)
    assert conf_of(long)["uri"] == "jdbc:sqlite:/a/c.db" and conf_of(long)["warehouse"] == "/a/house"
    assert long.exports()["PYICEBERG_CATALOG__LAKE__TYPE"] == "sql"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CATALOG__TYPE": "nessie"}, "TIDEMARK_CATALOG__TYPE=nessie: expected one of jdbc, rest, glue, hive"),
        ({"CATALOG__TYPE": "rest", "WAREHOUSE": "/a"}, "TIDEMARK_CATALOG__URI is not set, and"),
        ({"CATALOG": json.dumps(REST)}, "TIDEMARK_WAREHOUSE is not set, and TIDEMARK_CATALOG__TYPE=rest needs it"),
        (
            {"CATALOG_URI": "http://me:hunter2@catalog"},
            "TIDEMARK_CATALOG_URI=http://catalog: the URI of a jdbc catalog",
        ),
        ({"CATALOG_URI": "jdbc:mysql://catalog/db?password=hunter2"}, "TIDEMARK_CATALOG_URI=jdbc:mysql://catalog/db: "),
        (
            {"CATALOG_URI": "jdbc:postgresql://me:hunter2?x@catalog/db"},
            "jdbc:postgresql://***: host and port cannot be",
        ),
        ({"CATALOG_URI": "jdbc:postgresql://me:hunter2#@catalog/db"}, "jdbc:postgresql://catalog/db: host and port"),
        ({"CATALOG__URI": "jdbc:sqlite:/a", "CATALOG_URI": "jdbc:sqlite:/b"}, "differ: set only one of them"),
        ({"CATALOG": "hunter2"}, "TIDEMARK_CATALOG: expected a JSON object"),
        ({"CATALOG": '{"token": ["hunter2"]}'}, "TIDEMARK_CATALOG: token: expected text, found list"),
    ],
)
def test_invalid_catalog_options_are_refused_without_showing_secrets(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        given(monkeypatch, **variables)
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_secret_from_a_file_is_used_without_its_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    # An HTTP client refuses such a header, and quotes it in its error.
    settings = given(monkeypatch, CATALOG=json.dumps(REST | {"token": "hunter2\n"}), WAREHOUSE="s3://acme/lake")
    assert settings.catalog_options["token"] == "hunter2"


def test_no_error_of_settings_quotes_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": "hunter2", "SPARK_REMOTE": "sc://s/;token=hunter2"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    assert "hunter2" not in repr(load_settings())
    monkeypatch.setenv("TIDEMARK_KAFKA_PASSWORD", "hunter2")
    with pytest.raises(SettingsError) as refused:
        given(monkeypatch, PORT_CLOUD="3000")
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_catalog_secrets_are_in_no_settings_text_and_no_asset_page() -> None:
    settings = Settings(catalog=REST, warehouse="s3://acme/lake")
    table = Table("core.trips", {"id": "bigint"}, ("id",))
    assert "hunter2" not in f"{settings} {settings!r} {settings.catalog_shown} {_of_table(table, settings)}"


def test_glue_catalog_is_refused_if_spark_lacks_its_jars(tmp_path: Path) -> None:
    settings = Settings(catalog={"type": "glue"}, warehouse="s3://acme/lake", state_dir=tmp_path)
    assert conf_of(settings)["type"] == "glue" and "uri" not in conf_of(settings)
    with pytest.raises(SettingsError, match="AWS SDK for Glue; set SPARK_REMOTE"):
        prepare(settings)


def test_rest_catalog_that_does_not_answer_is_reported(cloud: Settings) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    settings = cloud.model_copy(update={"catalog": {"type": "rest"}, "catalog_uri": uri, "spark_remote": None})
    assert "unreachable: " in unreachable(settings)["catalog"]


def test_glue_catalog_is_used_by_pyiceberg_at_the_local_cloud(cloud: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    more: Any = {"glue.endpoint": cloud.aws_endpoint_url, "glue.region": "us-east-1"}
    keys = {"glue.access-key-id": "tidemark", "glue.secret-access-key": "tidemark"}
    settings = cloud.model_copy(update={"catalog": {"type": "glue"} | more | keys, "catalog_uri": ""})
    lake = open_lake(settings)
    lake.create_namespace_if_not_exists("glue_test")
    assert ("glue_test",) in lake.list_namespaces()
