"""The jars Spark needs for Iceberg, S3 and the catalogs, fetched through the Ivy that Spark carries.

A folder's jars come out of a cache that all checkouts and versions of this user share, where the system keeps caches;
so a state folder that is removed costs no download. Belongs here: coordinates, exclusions and the judgement whether a
folder is complete. Does not belong here: putting them on a class path (`pipelines.tidemark.lakehouse.session`).
"""

import fcntl
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from platformdirs import user_cache_path

from pipelines.tidemark.errors import Transient
from pipelines.tidemark.local.platform.process_tree import end_group
from pipelines.tidemark.local.spark.server import environment, spark_home
from pipelines.tidemark.settings import Settings

Report = Callable[[int, int], None]
"""Told how many jars of how many are there."""

_AWS_SDK = "2.54.17"
COORDINATES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.apache.hadoop:hadoop-aws:3.4.2",  # exactly the Hadoop inside the pyspark wheel
    *(
        f"software.amazon.awssdk:{part}:{_AWS_SDK}"
        for part in ("s3", "s3-transfer-manager", "sts", "kms", "apache-client")
    ),
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.postgresql:postgresql:42.7.8",
)
EXCLUDED = (
    # Spark has these itself, and two versions of one library on a class path fail in odd places.
    "io.netty:*",
    "org.slf4j:*",
    "commons-logging:*",
    "commons-codec:*",
    "org.apache.httpcomponents:*",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.xerial.snappy:*",
    "org.lz4:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "org.checkerframework:*",
    "org.scala-lang.modules:*",
    # Only used by features that are off; the bundle alone is 612 MB.
    "software.amazon.awssdk:bundle",
    "org.wildfly.openssl:*",
    "software.amazon.s3.analyticsaccelerator:*",
)
_SETTINGS = (
    # Without ~/.m2, which may hold half an artifact. The resolver's default root is Maven Central.
    '<ivysettings><settings defaultResolver="central"/><resolvers>'
    '<ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>\n'
)
_SECONDS = 600
_PULLED_IN = (
    "org.apache.httpcomponents.client5:httpclient5:5.6.4",
    "org.apache.httpcomponents.core5:httpcore5:5.4.3",
    "org.apache.httpcomponents.core5:httpcore5-h2:5.4.3",
    "org.reactivestreams:reactive-streams:1.0.4",
    "software.amazon.eventstream:eventstream:1.0.1",
    *(
        f"software.amazon.awssdk:{part}:{_AWS_SDK}"
        for part in (
            "annotations",
            "apache5-client",
            "arns",
            "auth",
            "aws-core",
            "aws-json-protocol",
            "aws-query-protocol",
            "aws-xml-protocol",
            "checksums",
            "checksums-spi",
            "crt-core",
            "endpoints-spi",
            "http-auth",
            "http-auth-aws",
            "http-auth-aws-eventstream",
            "http-auth-spi",
            "http-client-spi",
            "identity-spi",
            "json-utils",
            "metrics-spi",
            "netty-nio-client",
            "profiles",
            "protocol-core",
            "regions",
            "retries",
            "retries-spi",
            "sdk-core",
            "third-party-jackson-core",
            "utils",
            "utils-lite",
        )
    ),
)


class JarsMissing(Transient):
    """The jars could not be fetched. A retry helps once the network or the mirror does."""

    def __init__(self, missing: list[str], output: str) -> None:
        super().__init__(
            f"{len(missing)} jars could not be fetched, among them {missing[0]}. Ivy's last words:\n{output}"
        )
        self.missing = missing


def expected_jars() -> set[str]:
    """The file names of a complete folder."""
    parts = (coordinate.split(":") for coordinate in (*COORDINATES, *_PULLED_IN))
    return {f"{group}_{artifact}-{version}.jar" for group, artifact, version in parts}


