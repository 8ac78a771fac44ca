"""Probes of catalogs: a REST server may answer without its store, a default catalog may not exist yet."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dagster_tidemark.sensors import reachable
from dagster_tidemark.settings import Settings


@contextmanager
def rest_catalog(status: int | None, asked: list[str] | None = None) -> Iterator[str]:
    """Serve a configuration, and answer all requests for namespaces with a status. None: they get no answer.

    Args:
        asked: Gets the path of each request for a namespace.
    """
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/v1/config"):
                endpoints = ["HEAD /v1/{prefix}/namespaces/{namespace}"]
                self._answer(200, {"defaults": {}, "overrides": {}, "endpoints": endpoints})
                return
            if asked is not None:
                asked.append(self.path)
            if status is None:
                over.wait(60)
            else:
                self._answer(status, {"error": {"message": "by the test", "type": "Error", "code": status}})

        do_HEAD = do_GET

        def _answer(self, status: int, said: Any) -> None:
            body = json.dumps(said).encode() if self.command == "GET" else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def catalog_fault(folder: Path, uri: str) -> str:
    settings = Settings(state_dir=folder, catalog={"type": "rest"}, catalog_uri=uri, warehouse=str(folder))
    return reachable._catalog(settings)


@pytest.mark.parametrize("status", [204, 404, 401, 403])
def test_rest_catalog_that_answers_is_reachable(tmp_path: Path, status: int) -> None:
    with rest_catalog(status) as uri:
        assert catalog_fault(tmp_path, uri) == ""


@pytest.mark.parametrize("status", [500, 503])
def test_rest_catalog_whose_store_fails_is_unreachable(tmp_path: Path, status: int) -> None:
    with rest_catalog(status) as uri:
        assert catalog_fault(tmp_path, uri).startswith("unreachable: ")


def test_rest_catalog_whose_store_hangs_is_unreachable_and_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachable, "SECONDS", 0.3)
    asked: list[str] = []
    with rest_catalog(None, asked) as uri:
        faults = [catalog_fault(tmp_path, uri) for _ in range(3)]
    assert all(fault.startswith("unreachable: no answer for ") for fault in faults), faults
    assert asked == ["/v1/namespaces/ops"]


def test_default_catalog_is_reachable_before_the_first_run_of_a_project(tmp_path: Path) -> None:
    assert reachable._catalog(Settings(state_dir=tmp_path / "new" / ".tidemark")) == ""


def test_catalog_file_in_a_missing_folder_is_unreachable(tmp_path: Path) -> None:
    uri, warehouse = f"jdbc:sqlite:{tmp_path}/mistyped/catalog.db", str(tmp_path)
    settings = Settings(state_dir=tmp_path / ".tidemark", catalog_uri=uri, warehouse=warehouse)
    assert reachable._catalog(settings) == "unreachable: unable to open database file"
