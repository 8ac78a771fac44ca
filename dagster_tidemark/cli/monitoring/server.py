"""HTTP server of `/metrics` and `/healthz`.

Belongs here: answers, and how old a figure may be. Does not belong here: the figures (`metric_families`) and the health
of parts (`health`). A scrape never waits longer than the limits of the looks.
"""

import json
import socket
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from dagster_tidemark.cli.monitoring.cached_look import CachedLook
from dagster_tidemark.cli.monitoring.health import is_healthy, parts
from dagster_tidemark.cli.monitoring.metric_families import Picture, families
from dagster_tidemark.cli.monitoring.platform_state import PlatformState, platform_state
from dagster_tidemark.cli.monitoring.table_figures import TableFigures, table_figures
from dagster_tidemark.errors import Transient
from dagster_tidemark.settings import Settings

PLATFORM_EVERY, PLATFORM_LIMIT = 5.0, 5.0
TABLES_EVERY, TABLES_LIMIT = 60.0, 1.0
"""Tables have their own look. It is slower, so a scrape does not wait for it: figures may be one look old."""
TABLES_HANG_AFTER = 120.0
"""A look at a thousand tables may take a minute. The sensor `contracts` finds a catalog that hangs much sooner."""
SHOWN_SECONDS = 60.0
"""Figures of an older look are not shown, because they would look like the present."""
_TABLES_SHOWN = TABLES_EVERY + 2 * TABLES_HANG_AFTER


class Monitor(Collector):
    """The looks at a deployment, and the answers made from them."""

    def __init__(
        self,
        platform: CachedLook[PlatformState],
        tables: CachedLook[dict[str, TableFigures | str]],
    ) -> None:
        self._platform, self._tables = platform, tables

    @classmethod
    def of(cls, settings: Settings) -> "Monitor":
        """Return the monitor of a deployment."""
        known: list[PlatformState] = []

        def _platform() -> PlatformState:
            known[:] = [platform_state(settings)]
            return known[0]

        def _tables() -> dict[str, TableFigures | str]:
            if not known:
                raise Transient("the tables are not known yet, because Dagster's storage could not be read")
            return table_figures(settings, known[0].tables)

        return cls(
            CachedLook(_platform, every=PLATFORM_EVERY, limit=PLATFORM_LIMIT),
            CachedLook(_tables, every=TABLES_EVERY, limit=TABLES_LIMIT, hangs_after=TABLES_HANG_AFTER),
        )

    def picture(self) -> Picture:
        """Return the present figures and health. This takes at most the sum of the limits."""
        platform = self._platform.result()
        tables = self._tables.result()
        now = time.time()
        return Picture(
            now=now,
            state=platform.fresh(now, SHOWN_SECONDS),
            tables=tables.fresh(now, _TABLES_SHOWN),
            parts=parts(platform, tables, now),
            looks={"platform": platform, "tables": tables},
        )

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of one scrape."""
        return families(self.picture())

    def health(self) -> tuple[bool, Mapping[str, Any]]:
        """Return True if each part is ok, and the answer of `/healthz`."""
        picture = self.picture()
        healthy = is_healthy(picture.parts)
        answer = {
            "healthy": healthy,
            "looked_at": picture.looks["platform"].at,
            "parts": [vars(part) for part in picture.parts],
        }
        return healthy, answer


class MetricsServer(ThreadingHTTPServer):
    """The server. Each request has its own thread."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], monitor: Monitor) -> None:
        self.monitor = monitor
        self.registry = CollectorRegistry()
        self.registry.register(monitor)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Answers)


class _Answers(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = 30

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/metrics":
            encode, kind = choose_encoder(self.headers.get("Accept") or "")
            self._send(200, kind, encode(self.server.registry))
        elif path == "/healthz":
            healthy, answer = self.server.monitor.health()
            self._send(200 if healthy else 503, "application/json", json.dumps(answer, indent=2).encode())
        else:
            self._send(404, "text/plain; charset=utf-8", b"expected /metrics or /healthz\n")

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no line for each request."""
