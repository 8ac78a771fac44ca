"""Jars that the platform's programs need, and their download with Spark's bundled Ivy.

Downloaded jars are kept in the system's cache folder of this user. All checkouts share it, so removing a state folder
costs no download. Belongs here: the coordinates of Spark's jars, the test that a folder is complete, running Ivy and
copying out of the cache. Does not belong here: the coordinates of Kafka's broker (`local.kafka_server`), and putting
jars on a class path (`dagster_tidemark.lakehouse.session`).
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dagster_tidemark.errors import Transient
from dagster_tidemark.lakehouse.session import ICEBERG_VERSION
from dagster_tidemark.local.host.process_tree import end_group
from dagster_tidemark.local.spark.server import environment, spark_home
from dagster_tidemark.settings import Settings

Report = Callable[[int, int], None]
"""Callback for progress, with the number of present jars and the number of all jars."""

_SETTINGS = (
    # Only Maven Central, the resolver's default. Not ~/.m2, which may hold incomplete artifacts.
    '<ivysettings><settings defaultResolver="central"/><resolvers>'
    '<ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>\n'
)
_SECONDS = 600


class JarsMissing(Transient):
    """The jars could not be fetched. A retry helps after the network or the mirror works again."""

    def __init__(self, missing: list[str], output: str) -> None:
        super().__init__(
            f"{len(missing)} jars could not be fetched, including {missing[0]}. Ivy's last output:\n{output}"
        )
        self.missing = missing


@dataclass(frozen=True)
class Bundle:
    """Jars that belong together.

    Args:
        name: Name of their folder below the jar folder. The jars of the lake are in the jar folder itself.
        calls: Successive calls of Ivy: coordinates, and excluded dependencies.
        count: Number of jars, including the dependencies. A folder with another number of jars is not complete.
    """

    name: str
    calls: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    count: int

    def folder(self, settings: Settings) -> Path:
        """Return the folder of the jars. It may not exist yet."""
        return settings.jars_dir / self.name / "jars"

    def missing(self, folder: Path) -> list[str]:
        """Return the jars that a folder lacks; empty if it holds exactly this bundle."""
        found = {jar.name for jar in folder.glob("*.jar")}
        parts = (coordinate.split(":") for coordinates, _ in self.calls for coordinate in coordinates)
        named = sorted({f"{group}_{artifact}-{version}.jar" for group, artifact, version in parts} - found)
        if named or len(found) == self.count:
            return named
        return [f"a dependency (expected {self.count} jars, found {len(found)})"]

    def is_complete(self, settings: Settings) -> bool:
        """Return True if the folder of the jars holds exactly this bundle."""
        return not self.missing(self.folder(settings))


_AWS_SDK = "2.54.17"
COORDINATES = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}",
    "org.apache.hadoop:hadoop-aws:3.4.2",  # for `s3a://` in user code; exactly the Hadoop inside the pyspark wheel
    *(
        f"software.amazon.awssdk:{part}:{_AWS_SDK}"
        for part in ("s3", "s3-transfer-manager", "sts", "kms", "apache-client")
    ),
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.postgresql:postgresql:42.7.8",
)
EXCLUDED = (
    # Spark has these itself, and two versions of a library on a class path fail in unexpected places.
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
LAKE = Bundle("", ((COORDINATES, EXCLUDED),), count=44)
"""Jars for Iceberg, S3 and the catalogs. Spark always needs them."""
KAFKA = Bundle(
    "spark-kafka",
    (
        (
            (
                "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
                "org.apache.kafka:kafka-clients:3.9.1",
                "org.apache.commons:commons-pool2:2.12.1",
            ),
            (*EXCLUDED, "org.apache.spark:spark-token-provider-kafka-0-10_2.13"),
        ),
        # Not every mirror has version 4.1 of this jar. A call cannot request a jar that it excludes.
        (
            ("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
            ("org.apache.spark:spark-tags_2.13", "org.apache.kafka:*", "org.apache.hadoop:*", "org.scala-lang:*"),
        ),
    ),
    count=4,
)
"""Jars of Spark's Kafka source."""


