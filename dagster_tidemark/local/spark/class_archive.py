"""Archive of Spark's loaded classes, kept between starts by the JVM's class data sharing (JEP 350).

With the archive a server starts in a quarter of the time, and its first query takes a fifth of the time. The archive is
recorded once per version of Java and the jars. It is stored next to the jars, and shared by all platforms and tests
with these jars. The JVM itself checks that it matches the classes.

A recording is a server that starts, executes one query and ends. More statements would save another half a second.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.local.host import machine
from dagster_tidemark.local.host.process_tree import end_group
from dagster_tidemark.local.host.sockets import port_answers
from dagster_tidemark.settings import Settings, load_settings

_FIRST_LOAD = 120  # seconds
_SECONDS = 240  # longest wait; recording takes 50 s on two idle cores
_SECONDS_TO_START = _SECONDS_TO_WRITE = 300  # some 15 s each on an idle machine; no person waits for them
_KEPT = 3  # newest archives of 170 MB each; checkouts may share the folder


def conf_dir(settings: Settings) -> Path:
    """Return the folder of Spark's configuration, which is part of the class path.

    It is empty: Java archives no classes if the class path has a folder with files. The JVM refuses an archive if a
    folder of its class path is gone or renamed, so this folder is next to the jars, not in a platform's state folder.
    """
    return settings.jars_dir / "conf"


def class_archive(settings: Settings) -> Path:
    """Return the path of the archive for this Java and these jars. It may not exist."""
    java = Path(shutil.which(machine.java_command()) or "java").resolve()
    installed = java.stat().st_mtime_ns if java.exists() else 0  # builds of the same version differ in classes
    # The JVM refuses an archive if the path or time of a file differs, as after a new installation.
    ours = sorted((settings.jars_dir / "jars").glob("*.jar"))
    sparks = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    jars = [f"{jar} {jar.stat().st_mtime_ns}" for jar in (*ours, *sparks)]
    parts = [f"{java} {installed}", str(conf_dir(settings)), *jars]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return settings.jars_dir / f"classes-{digest}.jsa"


def java_options(settings: Settings) -> list[str]:
    """Return the JVM options that make a server use the archive; none if there is no archive."""
    archive = class_archive(settings)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def record_classes(settings: Settings) -> bool:
    """Record the archive, unless it exists. Without it everything works, but starts more slowly.

    Returns:
        True if the archive exists now.
    """
    archive = class_archive(settings)
    if not archive.exists():
        with _recorder(settings, archive) as process, contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS)
    return archive.exists()


@contextmanager
def recording(settings: Settings) -> Iterator[None]:
    """Record the archive in the background during the block, at the lowest priority.

    A recording that has not ended by then is dropped, and started again in the next block.
    """
    archive = class_archive(settings)
    if archive.exists():
        yield
        return
    # After the first load, which a person is waiting for.
    later = ("sh", "-c", f'sleep {_FIRST_LOAD}; exec nice -n 19 "$@"', "sh")
    with _recorder(settings, archive, *later):
        yield


@contextmanager
def _recorder(settings: Settings, archive: Path, *prefix: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the recording process. It waits for other recordings for the same folder."""
    # A port of its own: a dropped recorder that is still ending must not be mistaken for the platform's server.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        alone = settings.model_copy(update={"port_spark": probe.getsockname()[1]})
    with (settings.jars_dir / "classes.log").open("wb") as log:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "dagster_tidemark.local.spark.class_archive", str(archive)],
            env=os.environ | alone.exports(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_group(process)


def _record(settings: Settings, archive: Path) -> None:
    """Start a server and record an archive, unless the archive exists."""
    folder = settings.state_dir / "run" / "classes"  # fixed, so that killed recordings leave only one folder
    with (settings.jars_dir / ".classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # checkouts and test runs may share one folder
        shutil.rmtree(folder, ignore_errors=True)
        if not archive.exists():
            folder.mkdir(parents=True)
            shutil.move(_recorded(settings, folder), archive.with_suffix(".part"))
            archive.with_suffix(".part").rename(archive)
            shutil.rmtree(folder)
            for old in sorted(archive.parent.glob("classes-*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
                old.unlink()


def _recorded(settings: Settings, folder: Path) -> Path:
    own = {
        "state_dir": folder,
        "catalog": {},
        "catalog_uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": f"{folder}/warehouse",
        "spark_remote": f"sc://127.0.0.1:{settings.port_spark}",
    }
    alone, written = settings.model_copy(update=own), folder / "classes.jsa"
    options = f"-XX:ArchiveClassesAtExit={written}", "-XX:TieredStopAtLevel=1"  # every statement runs only once
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_CATALOG")}
    server = subprocess.Popen(
        [sys.executable, "-m", "dagster_tidemark.local.spark.server", *options],
        # Without Kafka's jars: such an archive also fits a server with them, but not the other way round.
        env=inherited | alone.exports() | {"TIDEMARK_KAFKA_BOOTSTRAP_SERVERS": ""},
    )
    _wait_for(server, settings.port_spark)
    spark = new_session(alone)
    spark.range(1_000).selectExpr("sum(id)").collect()
    spark.stop()
    server.terminate()
    server.wait(_SECONDS_TO_WRITE)
    return written


def _wait_for(server: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while not port_answers(port):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Spark server that records classes did not start (exit code {server.poll()})")
        time.sleep(0.1)


if __name__ == "__main__":
    _record(load_settings(), Path(sys.argv[1]))
