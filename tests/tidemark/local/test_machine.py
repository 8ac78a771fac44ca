"""What a machine is refused for, in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from dagster_tidemark.local.host import machine


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that says what the test wants."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path / "bin" / "java"


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ('openjdk version "17.0.15" 2025-04-15', ""),
        ('java version "21" 2023-09-19 LTS', ""),
        ('openjdk version "25.0.1" 2025-10-21 LTS', "Java 25 is not supported"),
        ('java version "1.8.0_402"', "Java 8 is not supported"),
        ("Unable to locate a Java Runtime", "JAVA_HOME="),
    ],
)
def test_java_17_and_21_are_accepted_and_other_versions_refused(java: Path, says: str, complaint: str) -> None:
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    assert machine.complaint().startswith(complaint)
    assert bool(machine.complaint()) is bool(complaint)


def test_missing_java_is_reported(java: Path) -> None:
    assert not java.exists()
    assert machine.complaint().startswith(f"JAVA_HOME={java.parent.parent} has no working Java")


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_unsupported_python_version_is_refused(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    assert machine.complaint().startswith(f"Python {version[0]}.{version[1]} is not supported")


def test_machine_check_runs_without_installed_packages() -> None:
    command = [sys.executable, "-I", "-S", machine.__file__]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0
