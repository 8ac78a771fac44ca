"""`tidemark env`: the environment from which any other process reads the same settings."""

import json
import os
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from unittest import mock

import pytest

from dagster_tidemark.catalog_options import sqlalchemy_uri
from dagster_tidemark.local.platform.instance_lock import (
    AlreadyRunning,
    publish_environment,
    running,
    take_environment,
)
from dagster_tidemark.local.platform.whole_platform import platform_environment
from dagster_tidemark.settings import Settings
from tests.checkout import CHECKOUT
from tests.conftest import make_settings
from tests.warm_python import run_python

NAMES = {
    *(f"TIDEMARK_{name}" for name in ("ENVIRONMENT", "STATE_DIR", "JARS_DIR", "LANDING_BUCKET", "EVENTS_QUEUE")),
    *(f"TIDEMARK_{name}" for name in ("CATALOG_URI", "WAREHOUSE", "START_DATE", "CONTRACT_SCALE")),
    *(f"TIDEMARK_{name}" for name in ("SPARK_MEMORY", "CODE_LOCATION", "PROJECT", "UI_URL", "LOG_FORMAT")),
    *(f"TIDEMARK_KAFKA_{name}" for name in ("SECURITY_PROTOCOL", "SASL_MECHANISM")),
    *(f"TIDEMARK_PORT_{name}" for name in ("UI", "CLOUD", "SPARK", "KAFKA")),
    *("SPARK_REMOTE", "DAGSTER_HOME", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    *("AWS_REGION", "AWS_DEFAULT_REGION"),
    *(f"PYICEBERG_CATALOG__LAKE__{name}" for name in ("TYPE", "URI", "WAREHOUSE")),
}


def _pipelines(*arguments: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if name not in NAMES}
    inherited["TIDEMARK_PROJECT"] = str(CHECKOUT)
    command = ["-m", "dagster_tidemark.cli.app", *arguments]
    return run_python(command, cwd=cwd, env=inherited | environment, timeout=60)


def test_env_command_without_a_platform_exits_with_code_3(tmp_path: Path) -> None:
    result = _pipelines("env", cwd=tmp_path, TIDEMARK_STATE_DIR=str(tmp_path))
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.count("\n") == 1 and "tidemark up" in result.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDEMARK_PORT_UI", "80000"),
        ("TIDEMARK_START_DATE", "2026-09-29"),
        ("TIDEMARK_ENVIRONMENT", "staging"),
        ("TIDEMARK_CONTRACT_SCALE", "0"),
        ("TIDEMARK_START_DATE", "2150-01-05"),
        ("TIDEMARK_LANDING_BUCKET", "My Bucket"),
        ("TIDEMARK_PORT_CLOUD", "3000"),
        ("TIDEMARK_PORT_KAFKA", "3001"),
        ("TIDEMARK_KAFKA_SECURITY_PROTOCOL", "TLS"),
        ("TIDEMARK_KAFKA_SECURITY_PROTOCOL", "SASL_SSL"),
    ],
)
def test_invalid_setting_exits_with_code_2_and_is_named(tmp_path: Path, variable: str, value: str) -> None:
    result = _pipelines("up", cwd=tmp_path, **{"TIDEMARK_STATE_DIR": str(tmp_path), variable: value})
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and f"{variable}={value}" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_misspelled_setting_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    result = _pipelines("up", cwd=tmp_path, TIDEMARK_STATE_DIR=str(tmp_path), TIDEMARK_START_DAY="2026-09-28")
    assert result.returncode == 2
    said = "TIDEMARK_START_DAY: there is no such setting; did you mean TIDEMARK_START_DATE?"
    assert result.stderr == f"tidemark: {said}\n"
    assert list(tmp_path.iterdir()) == []


def test_env_command_output_is_read_back_by_a_shell_unchanged(tmp_path: Path) -> None:
    state = tmp_path / "it's $HOME `x` 50 %"
    settings = make_settings(state).for_platform()
    with running(settings):
        publish_environment(settings, settings.exports())
        result = _pipelines("env", cwd=tmp_path, TIDEMARK_STATE_DIR=str(state))
        as_json = _pipelines("env", "--json", cwd=tmp_path, TIDEMARK_STATE_DIR=str(state))
    assert result.returncode == 0, result.stderr
    assert all(line.startswith("export ") and "='" in line for line in result.stdout.splitlines())
    script = result.stdout + f"{shlex.quote(sys.executable)} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    seen = json.loads(subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout)
    expected = settings.exports()
    assert {name: seen[name] for name in expected} == expected == json.loads(as_json.stdout)
    assert _pipelines("env", cwd=tmp_path, TIDEMARK_STATE_DIR=str(state)).returncode == 3


