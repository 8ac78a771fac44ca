"""The local cloud, counting at the server what it hands out: `GET /_fetched` tells the bytes of object bodies.

It also has the faults that a test asks for (`storage_faults`).

A JSON object: the first folder of the keys in the landing bucket to the bytes that GET requests for them were answered
with, whoever asked (tests give each feed a first folder of its own).
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from dagster_tidemark.local.cloud.server import make_cloud
from dagster_tidemark.settings import load_settings
from tests.tidemark.storage_faults import Faulty


class Counting:
    """A WSGI application around another."""

    def __init__(self, application: Callable[..., Iterable[bytes]], bucket: str) -> None:
        self._application = application
        self._objects = f"/{bucket}/"
        self._fetched: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/_fetched":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._fetched).encode()]
        reply = self._application(environ, start_response)
        key = unquote(path.removeprefix(self._objects)) if path.startswith(self._objects) else ""
        return self._counted(key.partition("/")[0], reply) if environ["REQUEST_METHOD"] == "GET" and key else reply

    def _counted(self, folder: str, reply: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in reply:
            with self._lock:
                self._fetched[folder] += len(chunk)
            yield chunk


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    settings = load_settings()
    server = make_cloud(settings)
    server.app = Counting(Faulty(server.app, settings.landing_bucket), settings.landing_bucket)
    server.serve_forever()


if __name__ == "__main__":
    main()
