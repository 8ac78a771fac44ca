"""Local servers that speak the protocols of the channels: HTTP with answers to choose, and SMTP."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Post:
    """A request: its path, headers (lower case) and body."""

    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpServer:
    """A server that keeps requests, and answers with the next of `answers`, else with `usual`."""

    url: str = ""
    posts: list[Post] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    usual: tuple[int, dict[str, str], str] = (200, {}, "")


@contextmanager
def http_server(usual: tuple[int, dict[str, str], str]) -> Iterator[HttpServer]:
    """Serve on a free port of 127.0.0.1."""
    served = HttpServer(usual=usual)

    class _Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            served.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers, text = served.answers.pop(0) if served.answers else served.usual
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None: ...

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), _Handler)) as port:
        served.url = f"http://127.0.0.1:{port}"
        yield served


@dataclass
class SmtpServer:
    """A server that keeps mails.

    Args:
        refuse: The answer that refuses a command (`RCPT`, `DATA`, `AUTH`).
        refuse_to: The answer that refuses a receiver.
        greeting: The first line of a session.
    """

    port: int = 0
    mails: list[str] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    refuse_to: dict[str, str] = field(default_factory=dict)
    logins: list[str] = field(default_factory=list)
    greeting: str = "220 test ESMTP"


@contextmanager
def smtp_server() -> Iterator[SmtpServer]:
    """Serve ESMTP with AUTH PLAIN on a free port of 127.0.0.1."""
    served = SmtpServer()

    class _Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say(served.greeting)
            while line := self.rfile.readline().decode().strip():
                word = line.split()[0].upper()
                receiver = line.partition("<")[2].partition(">")[0] if word == "RCPT" else ""
                if receiver in served.refuse_to:
                    self._say(served.refuse_to[receiver])
                elif word in served.refuse:
                    self._say(served.refuse[word])
                elif word == "EHLO":
                    self._say("250-test\r\n250 AUTH PLAIN")
                elif word == "AUTH":
                    served.logins.append(line)
                    self._say("235 ok")
                elif word == "DATA":
                    self._say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        lines.append(text)
                    served.mails.append("\n".join(lines))
                    self._say("250 taken")
                elif word == "QUIT":
                    self._say("221 bye")
                    return
                else:
                    self._say("250 ok")

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    listening = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler)
    listening.daemon_threads = True
    with _serving(listening) as served.port:
        yield served


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    """Serve in a thread; yield the port."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
