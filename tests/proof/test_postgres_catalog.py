"""A catalog in PostgreSQL that asks for its password: Spark knows it, and no client of its server can ask for it."""

from pathlib import Path
from urllib.parse import quote

import pytest

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.read import read
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.local.spark.jars import fetch_jars
from dagster_tidemark.settings import Settings
from tests.conftest import end_service, make_settings, start_service
from tests.tidemark.postgres import postgres_server

PASSWORD = "a:b\\c d%&+?"
TABLE = Table("test.things", {"id": "bigint"}, ("id",))


def _settings(state: Path, port: int, password: str) -> Settings:
    state.mkdir()
    uri = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=tidemark&password={quote(password)}"
    settings = make_settings(state).model_copy(update={"catalog_uri": uri})
    Path(settings.warehouse).mkdir()
    fetch_jars(settings)
    return settings


def test_postgres_catalog_is_used_without_exposing_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server(PASSWORD) as login:
        wrong = _settings(tmp_path / "wrong", login["port"], "another")
        right = _settings(tmp_path / "right", login["port"], PASSWORD)
        for settings in (wrong, right):
            log = settings.state_dir / "spark.log"
            server = start_service(
                "dagster_tidemark.local.spark.server", settings, settings.port_spark, log, seconds=120
            )
            monkeypatch.setenv("SPARK_REMOTE", str(settings.spark_remote))
            session = new_session(settings)
            try:
                if settings is wrong:
                    with pytest.raises(Exception, match=r"password authentication failed|Failed to connect"):
                        catalog.ensure(session, TABLE)
                    continue
                catalog.ensure(session, TABLE)
                write.overwrite(session.range(3).toDF("id"), TABLE, None, run_id="1")
                assert read(session, TABLE).count() == 3
                told = "\n".join(f"{row.key}={row.value}" for row in session.sql("SET -v").collect())
                told += "\n".join(f"{key}={value}" for key, value in session.sql("SET").collect())
                assert "jdbc:postgresql" in told, "the catalog's place is told"
                assert not [form for form in (PASSWORD, quote(PASSWORD), "a%3Ab") if form in told]
            finally:
                session.stop()
                end_service(server)
        assert PASSWORD not in (right.state_dir / "spark.log").read_text(errors="replace")
