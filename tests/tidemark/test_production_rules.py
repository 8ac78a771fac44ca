"""Each line that production refuses, and that a whole arrangement is accepted."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dagster_tidemark.cli.app import app
from dagster_tidemark.local.platform.instance_lock import publish_environment, running
from dagster_tidemark.production_rules import RULES, refusals
from dagster_tidemark.settings import Settings, SettingsError, load_settings

POSTGRES = {"hostname": "db", "username": "dagster", "password": "p", "db_name": "d", "params": {"sslmode": "require"}}
INSTANCE: dict[str, Any] = {
    "storage": {"postgres": {"postgres_db": POSTGRES}},
    "run_monitoring": {"enabled": True},
    "concurrency": {"runs": {"max_concurrent_runs": 12}},
}
VARIABLES = {
    "TIDEMARK_ENVIRONMENT": "production",
    "SPARK_REMOTE": "sc://spark:15002/;token=t",
    "TIDEMARK_CATALOG_URI": "jdbc:postgresql://db/lake?user=u&password=p&sslmode=require",
    "TIDEMARK_WAREHOUSE": "s3://lake/warehouse",
}
REST = {"TIDEMARK_CATALOG_URI": "http://rest:8181", "TIDEMARK_CATALOG__TYPE": "rest", "TIDEMARK_CATALOG__TOKEN": "t"}
KAFKA = {
    "TIDEMARK_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "TIDEMARK_KAFKA_USERNAME": "u",
    "TIDEMARK_KAFKA_PASSWORD": "p",
}
HIVE = {
    "TIDEMARK_CATALOG__TYPE": "hive",
    "TIDEMARK_CATALOG_URI": "thrift://hive:9083",
    "TIDEMARK_CATALOG__WAREHOUSE": "/house",
}
QUEUED = {"run_coordinator": {"class": "QueuedRunCoordinator", "config": {"max_concurrent_runs": 3}}}
LAPTOP = {"run_launcher": {"module": "dagster_tidemark.local.dagster.run_launcher", "class": "WarmRunLauncher"}}
PLAIN = {"storage": {"postgres": {"postgres_db": POSTGRES | {"params": {}}}}}
APART = {
    "storage": None,
    **{
        f"{name}_storage": {
            "module": f"dagster_postgres.{name}",
            "class": "Any",
            "config": {"postgres_db": POSTGRES | ({"params": {}} if name == "run" else {})},
        }
        for name in ("run", "event_log", "schedule")
    },
}
"""As Dagster's chart writes it."""
URL = {"storage": {"postgres": {"postgres_url": "postgresql://u:p@db/d"}}}


SQLITE = {"storage": {"custom": {"module": "dagster._core.storage.sqlite_storage", "class": "DagsterSqliteStorage"}}}
CUSTOM = {
    "storage": {
        "custom": {
            "module": "dagster_postgres",
            "class": "DagsterPostgresStorage",
            "config": {"postgres_db": POSTGRES | {"params": {}}},
        }
    }
}
LOGS = {"compute_logs": {"module": "a", "class": "B", "config": {"endpoint_url": "http://minio:9000"}}}
LAKE = "jdbc:postgresql://db/l?user=u&password=p"
PGPASS = "jdbc:postgresql://db/l?user=u"
BARE = {"TIDEMARK_CATALOG_URI": "http://rest:8181", "TIDEMARK_CATALOG__TYPE": "rest"}