def missing_jars(settings: Settings) -> list[str]:
    """The jars that are not there yet."""
    folder = settings.jars_dir / "jars"
    return sorted(expected_jars() - {jar.name for jar in folder.glob("*")})


def fetch_jars(settings: Settings, report: Report = lambda count, total: None) -> None:
    """Make the jar folder hold exactly the expected jars; done at once when it does.

    Raises:
        JarsMissing: some could not be fetched.
    """
    folder = settings.jars_dir
    (folder / "jars").mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        output = _fetch_missing(settings, report) if missing_jars(settings) else ""
        if missing := missing_jars(settings):
            raise JarsMissing(missing, output)
        for jar in (folder / "jars").iterdir():
            if jar.name not in expected_jars():
                jar.unlink()  # of an older version: two on one class path do not work


def fetch_with_dependencies(settings: Settings, coordinate: str, folder: Path) -> list[Path]:
    """The jars of something that is not part of the platform, with all it depends on; done at once when they are there.

    Raises:
        JarsMissing: they could not be fetched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / ".complete"
    with _locked(folder):
        if not complete.exists() or complete.read_text() != coordinate:
            output = _run_ivy(settings, folder, [coordinate], [], lambda: None)
            if "UNRESOLVED" in output or not list((folder / "jars").glob("*.jar")):
                raise JarsMissing([coordinate], output)
            complete.write_text(coordinate)
    return sorted((folder / "jars").glob("*.jar"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Checkouts and test runs may share one folder."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_missing(settings: Settings, report: Report) -> str:
    total, output = len(expected_jars()), ""
    cache = _cache(settings)
    with _locked(cache) if cache != settings.jars_dir else nullcontext():
        if expected_jars() - {jar.name for jar in (cache / "jars").glob("*.jar")}:
            output = _run_ivy(settings, cache, COORDINATES, EXCLUDED, lambda: report(_downloaded(cache), total))
            shutil.rmtree(cache / "cache", ignore_errors=True)  # Ivy's own copy of everything
        for name in missing_jars(settings):
            if (cache / "jars" / name).exists():
                _put(cache / "jars" / name, settings.jars_dir / "jars" / name)
    report(total - len(missing_jars(settings)), total)
    return output


def _cache(settings: Settings) -> Path:
    """The user's cache; the folder itself where that cannot be written."""
    cache = user_cache_path("tidemark", appauthor=False)
    try:
        (cache / "jars").mkdir(parents=True, exist_ok=True)
        (cache / ".lock").touch()
    except OSError:
        return settings.jars_dir
    return cache


def _put(jar: Path, target: Path) -> None:
    """A jar that is there is whole: it appears under its name at once."""
    part = target.with_suffix(".part")
    shutil.copy2(jar, part)
    part.rename(target)


def _run_ivy(
    settings: Settings,
    folder: Path,
    coordinates: Sequence[str],
    excluded: Sequence[str],
    go_on: Callable[[], None],
) -> str:
    ivy_settings = folder / "ivysettings.xml"
    ivy_settings.write_text(_SETTINGS)
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--packages", ",".join(coordinates)),
        *(("--exclude-packages", ",".join(excluded)) if excluded else ()),
        *("--conf", f"spark.jars.ivy={folder}"),
        *("--conf", f"spark.jars.ivySettings={ivy_settings.as_uri()}"),  # a URI: a path may hold a space
        # There is no such class, so it always ends with an error, after the download: the files are the judge.
        *("--class", "none", "spark-internal"),
    ]
    log = folder / "ivy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment(settings, dict(os.environ)),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + _SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                go_on()
                time.sleep(0.25)
        finally:
            end_group(process)
    with log.open(errors="replace") as lines:
        return "".join(deque((line for line in lines if not line.startswith("\tat ")), maxlen=12))


def _downloaded(folder: Path) -> int:
    present = {path.name for path in folder.glob("cache/*/*/jars/*.jar")}
    return min(len(present), len(expected_jars()))