def test_exported_settings_are_read_back_unchanged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.tidemark]\npackage = "pipelines"\n')
    first = Settings(state_dir=Path("state"), warehouse="file:house", start_date=date(2026, 10, 5)).for_platform()
    exports = first.exports()
    assert set(exports) == NAMES
    assert exports["TIDEMARK_WAREHOUSE"] == exports["PYICEBERG_CATALOG__LAKE__WAREHOUSE"] == str(tmp_path / "house")
    assert exports["PYICEBERG_CATALOG__LAKE__URI"] == f"sqlite:///{tmp_path}/state/catalog.db?timeout=30"
    monkeypatch.chdir("/")
    for name, value in exports.items():
        monkeypatch.setenv(name, value)
    assert Settings().for_platform().exports() == exports


def test_local_platform_does_not_use_the_developers_aws_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "my secret")
    monkeypatch.setenv("AWS_PROFILE", "work")
    environment = platform_environment(Settings(state_dir=tmp_path).for_platform())
    assert environment["AWS_ACCESS_KEY_ID"] == environment["AWS_SECRET_ACCESS_KEY"] == "tidemark"
    assert "AWS_PROFILE" not in environment
    production = Settings(state_dir=tmp_path, environment="production")
    assert (production.aws_endpoint_url, production.aws_access_key_id) == (None, "mine")


def test_external_spark_server_is_not_managed_by_the_platform(tmp_path: Path) -> None:
    assert Settings(state_dir=tmp_path).for_platform().own_spark
    other = Settings(state_dir=tmp_path, spark_remote="sc://cluster:15002").for_platform()
    assert (other.own_spark, other.spark_remote) == (False, "sc://cluster:15002")


@pytest.mark.parametrize(
    ("jdbc", "expected"),
    [
        ("jdbc:sqlite:/a b/c.db", "sqlite:////a b/c.db?timeout=30"),
        ("jdbc:sqlite:/c.db?busy_timeout=5000", "sqlite:////c.db?timeout=5"),
        ("jdbc:postgresql://host:5432/lake", "postgresql+psycopg2://host:5432/lake"),
        (
            "jdbc:postgresql://host/lake?user=me&password=a%40b&sslmode=require",
            "postgresql+psycopg2://me:a%40b@host/lake?sslmode=require",
        ),
    ],
)
def test_pyiceberg_uses_the_same_catalog_as_spark(jdbc: str, expected: str) -> None:
    assert sqlalchemy_uri(jdbc) == expected


def test_two_platforms_cannot_share_a_state_folder(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with running(settings), pytest.raises(AlreadyRunning), running(settings):
        pass
    with running(settings):
        pass


def test_command_takes_the_settings_of_the_running_platform(tmp_path: Path) -> None:
    shell = make_settings(tmp_path)
    platform = shell.for_platform()
    assert platform.contract_scale != shell.contract_scale
    with mock.patch.dict(os.environ):
        with running(platform):
            publish_environment(platform, platform.exports())
            assert take_environment(shell).exports() == platform.exports()
        assert take_environment(shell) is shell, "without a platform, DAGSTER_HOME names the instance"


def test_kafka_is_off_without_a_configured_broker(tmp_path: Path) -> None:
    plain = Settings(state_dir=tmp_path)
    assert (plain.kafka_options(), plain.for_platform().kafka_bootstrap_servers) == ({}, None)
    ours = plain.for_platform(with_kafka=True)
    assert ours.own_kafka
    assert ours.kafka_options() == {"bootstrap.servers": "127.0.0.1:9092", "security.protocol": "PLAINTEXT"}
    assert ours.exports()["TIDEMARK_KAFKA_BOOTSTRAP_SERVERS"] == "127.0.0.1:9092"


def test_external_kafka_is_not_managed_and_its_password_is_hidden(tmp_path: Path) -> None:
    theirs = Settings(
        state_dir=tmp_path,
        kafka_bootstrap_servers="kafka:9093",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_username="me",
        kafka_password="my secret",
        kafka_ca_location=tmp_path / "ca.pem",
    )
    assert theirs.for_platform(with_kafka=True).kafka_options() == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "my secret",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    assert not theirs.for_platform(with_kafka=True).own_kafka
    assert "my secret" not in repr(theirs)
