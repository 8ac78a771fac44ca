"""Each part with a small fake that answers, refuses or lacks something."""

import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError

from dagster_tidemark.doctor import Declared, arrangement, catalog, checks_of, queues, spark
from dagster_tidemark.doctor.bucket import bucket
from dagster_tidemark.doctor.checks import Check, CheckFailed, CheckOutcome, outcome
from dagster_tidemark.doctor.scratch import PREFIX, drop_markers, drop_old, scratch_namespace
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import Settings
from tests.conftest import make_settings

HERE = ".".join(map(str, sys.version_info[:2]))


def _answer(check: Callable[[], str]) -> CheckOutcome:
    return outcome(Check("part", check, "start it"))


def _error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": 403}}, "Call")


class _Aws:
    """An AWS client that answers each call with a value, or raises it."""

    exceptions = SimpleNamespace(QueueDoesNotExist=ClientError)

    def __init__(self, **answers: Any) -> None:
        self.answers, self.called = answers, list[tuple[str, dict[str, Any]]]()

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.called.append((name, arguments))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def get_paginator(self, name: str) -> Any:
        def paginate(**arguments: Any) -> Any:
            date = datetime.now(UTC) + self.answers["clock"]
            headers = {"date": date.strftime("%a, %d %b %Y %H:%M:%S GMT")}
            yield getattr(self, name)(**arguments) | {"ResponseMetadata": {"HTTPHeaders": headers}}

        return SimpleNamespace(paginate=paginate)


def _page(*keys: str, versioned: bool = False) -> dict[str, Any]:
    objects = [{"Key": key, "ETag": '"e"', "Size": 3, "LastModified": datetime.now(UTC)} for key in keys]
    versions = [each | {"IsLatest": True, "VersionId": "v1"} for each in objects]
    return {"Versions": versions} if versioned else {"Contents": objects}


_BODY = {"Body": SimpleNamespace(read=lambda: b"a")}
_S3: dict[str, Any] = {
    "get_bucket_versioning": {},
    "list_objects_v2": _page("a.csv"),
    "list_object_versions": _page("a.csv", versioned=True),
    "get_object": _BODY,
    "head_bucket": {},
    "clock": timedelta(),
}
_VERSIONED = {"get_bucket_versioning": {"Status": "Enabled"}}


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({}, "ok", "landing (unversioned): listed, read a.csv; "),
        (_VERSIONED, "ok", "landing (versioned): listed, read a.csv by its version; "),
        ({"list_objects_v2": _page(), "get_object": _error("NoSuchKey")}, "ok", "no object to read yet"),
        ({"list_objects_v2": _page(), "get_object": _error("AccessDenied")}, "failed", "s3:GetObject on landing/*"),
        ({"get_bucket_versioning": _error("AccessDenied")}, "failed", "s3:GetBucketVersioning on landing"),
        ({"list_objects_v2": _error("AccessDenied")}, "failed", "s3:ListBucket on landing"),
        (_VERSIONED | {"list_object_versions": _error("AccessDenied")}, "failed", "s3:ListBucketVersions on landing"),
        ({"get_object": _error("AccessDenied")}, "failed", "s3:GetObject on landing/*"),
        (_VERSIONED | {"get_object": _error("AccessDenied")}, "failed", "s3:GetObjectVersion on landing/*"),
        ({"get_object": _error("InvalidObjectState")}, "failed", "a.csv"),
        ({"list_objects_v2": _error("NoSuchBucket")}, "failed", "bucket landing cannot be listed"),
        ({"clock": timedelta(minutes=-2)}, "failed", "clocks of S3"),
    ],
)
def test_the_landing_bucket(changes: dict[str, Any], verdict: str, said: str, tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    found = _answer(lambda: bucket(settings, _Aws(**_S3 | changes)))
    assert found.verdict == verdict and said in found.found
    assert verdict == "ok" or found.remedy


_RECEIPT = _error("ReceiptHandleIsInvalid")
_SQS: dict[str, Any] = {
    "get_queue_url": {"QueueUrl": "http://q"},
    "get_queue_attributes": {"Attributes": {"ApproximateNumberOfMessages": "4", "RedrivePolicy": "{}"}},
    "receive_message": {},
    "change_message_visibility": _RECEIPT,
    "delete_message": _RECEIPT,
}


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({}, "ok", "receive, change visibility and delete are permitted; about 4 messages wait"),
        ({"get_queue_url": _error("AWS.SimpleQueueService.NonExistentQueue")}, "failed", "there is no queue pings"),
        ({"get_queue_url": _error("AccessDenied")}, "failed", "sqs:GetQueueUrl on pings"),
        ({"get_queue_attributes": _error("AccessDenied")}, "failed", "sqs:GetQueueAttributes on pings"),
        ({"get_queue_attributes": {"Attributes": {}}}, "failed", "pings has no dead-letter queue"),
        ({"receive_message": _error("AccessDenied")}, "failed", "sqs:ReceiveMessage on pings"),
        ({"change_message_visibility": _error("AccessDenied")}, "failed", "sqs:ChangeMessageVisibility on pings"),
        ({"delete_message": _error("AccessDenied")}, "failed", "sqs:DeleteMessage on pings"),
        ({"delete_message": _error("InternalError")}, "failed", "InternalError"),
    ],
)
def test_a_queue_that_is_received_from(changes: dict[str, Any], verdict: str, said: str) -> None:
    found = _answer(lambda: queues.receiving(_Aws(**_SQS | changes), "pings"))
    assert found.verdict == verdict and said in found.found
    assert verdict == "ok" or found.remedy


