"""Spark's loaded classes, kept between starts: the JVM's own class data sharing (JEP 350).

The first server of a machine writes down at its end what it loaded (200 MB, 5 to 10 s); every later one starts
in a quarter of the time, and its first query takes a fifth. The archive lies beside the jars, so that all
platforms and tests that share those share it too. The JVM itself checks that it fits the classes.
"""

import hashlib
import os
import shutil
from pathlib import Path

import psutil
from pyspark import __version__ as spark_version

from pipelines.local import machine
from pipelines.settings import Settings

_COMPLETE = bytes.fromhex("a8ab0bf0")  # the JVM writes a dynamic archive's first bytes last (little-endian 0xf00baba8)


def class_archive(settings: Settings) -> Path:
    """Where the archive of this Java with these jars lies, if there is one."""
    java = Path(shutil.which(machine.java_command()) or "java").resolve()
    installed = java.stat().st_mtime_ns if java.exists() else 0  # another build of the same version has other classes
    jars = sorted(jar.name for jar in (settings.jars_dir / "jars").glob("*.jar"))
    digest = hashlib.sha256("\n".join([f"{java} {installed}", spark_version, *jars]).encode()).hexdigest()[:12]
    return settings.jars_dir / f"classes-{digest}.jsa"


def is_recording(settings: Settings) -> bool:
    """Whether a server started now writes an archive when it ends, which takes it some seconds."""
    return not class_archive(settings).exists()


def java_options(settings: Settings) -> list[str]:
    """The JVM's options of a server that uses the archive, or else of one that writes it at its end."""
    archive = class_archive(settings)
    _adopt(archive)
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}"]
    # The process id is the server's: this process becomes it.
    return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"]


def _adopt(archive: Path) -> None:
    """Take an archive that a server has completed; remove those of servers that were killed meanwhile."""
    for written in archive.parent.glob(f"{archive.name}.*"):
        if psutil.pid_exists(int(written.suffix[1:])):
            continue  # it still writes
        with written.open("rb") as file:
            is_complete = file.read(len(_COMPLETE)) == _COMPLETE
        if is_complete and not archive.exists():
            written.rename(archive)
        else:
            written.unlink()
