"""A schema registry on this machine, and just enough of Avro to read and write a toy's ping."""

import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, BinaryIO
from urllib.error import HTTPError
from urllib.request import urlopen

SCHEMA = {
    "type": "record",
    "name": "Ping",
    "fields": [
        {"name": "gadget", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "strength", "type": "double"},
    ],
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Registry(BaseHTTPRequestHandler):
    """Schema 7, by the registry's protocol."""

    def do_GET(self) -> None:
        is_known = self.path == "/schemas/ids/7"
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"schema": json.dumps(SCHEMA)} if is_known else {"error_code": 40403}).encode())

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@contextmanager
def registry() -> Iterator[str]:
    """Run a registry, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def written(gadget: str, at: datetime, strength: float, schema_id: int = 7) -> bytes:
    """A ping as a producer with the registry sends it."""
    name = gadget.encode()
    micros = (at - EPOCH) // timedelta(microseconds=1)
    return struct.pack(">bI", 0, schema_id) + _long(len(name)) + name + _long(micros) + struct.pack("<d", strength)


def schemaless_reader(body: BinaryIO, schema: Any) -> dict[str, Any]:
    """As `fastavro.schemaless_reader`, for the types of a ping."""
    read: dict[str, Any] = {}
    for field in schema["fields"]:
        match field["type"]:
            case "string":
                read[field["name"]] = body.read(_read_long(body)).decode()
            case "double":
                (read[field["name"]],) = struct.unpack("<d", body.read(8))
            case _:
                read[field["name"]] = EPOCH + timedelta(microseconds=_read_long(body))
    return read


class Deserializer:
    """Reads bodies with the schemas of a registry."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.schemas: dict[int, Any] = {}

    def __call__(self, body: bytes) -> dict[str, Any]:
        magic, schema_id = struct.unpack(">bI", body[:5])
        if magic != 0:
            raise ValueError("expected the number of a schema before the values")
        if schema_id not in self.schemas:
            try:
                with urlopen(f"{self.address}/schemas/ids/{schema_id}", timeout=5) as answer:
                    self.schemas[schema_id] = json.loads(json.load(answer)["schema"])
            except HTTPError as error:
                error.close()
                if error.code == 404:
                    raise ValueError(f"the registry has no schema {schema_id}") from None
                raise
        return schemaless_reader(io.BytesIO(body[5:]), self.schemas[schema_id])


def _long(value: int) -> bytes:
    zigzag, found = (value << 1) ^ (value >> 63), bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def _read_long(body: BinaryIO) -> int:
    zigzag = shift = 0
    while True:
        byte = body.read(1)[0]
        zigzag |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1)
