"""Which archive of Spark's classes a server uses, and which it writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.local.class_archive import class_archive, is_recording, java_options
from pipelines.settings import Settings
from tests.conftest import make_settings

COMPLETE = bytes.fromhex("a8ab0bf0") + b"classes"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path).model_copy(update={"jars_dir": tmp_path / "my jars"})
    (made.jars_dir / "jars").mkdir(parents=True)
    return made


@pytest.fixture
def ended() -> int:
    """The id of a process that ran once."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def _left_by(settings: Settings, pid: int, content: bytes) -> Path:
    archive = class_archive(settings)
    left = archive.with_name(f"{archive.name}.{pid}")
    left.write_bytes(content)
    return left


def test_the_first_server_writes_one(settings: Settings) -> None:
    assert is_recording(settings)
    assert java_options(settings) == [f"-XX:ArchiveClassesAtExit={class_archive(settings)}.{os.getpid()}"]


def test_what_an_ended_server_completed_is_used(settings: Settings, ended: int) -> None:
    left = _left_by(settings, ended, COMPLETE)

    assert java_options(settings) == [f"-XX:SharedArchiveFile={class_archive(settings)}"]
    assert not left.exists()
    assert not is_recording(settings)


def test_what_a_killed_server_left_is_removed(settings: Settings, ended: int) -> None:
    left = _left_by(settings, ended, bytes(1000))

    assert java_options(settings)[0].startswith("-XX:ArchiveClassesAtExit=")
    assert not left.exists()


def test_what_a_server_is_writing_is_left_alone(settings: Settings) -> None:
    left = _left_by(settings, os.getppid(), COMPLETE)

    assert java_options(settings)[0].startswith("-XX:ArchiveClassesAtExit=")
    assert left.exists()


def test_other_jars_have_another_archive(settings: Settings) -> None:
    before = class_archive(settings)
    (settings.jars_dir / "jars" / "new-1.0.jar").touch()

    assert class_archive(settings) != before
