"""A receiver of OpenLineage's events: an HTTP server that keeps them, refuses them, or never answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """The server."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        self.answers = threading.Event()
        self.answers.set()
        super().__init__(("127.0.0.1", port), _Post)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def said(self) -> list[tuple[str, str]]:
        return [(event["job"]["name"], event["eventType"]) for event in self.events]


class _Post(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.answers.wait(60)
        self.server.events.append(body)
        self.server.paths.add(self.path)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """Serve until the block ends, on a free port or a given one."""
    with Receiver(port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.answers.set()
            server.shutdown()