def fetch_jars(settings: Settings, bundle: Bundle = LAKE, report: Report = lambda count, total: None) -> list[Path]:
    """Return the jars of a bundle. Fetch them first, unless they are complete.

    The folder then holds exactly these jars: two versions of a library on one class path do not work.

    Raises:
        JarsMissing: they could not be fetched.
    """
    jars = bundle.folder(settings)
    jars.mkdir(parents=True, exist_ok=True)
    with _locked(jars.parent):
        if not bundle.is_complete(settings):
            _fill(settings, bundle, jars, report)
    return sorted(jars.glob("*.jar"))


def _fill(settings: Settings, bundle: Bundle, jars: Path, report: Report) -> None:
    own = jars.parent / "download"
    cache = _cache_folder(bundle) or own
    cache.mkdir(exist_ok=True)
    with _locked(cache):
        if bundle.missing(cache / "jars"):
            _download(settings, bundle, cache, report)
        wanted = {jar.name: jar for jar in (cache / "jars").glob("*.jar")}
        for jar in jars.glob("*.jar"):
            if jar.name not in wanted:
                jar.unlink()
        for name, jar in wanted.items():
            if not (jars / name).exists():
                put(jar, jars / name)
    if cache == own:
        shutil.rmtree(own)
    report(bundle.count, bundle.count)


def _download(settings: Settings, bundle: Bundle, folder: Path, report: Report) -> None:
    """Download a bundle into `folder/jars`. The folder exists only if it has all jars."""
    shutil.rmtree(folder / "jars", ignore_errors=True)
    part = folder / "part"
    shutil.rmtree(part, ignore_errors=True)
    (part / "jars").mkdir(parents=True)

    def tell() -> None:
        found = {path.name for path in part.glob("cache/*/*/jars/*.jar")}
        report(min(len(found), bundle.count), bundle.count)

    output = ""
    for coordinates, excluded in bundle.calls:
        output = run_ivy(settings, part, coordinates, excluded, tell)
        if "UNRESOLVED" in output:
            break
    if missing := bundle.missing(part / "jars"):
        raise JarsMissing(missing, output)
    (part / "jars").rename(folder / "jars")
    shutil.rmtree(part)  # Ivy's own copy of everything


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which checkouts and test runs may share."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cache_folder(bundle: Bundle) -> Path | None:
    """Return the folder of a bundle in the user's cache; None if the cache cannot be written."""
    try:
        from platformdirs import user_cache_path
    except ModuleNotFoundError:  # it is of the extra `local`; `tidemark jars` fills an image without it
        return None
    # Checkouts may need different versions.
    version = hashlib.sha256(repr(bundle).encode()).hexdigest()[:12]
    folder = user_cache_path("tidemark", appauthor=False) / f"{bundle.name or 'lake'}-{version}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except OSError:
        return None
    return folder


def put(jar: Path, target: Path) -> None:
    """Copy a jar. It gets its final name only when it is complete."""
    part = target.with_suffix(".part")
    shutil.copy2(jar, part)
    part.rename(target)


def run_ivy(
    settings: Settings,
    folder: Path,
    coordinates: Sequence[str],
    excluded: Sequence[str],
    go_on: Callable[[], None],
) -> str:
    """Download into `folder/jars`. Return the end of Ivy's output, which always ends with an error."""
    ivy_settings = folder / "ivysettings.xml"
    ivy_settings.write_text(_SETTINGS)
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--packages", ",".join(coordinates)),
        *(("--exclude-packages", ",".join(excluded)) if excluded else ()),
        *("--conf", f"spark.jars.ivy={folder}"),
        *("--conf", f"spark.jars.ivySettings={ivy_settings.as_uri()}"),  # a URI: a path may hold a space
        # This class does not exist, so the command always fails after the download: the files show if it worked.
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
