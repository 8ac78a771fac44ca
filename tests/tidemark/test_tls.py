"""TLS to PostgreSQL and to a Connect server, with a certificate made here. Kafka's is in `sources/test_kafka`."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from dagster_tidemark.doctor import arrangement, catalog
from dagster_tidemark.doctor.checks import Check, CheckOutcome, outcome
from tests.conftest import make_settings
from tests.tidemark.certificates import certificate
from tests.tidemark.postgres import has_postgres, postgres_server

PASSWORD = "hunter2hunter2"


@pytest.mark.skipif(not has_postgres(), reason="PostgreSQL is not on this machine")
def test_catalog_and_storage_on_postgresql_verify_the_certificate(tmp_path: Path) -> None:
    authority, other = certificate(tmp_path / "own"), certificate(tmp_path / "other")
    with postgres_server(PASSWORD, tmp_path / "own" / "server.pem") as login:
        at = f"127.0.0.1:{login['port']}/postgres"

        def checked(tls: str) -> list[CheckOutcome]:
            uri = f"jdbc:postgresql://{at}?user=tidemark&password={PASSWORD}&{tls}"
            settings = make_settings(tmp_path).model_copy(update={"catalog_uri": uri})
            url = f"postgresql://tidemark:{PASSWORD}@{at}?{tls}"
            return [
                outcome(Check("catalog", lambda: catalog.catalog(settings), "start it")),
                outcome(Check("dagster", lambda: arrangement.database(url), "start it")),
            ]

        verified = f"sslmode=verify-full&sslrootcert={authority}"
        assert [each.verdict for each in checked(verified)] == ["ok", "ok"], checked(verified)
        for tls in ("sslmode=disable", f"sslmode=verify-full&sslrootcert={other}"):
            found = checked(tls)
            assert [each.verdict for each in found] == ["failed", "failed"], found
            assert not [each for each in found if PASSWORD in each.found + each.remedy]


_PROBE = """
import sys
from dagster_tidemark.lakehouse.session import connect_fault
print(connect_fault(sys.argv[1], 3.0) or "answers")
"""


def test_a_connect_server_behind_tls_is_reached_with_its_authority_alone(tmp_path: Path) -> None:
    authority = certificate(tmp_path)
    pem = (tmp_path / "server.pem").read_bytes()
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, authority.read_bytes())]))
    server.start()

    def probed(remote: str, **environment: str) -> str:
        command = [sys.executable, "-c", _PROBE, remote]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.strip()

    try:
        remote = f"sc://127.0.0.1:{port}/;use_ssl=true;token={PASSWORD}"
        assert probed(remote, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(authority)) == "answers"
        for refused in (probed(remote), probed(f"sc://127.0.0.1:{port}")):
            assert refused.startswith("unreachable") and PASSWORD not in refused
    finally:
        server.stop(None)
