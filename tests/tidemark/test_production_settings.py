"""Settings and a dagster.yaml that production refuses, each by a line that names it and the remedy."""

from pathlib import Path

import pytest

from dagster_tidemark.settings import SettingsError, load_settings

GOOD = {
    "TIDEMARK_ENVIRONMENT": "production",
    "TIDEMARK_CATALOG_URI": "jdbc:postgresql://db/lake?user=me&password=secret",
    "TIDEMARK_WAREHOUSE": "s3://lake/warehouse",
    "SPARK_REMOTE": "sc://spark:15002/;token=secret;use_ssl=true",
}
DAGSTER = """
storage: {postgres: {postgres_db: {hostname: db, username: me, password: {env: PASSWORD}, db_name: dagster}}}
run_monitoring: {enabled: true}
concurrency: {runs: {max_concurrent_runs: 10}}
"""


@pytest.fixture(autouse=True)
def production(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A good environment of production, with a Dagster home."""
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text(DAGSTER)
    return tmp_path


def test_complete_production_settings_are_accepted(production: Path) -> None:
    assert load_settings().environment == "production"
    (production / "dagster.yaml").unlink()  # a code server has none
    assert load_settings().environment == "production"


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"TIDEMARK_CATALOG_URI": ""}, "TIDEMARK_CATALOG_URI: the catalog is a SQLite file"),
        ({"TIDEMARK_CATALOG_URI": "jdbc:sqlite:/lake.db"}, "name PostgreSQL"),
        ({"TIDEMARK_WAREHOUSE": ""}, "TIDEMARK_WAREHOUSE=.*set it to s3://bucket/prefix"),
        ({"TIDEMARK_WAREHOUSE": "/lake"}, "TIDEMARK_WAREHOUSE=/lake: tables are in a local folder"),
        ({"TIDEMARK_CONTRACT_SCALE": "0.05"}, "TIDEMARK_CONTRACT_SCALE=0.05: only laptops scale contracts; unset it"),
        ({"TIDEMARK_KILL_AT": "after_commit:1"}, "TIDEMARK_KILL_AT: only tests end processes"),
        ({"SPARK_REMOTE": "sc://spark:15002/;token=secret"}, "SPARK_REMOTE: its token is sent without TLS"),
        (
            {
                "TIDEMARK_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
                "TIDEMARK_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
                "TIDEMARK_KAFKA_USERNAME": "me",
                "TIDEMARK_KAFKA_PASSWORD": "secret",
            },
            "use SASL_SSL, or allow it by TIDEMARK_PLAINTEXT=kafka",
        ),
        (
            {"TIDEMARK_CATALOG_URI": "http://rest:8181", "TIDEMARK_CATALOG": '{"type": "rest", "token": "secret"}'},
            "TIDEMARK_CATALOG: its secret is sent without TLS",
        ),
        (
            {"TIDEMARK_CATALOG_URI": "jdbc:postgresql://db/lake?user=a&password=b&sslmode=disable"},
            "use sslmode=require",
        ),
        ({"TIDEMARK_PLAINTEXT": "kafka,s3"}, "TIDEMARK_PLAINTEXT: expected some of catalog, kafka, spark, found s3"),
    ],
)
def test_setting_for_a_laptop_is_refused_in_production(
    variables: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"TIDEMARK_ENVIRONMENT=production: .*{why}") as raised:
        load_settings()
    assert "secret" not in str(raised.value).replace("its secret", "")
    monkeypatch.setenv("TIDEMARK_ENVIRONMENT", "local")
    assert load_settings().environment == "local"


def test_connection_without_tls_can_be_allowed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002/;token=secret")
    monkeypatch.setenv("TIDEMARK_PLAINTEXT", "spark")
    assert load_settings().plaintext == "spark"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Dagster's storage is SQLite"),
        ("storage: {sqlite: {base_dir: /tmp}}\nrun_monitoring: {enabled: true}", "Dagster's storage is SQLite"),
        (DAGSTER.replace("enabled: true", "enabled: false"), "declare run_monitoring: enabled: true"),
        (DAGSTER + "run_launcher: {module: dagster_tidemark.local.dagster.launcher, class: X}", "is the laptop's"),
        (DAGSTER + "run_queue: {max_concurrent_runs: 5}", "run_queue conflicts with concurrency: runs"),
        ("a: [", "it cannot be read"),
    ],
)
def test_dagster_yaml_for_a_laptop_is_refused_in_production(production: Path, text: str, why: str) -> None:
    (production / "dagster.yaml").write_text(text)
    with pytest.raises(SettingsError, match=f"dagster.yaml: .*{why}"):
        load_settings()


def test_refusal_counts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CATALOG_URI", "")
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", "")
    with pytest.raises(SettingsError, match=r"\(and 1 more\)$"):
        load_settings()
