"""What the resources make their clients with: everything they were configured with."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.exceptions import ClientError

from dagster_tidemark.resources.aws import QUEUE_TIMEOUTS, ImpatientS3, QueueResource, _client

KEYS = {"region_name": "us-east-1", "aws_access_key_id": "mine", "aws_secret_access_key": "s3cret"}


class Overloaded(ThreadingHTTPServer):
    """A server that refuses every call, and keeps how each was signed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Refusal)
        self.signatures: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Refusal(BaseHTTPRequestHandler):
    server: Overloaded

    def do_GET(self) -> None:
        self.server.signatures.append(self.headers["Authorization"])
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def overloaded() -> Iterator[Overloaded]:
    with Overloaded() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_aws_resource_retries_a_call_up_to_its_maximum_attempts(overloaded: Overloaded) -> None:
    s3 = ImpatientS3(endpoint_url=overloaded.url, max_attempts=2, **KEYS).get_client()
    with pytest.raises(ClientError, match="503"):
        s3.list_objects_v2(Bucket="landing")
    assert len(overloaded.signatures) == 2
    with pytest.raises(ClientError, match="503"):
        QueueResource(queue="events", endpoint_url=overloaded.url, max_attempts=1, **KEYS).open()
    assert len(overloaded.signatures) == 3
    assert all(signature and "Credential=mine/" in signature for signature in overloaded.signatures)


def test_default_s3_timeouts_and_retries_end_within_a_minute() -> None:
    config = ImpatientS3(**KEYS).get_client().meta.config
    assert (config.connect_timeout + config.read_timeout) * config.retries["total_max_attempts"] < 60


def test_default_queue_timeouts_and_retries_end_within_a_tick(overloaded: Overloaded) -> None:
    made = QueueResource(queue="events", endpoint_url=overloaded.url, **KEYS)
    with pytest.raises(ClientError, match="503"):
        made.open()
    assert len(overloaded.signatures) == 3
    config = _client("sqs", made, **QUEUE_TIMEOUTS).meta.config
    assert config.read_timeout > 4, "longer than the longest poll"
    assert (config.connect_timeout + config.read_timeout) * config.retries["total_max_attempts"] < 50


def test_unsigned_session_sends_no_signature_to_a_public_bucket(overloaded: Overloaded) -> None:
    s3 = ImpatientS3(endpoint_url=overloaded.url, max_attempts=1, use_unsigned_session=True, **KEYS).get_client()
    with pytest.raises(ClientError, match="503"):
        s3.list_objects_v2(Bucket="landing")
    assert overloaded.signatures == [None]
