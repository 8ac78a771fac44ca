"""Spark's loaded classes, kept between starts: the JVM's own class data sharing (JEP 350).

With the archive a server starts in a quarter of the time, and its first query takes a fifth. It is recorded once for a
Java and its jars, and lies beside those, so that all platforms and tests that share them share it too. The JVM itself
checks that it fits the classes. Does not belong here: what is recorded (`local.spark.class_recording`).
"""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from dagster_tidemark.local.platform import machine
from dagster_tidemark.local.platform.process_tree import end_group
from dagster_tidemark.settings import Settings

_FIRST_LOAD = 120  # seconds
_SECONDS = 240  # for whom waits; it takes 50 s on two idle cores


def conf_dir(settings: Settings) -> Path:
    """The folder of Spark's configuration, which is empty: Java archives no classes beside a folder of files.

    It is part of the class path, and an archive is refused where one of its folders is gone or has another name. So it
    is beside the jars, not in the state folder of whoever recorded.
    """
    return settings.jars_dir / "conf"


def class_archive(settings: Settings) -> Path:
    """Where the archive of this Java with these jars lies, if there is one."""
    java = Path(shutil.which(machine.java_command()) or "java").resolve()
    installed = java.stat().st_mtime_ns if java.exists() else 0  # another build of the same version has other classes
    # The JVM refuses an archive of other files, also where only their place or time is another: as after a new install.
    ours = sorted((settings.jars_dir / "jars").glob("*.jar"))
    sparks = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    jars = [f"{jar} {jar.stat().st_mtime_ns}" for jar in (*ours, *sparks)]
    parts = [f"{java} {installed}", str(conf_dir(settings)), *jars]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return settings.jars_dir / f"classes-{digest}.jsa"


def java_options(settings: Settings) -> list[str]:
    """The JVM's options of a server that uses the archive, if there is one."""
    archive = class_archive(settings)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def record_classes(settings: Settings) -> bool:
    """Record the archive, unless it is there. Without one everything works, only slower.

    Returns:
        Whether there is one now.
    """
    archive = class_archive(settings)
    if not archive.exists():
        with _recorder(settings, archive) as process, contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS)
    return archive.exists()


@contextmanager
def recording(settings: Settings) -> Iterator[None]:
    """Record the archive meanwhile, beside everything else and after it, at the lowest priority.

    What is not done at the end is given up, and begun again another time.
    """
    archive = class_archive(settings)
    if archive.exists():
        yield
        return
    # After the first load, which people wait for.
    later = ("sh", "-c", f'sleep {_FIRST_LOAD}; exec nice -n 19 "$@"', "sh")
    with _recorder(settings, archive, *later):
        yield


@contextmanager
def _recorder(settings: Settings, archive: Path, *prefix: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The process that records. Whoever else records for the same folder comes first."""
    # A port of its own: a server that is given up may answer for a moment when the platform's is waited for.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        alone = settings.model_copy(update={"port_spark": probe.getsockname()[1]})
    with (settings.jars_dir / "classes.log").open("wb") as log:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "dagster_tidemark.local.spark.class_recording", str(archive)],
            env=os.environ | alone.exports(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_group(process)
