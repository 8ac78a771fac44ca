"""Downloads of jars with Spark's bundled Ivy, and the cache of downloaded jars.

The cache is in the system's cache folder of this user. All checkouts and versions share it, so removing a state folder
costs no download. Belongs here: running Ivy, checking its downloads, copying out of the cache. Does not belong here:
the coordinates of jars (`local.spark.jars`, `local.kafka.server`).
"""

import fcntl
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from dagster_tidemark.errors import Transient
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
    """Jars that belong together, and that only some platforms need.

    Args:
        name: Name of their folder, below the jar folder.
        calls: Successive calls of Ivy: coordinates, and excluded dependencies.
        count: Final number of jars, for the progress display.
    """

    name: str
    calls: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    count: int = 0


def bundle_folder(settings: Settings, bundle: Bundle) -> Path:
    """Return the folder of a bundle's jars. It may not exist yet."""
    return settings.jars_dir / bundle.name / "jars"


def has_bundle(settings: Settings, bundle: Bundle) -> bool:
    """Return True if the jars of a bundle are complete."""
    return _is_complete(settings.jars_dir / bundle.name, bundle)


def fetch_with_dependencies(
    settings: Settings, bundle: Bundle, report: Report = lambda count, total: None
) -> list[Path]:
    """Return the jars of a bundle and their dependencies. Fetch them first, unless they are complete.

    Raises:
        JarsMissing: they could not be fetched.
    """
    folder, jars = settings.jars_dir / bundle.name, bundle_folder(settings, bundle)
    jars.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not _is_complete(folder, bundle):
            cache = cache_folder(folder, bundle.name)
            with locked(cache) if cache != folder else nullcontext():
                _fill(settings, cache, bundle, report)
                if cache != folder:
                    for jar in jars.glob("*"):
                        jar.unlink()  # it may be of another version
                    for jar in (cache / "jars").glob("*.jar"):
                        put(jar, jars / jar.name)
            (folder / _COMPLETE).write_text(repr(bundle))
    found = sorted(jars.glob("*.jar"))
    report(len(found), len(found))
    return found


_COMPLETE = ".complete"


def _is_complete(folder: Path, bundle: Bundle) -> bool:
    complete = folder / _COMPLETE
    return complete.exists() and complete.read_text() == repr(bundle)


def _fill(settings: Settings, folder: Path, bundle: Bundle, report: Report) -> None:
    """Fill a folder with the jars of a bundle, and no others."""
    if _is_complete(folder, bundle):
        return
    shutil.rmtree(folder / "jars", ignore_errors=True)

    def tell() -> None:
        report(min(downloaded(folder), bundle.count), bundle.count)

    for coordinates, excluded in bundle.calls:
        output = run_ivy(settings, folder, coordinates, excluded, tell)
        if "UNRESOLVED" in output or not list((folder / "jars").glob("*.jar")):
            raise JarsMissing(list(coordinates), output)
    shutil.rmtree(folder / "cache", ignore_errors=True)  # Ivy's own copy of everything
    (folder / _COMPLETE).write_text(repr(bundle))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which checkouts and test runs may share."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_folder(folder: Path, name: str = "") -> Path:
    """Return a folder of the user's cache, or `folder` itself if the cache cannot be written."""
    try:
        from platformdirs import user_cache_path
    except ModuleNotFoundError:  # it is of the extra `local`; `tidemark jars` fills an image without it
        return folder
    cache = user_cache_path("tidemark", appauthor=False) / name
    try:
        (cache / "jars").mkdir(parents=True, exist_ok=True)
        (cache / ".lock").touch()
    except OSError:
        return folder
    return cache


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


def downloaded(folder: Path) -> int:
    """Return the number of jars that Ivy has downloaded so far."""
    return len({path.name for path in folder.glob("cache/*/*/jars/*.jar")})
