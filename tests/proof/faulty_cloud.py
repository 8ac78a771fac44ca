"""The local cloud with faults of the service itself, which `PUT /_mode` switches on: S3 slow or refusing, keys expired.

The body of the request is the mode; an empty body ends it. Does not belong here: faults of single objects
(`tests.tidemark.storage_faults`).
"""

import json
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from dagster_tidemark.local.cloud.server import make_cloud
from dagster_tidemark.settings import load_settings

Mode = Literal["", "slow", "errors", "expired"]
MODES = "/_mode"
SLOW_SECONDS = 2.0
SHARE_OF_ERRORS = 0.5


class Faulted:
    """A WSGI application around another. `slow` and `errors` concern S3; `expired` concerns SQS, too."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._mode = ""
        self._dice = random.Random(0)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == MODES:
            self._mode = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0)).decode()
            start_response("200 OK", [("Content-Length", "0")])
            return [b""]
        is_sqs = environ.get("HTTP_X_AMZ_TARGET", "").startswith("AmazonSQS")
        if self._mode == "expired":
            return _refused(environ, start_response, "403 Forbidden" if is_sqs else "400 Bad Request", "ExpiredToken")
        if not is_sqs and self._mode == "slow":
            time.sleep(SLOW_SECONDS)
        if not is_sqs and self._mode == "errors" and self._dice.random() < SHARE_OF_ERRORS:
            return _refused(environ, start_response, "503 Slow Down", "SlowDown")
        return self._application(environ, start_response)


def _refused(environ: dict[str, Any], start_response: Callable[..., Any], status: str, code: str) -> Iterable[bytes]:
    # The body of the request is read, or the client finds a broken connection.
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if environ.get("HTTP_X_AMZ_TARGET"):
        kind, body = "application/x-amz-json-1.0", json.dumps({"__type": code, "message": "a fault of the proof"})
    else:
        kind = "application/xml"
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>a fault of the proof</Message></Error>'
    sent = b"" if environ["REQUEST_METHOD"] == "HEAD" else body.encode()
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(sent)))])
    return [sent]


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_cloud(load_settings())
    server.app = Faulted(server.app)
    server.serve_forever()


if __name__ == "__main__":
    main()