@pytest.fixture
def arrangement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets up the environment, with changes, and returns its settings."""
    for name in list(os.environ):
        if name.startswith(("TIDEMARK_", "AWS_", "SPARK_", "PG", "OPENLINEAGE")):
            monkeypatch.delenv(name)

    def made(variables: dict[str, str], instance: Any = None) -> Settings:
        content = instance if isinstance(instance, str) else yaml.safe_dump({**INSTANCE, **(instance or {})})
        (tmp_path / "dagster.yaml").write_text(content)
        for name, value in {**VARIABLES, "DAGSTER_HOME": str(tmp_path), **variables}.items():
            monkeypatch.setenv(name, value)
        return load_settings(may_be_unfit=True)

    return made


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"TIDEMARK_WAREHOUSE": "s3a://lake/warehouse"},
        {"TIDEMARK_CATALOG_URI": PGPASS},
        {"OPENLINEAGE_URL": "http://marquez:5000"},
        {"TIDEMARK_CATALOG__S3__PROXY_URI": "http://proxy:3128"},
        BARE | {"TIDEMARK_CATALOG__WAREHOUSE": "lake", "TIDEMARK_CATALOG__S3__SECRET_ACCESS_KEY": "k"},
        {"TIDEMARK_CATALOG__TYPE": "hive", "TIDEMARK_CATALOG_URI": "thrift://a:9083,thrift://b:9083"},
    ],
)
def test_other_notations_of_a_whole_arrangement_are_accepted(arrangement: Any, variables: dict[str, str]) -> None:
    assert refusals(arrangement(variables)) == []


def test_a_home_is_found_as_dagster_finds_it(arrangement: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert refusals(arrangement({"DAGSTER_HOME": "~"})) == []


@pytest.mark.parametrize("command", ["status", "prune --older-than 30d", "metrics"])
def test_a_command_without_a_home_of_dagster_never_uses_the_laptops_platform(
    arrangement: Any, command: str, tmp_path: Path
) -> None:
    settings = arrangement({"DAGSTER_HOME": "", "TIDEMARK_STATE_DIR": str(tmp_path)})
    with running(settings):
        publish_environment(settings, {"DAGSTER_HOME": str(tmp_path), "TIDEMARK_ENVIRONMENT": "local"})
        done = CliRunner().invoke(app, command.split())
    assert (done.exit_code, done.stderr) == (2, f"tidemark: {NO_HOME}\n")


NO_HOME = "DAGSTER_HOME is not set: set it to the folder with production's dagster.yaml"


def test_a_whole_arrangement_is_accepted(arrangement: Any) -> None:
    assert refusals(arrangement({})) == []
    assert load_settings().environment == "production"
    assert refusals(arrangement({"TIDEMARK_ENVIRONMENT": "local", "SPARK_REMOTE": ""})) == []


@pytest.mark.parametrize(
    ("variables", "instance", "named", "remedy"),
    [
        ({"SPARK_REMOTE": ""}, {}, "SPARK_REMOTE is not set", "sc://host:15002"),
        ({"TIDEMARK_CATALOG_URI": ""}, {}, "TIDEMARK_CATALOG_URI", "jdbc:postgresql://"),
        ({"TIDEMARK_CATALOG_URI": "jdbc:sqlite:/a.db"}, {}, "TIDEMARK_CATALOG_URI", "jdbc:postgresql://"),
        ({"TIDEMARK_WAREHOUSE": ""}, {}, "TIDEMARK_WAREHOUSE", "s3://bucket/prefix"),
        ({"TIDEMARK_WAREHOUSE": "file:///house"}, {}, "TIDEMARK_WAREHOUSE", "s3://bucket/prefix"),
        (HIVE, {}, "TIDEMARK_CATALOG__WAREHOUSE=/house", "s3://bucket/prefix"),
        ({"SPARK_REMOTE": "local[*]"}, {}, "SPARK_REMOTE=local[*] is no address of a Spark Connect", "sc://host:15002"),
        ({"TIDEMARK_WAREHOUSE": "FILE:///house"}, {}, "TIDEMARK_WAREHOUSE", "s3://bucket/prefix"),
        ({"TIDEMARK_WAREHOUSE": "house"}, {}, "TIDEMARK_WAREHOUSE", "s3://bucket/prefix"),
        ({"TIDEMARK_WAREHOUSE": "s3:/lake/house"}, {}, "TIDEMARK_WAREHOUSE", "s3://bucket/prefix"),
        (HIVE | {"TIDEMARK_CATALOG__WAREHOUSE": "house"}, {}, "CATALOG__WAREHOUSE=house", "s3://bucket/prefix"),
        (HIVE | {"TIDEMARK_CATALOG__WAREHOUSE": "File:/x"}, {}, "CATALOG__WAREHOUSE=File:/x", "s3://bucket/prefix"),
        ({"TIDEMARK_CATALOG_URI": "jdbc:postgresql://db/l?user=u&password=p"}, {}, "CATALOG_URI", "sslmode=require"),
        ({"TIDEMARK_CATALOG_URI": f"{LAKE}&sslmode=require&sslmode=disable"}, {}, "CATALOG_URI", "sslmode=require"),
        ({"TIDEMARK_CATALOG_URI": f"{LAKE}&ssl=true"}, {}, "CATALOG_URI", "sslmode=require"),
        ({"TIDEMARK_CATALOG_URI": PGPASS, "PGPASSWORD": "p"}, {}, "CATALOG_URI", "sslmode=require"),
        (REST | {"TIDEMARK_CATALOG_URI": "HTTP://rest"}, {}, "TIDEMARK_CATALOG_URI=HTTP://rest", "https://"),
        (BARE | {"TIDEMARK_CATALOG__HEADER__X_API_KEY": "t"}, {}, "TIDEMARK_CATALOG_URI=http://rest", "https://"),
        (BARE | {"TIDEMARK_CATALOG__REST__SIGV4_ENABLED": "true"}, {}, "TIDEMARK_CATALOG_URI=http://rest", "https://"),
        (BARE | {"TIDEMARK_CATALOG_URI": "http://u:pass@rest"}, {}, "TIDEMARK_CATALOG_URI=http://rest", "https://"),
        (
            REST | {"TIDEMARK_CATALOG_URI": "https://r", "TIDEMARK_CATALOG__OAUTH2_SERVER_URI": "http://login"},
            {},
            "TIDEMARK_CATALOG names oauth2-server-uri=http://login",
            "https://",
        ),
        ({"TIDEMARK_CATALOG__S3__ENDPOINT": "http://minio"}, {}, "TIDEMARK_CATALOG names s3.endpoint", "https://"),
        ({"AWS_ENDPOINT_URL": "HTTP://minio:9000"}, {}, "AWS_ENDPOINT_URL=HTTP://minio:9000", "https://"),
        ({"AWS_ENDPOINT_URL_SQS": "http://sqs:1"}, {}, "AWS_ENDPOINT_URL_SQS=http://sqs:1", "https://"),
        (
            {},
            {"storage": {"mysql": {"mysql_url": "mysql://db"}}},
            "dagster.yaml keeps Dagster's runs in MySQL",
            "postgres",
        ),
        (
            {"OPENLINEAGE_URL": "http://marquez:5000", "OPENLINEAGE_API_KEY": "k"},
            {},
            "OPENLINEAGE_URL=http://marquez:5000",
            "https://",
        ),
        (
            {
                "OPENLINEAGE__TRANSPORT__URL": "http://marquez",
                "OPENLINEAGE__TRANSPORT__AUTH": '{"type": "api_key", "apiKey": "k"}',
            },
            {},
            "OPENLINEAGE__TRANSPORT__URL=http://marquez",
            "https://",
        ),
        ({}, SQLITE, "dagster.yaml keeps Dagster's runs in SQLite", "storage.postgres"),
        ({}, CUSTOM, "dagster.yaml sends PostgreSQL's password without TLS", "sslmode: require"),
        ({}, LOGS, "logs of runs without TLS to http://minio:9000", "https://"),
        (REST, {}, "TIDEMARK_CATALOG_URI=http://rest:8181", "https://"),
        ({"AWS_ENDPOINT_URL": "http://minio:9000"}, {}, "AWS_ENDPOINT_URL=http://minio:9000", "https://"),
        (KAFKA, {}, "TIDEMARK_KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT", "SASL_SSL"),
        ({}, {"storage": {"sqlite": {"base_dir": "/x"}}}, "dagster.yaml keeps Dagster's runs in SQLite", "postgres"),
        ({}, {"run_monitoring": {"enabled": False}}, "dagster.yaml has no run monitoring", "enabled: true"),
        ({}, LAPTOP, "dagster.yaml names the laptop's run launcher", "remove run_launcher"),
        ({}, QUEUED, "run_coordinator.config.max_concurrent_runs", "concurrency.runs.max_concurrent_runs"),
        ({}, {"run_queue": {"max_concurrent_runs": 3}}, "run_queue.max_concurrent_runs", "concurrency.runs."),
        ({}, PLAIN, "dagster.yaml sends PostgreSQL's password without TLS", "sslmode: require"),
        ({}, APART, "dagster.yaml sends PostgreSQL's password without TLS", "sslmode: require"),
        ({}, URL, "dagster.yaml sends PostgreSQL's password without TLS", "sslmode: require"),
        ({}, "a: [", "dagster.yaml is not YAML", "correct it"),
        ({}, "- a", "dagster.yaml holds no mapping", "the page Production"),
        ({"DAGSTER_HOME": "home"}, {}, "DAGSTER_HOME=home is a relative path", "absolute path"),
        ({"DAGSTER_HOME": "/nowhere"}, {}, "DAGSTER_HOME=/nowhere", "the page Production"),
        ({"TIDEMARK_ALLOW_WITHOUT_TLS": "KAFKA"}, {}, "TIDEMARK_ALLOW_WITHOUT_TLS=KAFKA", "AWS_ENDPOINT_URL"),
    ],
)
def test_a_line_names_the_variable_and_the_remedy(
    arrangement: Any, variables: dict[str, str], instance: Any, named: str, remedy: str
) -> None:
    [line] = refusals(arrangement(variables, instance))
    assert named in line and remedy in line.partition(named)[2] and "\n" not in line and "password=p" not in line
    with pytest.raises(SettingsError, match="TIDEMARK_ENVIRONMENT=production: ") as refused:
        load_settings()
    assert line in str(refused.value)


@pytest.mark.parametrize("name", sorted({rule.name for rule in RULES if rule.about_tls}))
def test_a_connection_without_tls_is_allowed_by_its_name_alone(arrangement: Any, name: str) -> None:
    plain = KAFKA | {
        "OPENLINEAGE_URL": "http://marquez:5000",
        "OPENLINEAGE_API_KEY": "k",
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "TIDEMARK_CATALOG_URI": LAKE,
        "TIDEMARK_CATALOG__S3__ENDPOINT": "http://minio:9000",
    }
    before = refusals(arrangement(plain, PLAIN))
    after = refusals(arrangement(plain | {"TIDEMARK_ALLOW_WITHOUT_TLS": name}, PLAIN))
    [gone] = [line for line in before if line not in after]
    assert len(before) == 6 and gone.endswith(f"or set TIDEMARK_ALLOW_WITHOUT_TLS={name}")


def test_values_of_the_file_may_come_from_the_environment(arrangement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = arrangement({}, {"run_monitoring": {"enabled": {"env": "MONITOR"}}})
    assert len(refusals(settings)) == 1
    monkeypatch.setenv("MONITOR", "true")
    assert refusals(settings) == []


def test_the_remedies_are_accepted_themselves(arrangement: Any) -> None:
    [line] = refusals(arrangement({"TIDEMARK_CATALOG_URI": ""}))
    [uri] = re.findall(r"jdbc:postgresql:\S+?(?=,)", line)
    assert refusals(arrangement({"TIDEMARK_CATALOG_URI": uri})) == []


def test_several_refusals_are_counted(arrangement: Any) -> None:
    arrangement({"SPARK_REMOTE": "", "TIDEMARK_WAREHOUSE": ""})
    with pytest.raises(SettingsError, match="and 1 more: `tidemark doctor` lists all"):
        load_settings()


@pytest.mark.parametrize("command", ["feed", "up"])
def test_the_commands_of_the_laptop_are_refused(arrangement: Any, command: str) -> None:
    arrangement({"SPARK_REMOTE": ""})
    done = CliRunner().invoke(app, [command])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"TIDEMARK_ENVIRONMENT=production: expected local, which `tidemark {command}` needs" in done.stderr


@pytest.mark.parametrize(
    ("command", "home"),
    [
        (["status"], "home"),
        (["status"], "dagster.yaml"),
        (["plan"], "/nowhere"),
        (["plan", "--save", "state.json"], "/nowhere"),
        (["quarantine"], "/nowhere"),
    ],
)
def test_commands_name_a_home_of_dagster_that_is_no_folder(
    command: list[str], home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text("{}")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / home) if home == "dagster.yaml" else home)
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path))
    done = CliRunner().invoke(app, command)
    code = 1 if command[0] == "plan" else 2  # 2 says that a plan has work
    assert (done.exit_code, done.stderr.count("\n")) == (code, 1), done.output
    assert "expected the absolute path of an existing folder" in done.stderr and f"{home}: " in done.stderr


CONFLICT = {"concurrency": {"runs": {"max_concurrent_runs": 3}}, "run_queue": {"max_concurrent_runs": 3}}
DRIVER = {"storage": {"postgres": {"postgres_url": "postgresql://u@127.0.0.1:1/d"}}}


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        (CONFLICT, "incompatible with the `concurrency > runs` config; compare it with the page Production"),
        (DRIVER, "package dagster_postgres, which is not installed: pip install 'dagster-tidemark[production]'"),
    ],
)
def test_status_names_what_is_wrong_with_the_instance_in_one_line(
    instance: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(instance))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "dagster_postgres"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    done = CliRunner().invoke(app, ["status"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert said in done.stderr