def test_a_waiting_message_is_given_back_and_not_deleted() -> None:
    given = {"receive_message": {"Messages": [{"ReceiptHandle": "r"}]}, "change_message_visibility": {}}
    sqs = _Aws(**_SQS | given)
    queues.receiving(sqs, "pings")
    back = {"QueueUrl": "http://q", "ReceiptHandle": "r", "VisibilityTimeout": 0}
    assert ("change_message_visibility", back) in sqs.called
    assert [call["ReceiptHandle"] for name, call in sqs.called if name == "delete_message"] == ["tidemark-doctor"]


def test_a_queue_that_is_only_sent_to() -> None:
    sqs = _Aws(**_SQS)
    assert queues.sending(sqs, "alerts") == "exists; sending was not tried"
    assert [name for name, _ in sqs.called] == ["get_queue_url"]


class _Spark:
    """A session of a server with these versions, whose jobs raise an error or return rows."""

    version = "4.1.3"

    def __init__(self, **given: Any) -> None:
        self.given: dict[str, Any] = {"java": "17.0.1", "iceberg": "Apache Iceberg 1.12.0 (commit a)"} | given
        self.version = given.get("version", self.version)
        self.said: list[str] = []

    def sql(self, text: str) -> Any:
        self.said.append(text)
        if error := self.given.get("error"):
            raise error
        row = SimpleNamespace(
            at=self.given.get("at", datetime.now(UTC)), java=self.given["java"], iceberg=self.given["iceberg"], n=100
        )
        return SimpleNamespace(collect=lambda: [row])

    def range(self, *_: int) -> "_Spark":
        return self

    def mapInArrow(self, function: Any, columns: str) -> Any:  # Spark's name
        def collect() -> list[Any]:
            if error := self.given.get("error"):
                raise error
            return [_Worker(**self.given.get("worker", {}))]

        return SimpleNamespace(collect=collect)


class _Worker(dict[str, str]):
    def __init__(self, **given: str) -> None:
        whole = {"host": "a", "python": f"{HERE}.1", "pyspark": "4.1.3", "pyarrow": "21.0", "numpy": "2"}
        super().__init__(whole | given)

    def __getattr__(self, name: str) -> str:
        return self[name]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Callable[..., _Spark]:
    """A function that sets up a server."""

    def made(**given: Any) -> _Spark:
        fake = _Spark(**given)

        @contextmanager
        def session(settings: Settings) -> Any:
            yield fake

        monkeypatch.setattr(spark, "opened_session", session)
        return fake

    return made


