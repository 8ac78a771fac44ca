"""Faults of storage, made at the server: what a client asks for is refused or cut off, for whom and when is said.

Belongs here: the layer in front of the local cloud, and how a test switches faults on. `PUT /_faults` takes the rules
as a JSON list; an empty one ends them.
"""

import json
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

WORKERS = "aws-sdk-cpp"
"""In the user agent of Spark's workers, which read files with Arrow."""

_STATUS = {403: "403 Forbidden", 404: "404 Not Found", 500: "500 Internal Server Error", 503: "503 Slow Down"}


@dataclass(frozen=True)
class Fault:
    """A rule: which requests go wrong, and how.

    Args:
        agent: Of clients whose user agent holds this: `WORKERS` or `Boto3`, ourselves.
        method: GET or HEAD; a GET of the bucket itself is a LIST.
        below: Of keys that begin with this, or lists below it.
        name: Of keys that end with this.
        lists: LIST requests, not single objects.
        status: The answer's status; 200 cuts the body in half.
        code: S3's name of the error.
        skip: So many requests that match go well first.
        times: So many go wrong then.
    """

    agent: str = ""
    method: str = "GET"
    below: str = ""
    name: str = ""
    lists: bool = False
    status: int = 403
    code: str = "ExpiredToken"
    skip: int = 0
    times: int = 1_000_000


class Faulty:
    """A WSGI application around another."""

    def __init__(self, application: Callable[..., Iterable[bytes]], bucket: str) -> None:
        self._application = application
        self._bucket = f"/{bucket}"
        self._rules: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/_faults":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            with self._lock:
                self._rules = json.loads(body)
            start_response("200 OK", [("Content-Length", "0")])
            return [b""]
        rule = self._rule_for(environ)
        if rule is None:
            return self._application(environ, start_response)
        if rule["status"] != 200:
            return _refusal(rule, environ["REQUEST_METHOD"], start_response)
        return self._cut(environ, start_response)

    def _rule_for(self, environ: dict[str, Any]) -> dict[str, Any] | None:
        path, query = environ["PATH_INFO"], unquote(environ.get("QUERY_STRING", ""))
        is_list = path.rstrip("/") == self._bucket
        name = query.partition("prefix=")[2] if is_list else unquote(path.removeprefix(f"{self._bucket}/"))
        with self._lock:
            for rule in self._rules:
                matches = (
                    rule["agent"] in environ.get("HTTP_USER_AGENT", "")
                    and rule["method"] == environ["REQUEST_METHOD"]
                    and rule["lists"] == is_list
                    and path.startswith(self._bucket)
                    and name.startswith(rule["below"])
                    and (is_list or name.endswith(rule["name"]))
                )
                if not matches:
                    continue
                if rule["skip"]:
                    rule["skip"] -= 1
                elif rule["times"]:
                    rule["times"] -= 1
                    return rule
        return None

    def _cut(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """The answer with its own length and half of its body: the connection ends too early."""
        body = b"".join(self._application(environ, start_response))
        return [body[: len(body) // 2]]


def _refusal(rule: dict[str, Any], method: str, start_response: Callable[..., Any]) -> Iterable[bytes]:
    words = f"<Error><Code>{rule['code']}</Code><Message>a fault of the test</Message></Error>"
    body = b"" if method == "HEAD" else f'<?xml version="1.0" encoding="UTF-8"?>{words}'.encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start_response(_STATUS[rule["status"]], headers)
    return [body]


@contextmanager
def faults(endpoint: str, *rules: Fault) -> Iterator[None]:
    """Have these faults at the cloud of an endpoint."""
    _set(endpoint, rules)
    try:
        yield
    finally:
        _set(endpoint, ())


def _set(endpoint: str, rules: Iterable[Fault]) -> None:
    body = json.dumps([asdict(rule) for rule in rules]).encode()
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/_faults", data=body, method="PUT")).close()
