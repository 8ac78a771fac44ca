"""Which archive of Spark's classes a server uses, and what becomes of a recording that fails."""

import os
from pathlib import Path

import psutil
import pytest

from dagster_tidemark.local.spark.class_archive import class_archive, java_options, record_classes, recording
from dagster_tidemark.settings import Settings
from tests.conftest import make_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path).model_copy(update={"jars_dir": tmp_path / "my jars"})
    (made.jars_dir / "jars").mkdir(parents=True)
    return made


def test_spark_test_server_uses_the_recorded_class_archive(spark_server: Settings) -> None:
    recorded = class_archive(spark_server)
    assert recorded.stat().st_size > 50_000_000
    properties = (spark_server.state_dir / "run" / "spark" / "spark.properties").read_text()
    assert f"-XX:SharedArchiveFile={recorded}" in properties
    assert "Unable to use shared archive" not in (spark_server.state_dir / "spark.log").read_text()


def test_spark_server_starts_without_a_class_archive(settings: Settings) -> None:
    assert java_options(settings) == []


def test_failed_class_archive_recording_is_logged_and_leaves_no_file(settings: Settings) -> None:
    assert not record_classes(settings.model_copy(update={"spark_memory": "1m"})), "no server starts with 1 MB"
    assert "did not start" in (settings.jars_dir / "classes.log").read_text()
    assert sorted(path.name for path in settings.jars_dir.iterdir()) == [".classes.lock", "classes.log", "conf", "jars"]


def test_class_archive_recording_ends_with_the_platform(settings: Settings) -> None:
    before = set(psutil.Process().children(recursive=True))
    with recording(settings):
        children = set(psutil.Process().children(recursive=True)) - before
        assert children, "it has begun, and nobody waits for it"
    assert not [process for process in children if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not class_archive(settings).exists()


def test_class_archive_changes_with_the_set_of_jars(settings: Settings) -> None:
    before = class_archive(settings)
    (settings.jars_dir / "jars" / "new-1.0.jar").touch()

    assert class_archive(settings) != before


def test_class_archive_changes_with_reinstalled_jars(settings: Settings) -> None:
    jar = settings.jars_dir / "jars" / "some-1.0.jar"
    jar.touch()
    before = class_archive(settings)
    os.utime(jar, (0, 0))

    assert class_archive(settings) != before, "the JVM would refuse it"
