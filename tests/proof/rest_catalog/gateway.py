"""A gateway in front of a REST catalog and of its store, which issues and checks what real services issue and check.

In front of the catalog: OAuth2 tokens that end after some seconds, and storage credentials for each loaded table, with
the endpoint that renews them (Iceberg's REST specification). In front of the store: requests need a session token of
the gateway that has not ended; others are refused as S3 refuses them. Signatures are not checked.

Does not belong here: the catalog and the store themselves (`server`, and the local cloud).
"""

import base64
import http.client
import json
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

CLIENT, SECRET = "tidemark", "of-the-proof"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"

_TABLE = re.compile(r"/v1/(?:.+/)?namespaces/([^/]+)/tables(?:/([^/?]+))?(/credentials)?(?:\?.*)?")
_KEY = re.compile(r"Credential=([^/]+)/")
_NOT_PASSED_ON = {"accept-encoding", "connection", "transfer-encoding", "keep-alive", "expect"}


class Issued:
    """Secrets that end after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends: dict[str, float] = {}

    def new(self) -> tuple[str, float]:
        """Return a new secret and its end (Unix seconds)."""
        name = secrets.token_hex(16)
        self._ends[name] = time.time() + self.seconds
        return name, self._ends[name]

    def is_valid(self, name: str) -> bool:
        return self._ends.get(name, 0.0) > time.time()


class Gateway:
    """Tokens and credentials, and the numbers of those issued and refused.

    Args:
        catalog_port: Port of the catalog on this host.
        store_port: Port of the store on this host.
        seconds: Lifetime of each token and of each credential.
    """

    def __init__(self, catalog_port: int, store_port: int, seconds: float) -> None:
        self.tokens, self.credentials = Issued(seconds), Issued(seconds)
        self.counts: Counter[str] = Counter()
        self._catalog = _serve(self, _CatalogHandler, catalog_port)
        self._store = _serve(self, _StoreHandler, store_port)

    @property
    def uri(self) -> str:
        """Address of the catalog for clients."""
        return f"http://127.0.0.1:{self._catalog.server_port}"

    @property
    def store_uri(self) -> str:
        """Address of the store for clients."""
        return f"http://127.0.0.1:{self._store.server_port}"

    def storage_config(self, namespace: str, table: str) -> dict[str, str]:
        """Return new storage credentials of a table, by Iceberg's names."""
        token, ends_at = self.credentials.new()
        self.counts["credentials issued"] += 1
        return {
            "s3.access-key-id": f"ASIA{token[:12].upper()}",
            "s3.secret-access-key": token[::-1],
            "s3.session-token": token,
            "s3.session-token-expires-at-ms": str(int(ends_at * 1000)),
            "s3.endpoint": self.store_uri,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
            "client.refresh-credentials-endpoint": f"v1/namespaces/{namespace}/tables/{table}/credentials",
        }

    def stop(self) -> None:
        for server in (self._catalog, self._store):
            server.shutdown()
            server.server_close()


@contextmanager
def gateway(catalog_port: int, store_port: int, seconds: float) -> Iterator[Gateway]:
    """Run a gateway on free ports."""
    running = Gateway(catalog_port, store_port, seconds)
    try:
        yield running
    finally:
        running.stop()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gate: Gateway
    target: int

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the target's answer: status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=120)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_PASSED_ON | {"content-length"}}
        if body or self.command in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        try:
            connection.request(self.command, self.path, body=body or None, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"  # its length is that of the object
        for name, value in headers:
            if name.lower() not in _NOT_PASSED_ON and (is_head or name.lower() != "content-length"):
                self.send_header(name, value)
        if not is_head and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def answer_json(self, status: int, said: Any) -> None:
        self.answer(status, [("Content-Type", "application/json")], json.dumps(said).encode())

    def handle_one(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.handle_one()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET


class _CatalogHandler(_Handler):
    def handle_one(self) -> None:
        body = self.body()
        if self.path.partition("?")[0] == "/v1/oauth/tokens":
            self._issue_token(parse_qs(body.decode()))
        elif not self.gate.tokens.is_valid(self._bearer()):
            self.gate.counts["tokens refused"] += 1
            said = {"message": "the token has ended", "type": "NotAuthorizedException", "code": 401}
            self.answer_json(401, {"error": said})
        else:
            self._pass_on(body)

    def _bearer(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _issue_token(self, asked: dict[str, list[str]]) -> None:
        given = [asked.get(name, [""])[0] for name in ("client_id", "client_secret")]
        if (basic := self.headers.get("Authorization", "")).startswith("Basic "):
            given = base64.b64decode(basic.removeprefix("Basic ")).decode().split(":")
        is_exchange = asked.get("grant_type") == [EXCHANGE] and self.gate.tokens.is_valid(
            asked.get("subject_token", [""])[0]
        )
        if given != [CLIENT, SECRET] and not is_exchange:
            self.gate.counts["logins refused"] += 1
            self.answer_json(401, {"error": "invalid_client", "error_description": "unknown client or ended token"})
            return
        self.gate.counts["tokens issued"] += 1
        said: dict[str, Any] = {"access_token": self.gate.tokens.new()[0], "token_type": "bearer"}
        said["expires_in"] = int(self.gate.tokens.seconds)
        said["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
        self.answer_json(200, said)

    def _pass_on(self, body: bytes) -> None:
        found = _TABLE.fullmatch(self.path)
        if found and found[3]:
            config = self.gate.storage_config(found[1], found[2])
            self.gate.counts["credentials renewed by the client"] += 1
            self.answer_json(200, {"storage-credentials": [{"prefix": "s3://", "config": config}]})
            return
        status, headers, answer = self.passed_on(body)
        loads = found and (self.command == "GET" if found[2] else self.command == "POST")
        if status == 200 and found and loads:
            said = json.loads(answer)
            name = found[2] or json.loads(body)["name"]
            said["config"] = said.get("config", {}) | self.gate.storage_config(found[1], name)
            answer = json.dumps(said).encode()
            headers = [(k, v) for k, v in headers if k.lower() != "content-encoding"]
        self.answer(status, headers, answer)


class _StoreHandler(_Handler):
    def handle_one(self) -> None:
        body = self.body()
        token = self.headers.get("x-amz-security-token", "")
        if self.gate.credentials.is_valid(token):
            self.gate.counts["requests to the store"] += 1
            self.answer(*self.passed_on(body))
            return
        known = _KEY.search(self.headers.get("Authorization", ""))
        is_ended = bool(known and known[1].startswith("ASIA"))
        self.gate.counts["ended credentials refused" if is_ended else "other keys refused"] += 1
        code = "ExpiredToken" if is_ended else "InvalidAccessKeyId"
        said = f"<Error><Code>{code}</Code><Message>The provided token has expired.</Message></Error>"
        self.answer(400 if is_ended else 403, [("Content-Type", "application/xml")], said.encode())


def _serve(gate: Gateway, handler: type[_Handler], target: int) -> ThreadingHTTPServer:
    bound: Any = type(handler.__name__, (handler,), {"gate": gate, "target": target})
    server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