@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        ({}, "ok", "Spark 4.1.3, Iceberg 1.12.0, Java 17.0.1, same clock"),
        ({"version": "4.0.1"}, "failed", "the server is Spark 4.0.1"),
        ({"java": "11.0.2"}, "failed", "Java 11.0.2, expected 17 or 21"),
        ({"iceberg": "1.9.0"}, "failed", "Iceberg 1.9.0, expected 1.12.0"),
        ({"at": datetime.now(UTC) + timedelta(hours=1)}, "failed", "clocks of Spark"),
        ({"error": RuntimeError("ClassNotFoundException: org.apache.iceberg.IcebergBuild")}, "failed", "no Iceberg"),
    ],
)
def test_the_versions_of_the_server(
    server: Any, given: dict[str, Any], verdict: str, said: str, tmp_path: Path
) -> None:
    server(**given)
    found = _answer(lambda: spark.server(make_settings(tmp_path)))
    assert found.verdict == verdict and said in found.found


@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        ({}, "ok", "pyarrow 21.0 on 1 host"),
        ({"worker": {"python": "3.9.1"}}, "failed", "workers run Python 3.9.1"),
        ({"worker": {"numpy": ""}}, "failed", "workers lack numpy"),
        ({"worker": {"pyarrow": "15.0"}}, "failed", "workers have pyarrow 15.0"),
        (
            {"error": RuntimeError("No module named 'pyarrow'")},
            "failed",
            "lack the package pyarrow",
        ),
        ({"error": RuntimeError("[PYTHON_VERSION_MISMATCH] no")}, "failed", "another Python than this machine"),
        ({"error": RuntimeError('Cannot run program "python3.9": error=2')}, "failed", "cannot start python3.9"),
    ],
)
def test_the_python_of_workers(server: Any, given: dict[str, Any], verdict: str, said: str, tmp_path: Path) -> None:
    server(**given)
    found = _answer(lambda: spark.workers(make_settings(tmp_path)))
    assert found.verdict == verdict and said in found.found
    assert verdict == "ok" or "pyarrow" in found.remedy or "PYSPARK_PYTHON" in found.remedy


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("[CATALOG_NOT_FOUND] The catalog `lake` not found", "the server has no catalog lake"),
        ("cannot assign instance of java.lang.invoke.SerializedLambda to field f", "jars of Spark's Connect client"),
        ("User: a is not authorized to perform: s3:PutObject on resource: b", "the permission s3:PutObject"),
    ],
)
def test_a_job_that_fails(server: Any, error: str, said: str, tmp_path: Path) -> None:
    server(error=OSError(error))
    found = _answer(lambda: spark.job(make_settings(tmp_path)))
    assert found.verdict == "failed" and said in found.found


def test_a_server_on_another_catalog_is_found(server: Any, tmp_path: Path) -> None:
    fake = server()
    found = _answer(lambda: spark.job(make_settings(tmp_path)))
    assert (found.verdict, found.found) == ("failed", "the server wrote a table that this machine does not find")
    assert "PURGE" in fake.said[-2] and "DROP NAMESPACE" in fake.said[-1]


def test_the_catalog_is_used_and_nothing_is_left(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    lake = open_lake(settings)
    old, young = f"{PREFIX}1700000000_abc", scratch_namespace()
    for namespace in (old, young, "core"):
        lake.create_namespace(namespace)
    found = _answer(lambda: catalog.catalog(settings))
    assert found.verdict == "ok" and "created, appended, read and dropped" in found.found
    assert "removed 1 tables of interrupted checks" in found.found
    assert {name for (name,) in lake.list_namespaces()} == {young, "core"}
    assert list(Path(settings.warehouse).iterdir()) == [] and drop_old(lake, settings) == 0


def test_folders_that_pyarrow_leaves_on_s3_are_deleted_below_the_table_of_the_check_alone() -> None:
    keys = ["house/tidemark_doctor_1/written/data/", "house/tidemark_doctor_1/written/metadata/"]
    s3 = _Aws(list_objects_v2=_page(*keys), delete_object={})
    drop_markers("s3://lake/house/tidemark_doctor_1/written", "tidemark_doctor_1", s3)
    listed, *deleted = s3.called
    assert listed == ("list_objects_v2", {"Bucket": "lake", "Prefix": "house/tidemark_doctor_1/written/"})
    assert deleted == [("delete_object", {"Bucket": "lake", "Key": key}) for key in keys]
    for elsewhere in ("s3://lake/house/core/orders", "/folder/tidemark_doctor_1/written"):
        s3.called.clear()
        drop_markers(elsewhere, "tidemark_doctor_1", s3)
        assert s3.called == []


def test_a_catalog_that_cannot_be_written(tmp_path: Path) -> None:
    settings = make_settings(tmp_path).model_copy(update={"catalog_uri": "jdbc:sqlite:/nowhere/catalog.db"})
    found = outcome(catalog.check(settings))
    assert found.verdict == "failed" and "unable to open" in found.found and "TIDEMARK_CATALOG_URI" in found.remedy


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings(tmp_path)
    assert _answer(lambda: arrangement.packages(settings)).verdict == "ok"
    monkeypatch.setattr(arrangement, "find_spec", lambda name: None)
    postgres = settings.model_copy(update={"catalog_uri": "jdbc:postgresql://db/lake"})
    found = _answer(lambda: arrangement.packages(postgres))
    assert found.verdict == "failed" and "psycopg2" in found.found and "[production]" in found.remedy
    kafka = settings.model_copy(update={"kafka_bootstrap_servers": "kafka:9092"})
    assert "confluent-kafka is not installed" in _answer(lambda: arrangement.packages(kafka)).found


_CONFLICT = {
    "run_coordinator": {
        "module": "dagster",
        "class": "QueuedRunCoordinator",
        "config": {"max_concurrent_runs": 3},
    },
    "concurrency": {"runs": {"max_concurrent_runs": 3}},
}


@pytest.mark.parametrize(
    ("config", "verdict", "said"),
    [
        (
            {"concurrency": {"runs": {"max_concurrent_runs": 3}}},
            "ok",
            "0 runs, DefaultRunLauncher, 3 runs at once",
        ),
        (_CONFLICT, "failed", "max_concurrent_runs"),
    ],
)
def test_the_instance_of_dagster(config: dict[str, Any], verdict: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({"telemetry": {"enabled": False}} | config))
    settings = make_settings(tmp_path).model_copy(update={"dagster_home": tmp_path})
    found = _answer(lambda: arrangement.dagster_instance(settings))
    assert found.verdict == verdict and said in found.found, found


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    found = _answer(lambda: arrangement.database("postgresql://u:secret@127.0.0.1:1/d"))
    assert found.verdict == "failed" and "refused" in found.found and "secret" not in found.found


def test_dagster_without_a_home(tmp_path: Path) -> None:
    settings = make_settings(tmp_path).model_copy(update={"dagster_home": None})
    assert _answer(lambda: arrangement.dagster_instance(settings)).found == "DAGSTER_HOME is not set"


def test_every_part_has_a_check_and_each_refusal_its_line(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    declared = Declared(("pings", "landing-events"), ("alerts", "pings"), ("readings",))
    names = [check.name for check in checks_of(settings, declared)]
    assert names == [
        *("settings", "packages", "dagster", "catalog", "spark", "spark job", "spark workers", "landing bucket"),
        *("queue landing-events", "queue pings", "queue alerts", "topic readings"),
    ]
    production = settings.model_copy(update={"environment": "production", "spark_remote": None, "dagster_home": None})
    refused = [outcome(check) for check in checks_of(production, Declared()) if check.name == "settings"]
    assert [each.verdict for each in refused] == ["failed"] * 4
    assert refused[0].found == "SPARK_REMOTE is not set" and refused[0].remedy.startswith(
        "set it to your Spark Connect"
    )
    with pytest.raises(CheckFailed):
        checks_of(production, Declared())[0].ask()
