"""Identity of the code that a process has loaded, to notice that a code location or its folder has different code."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dagster_tidemark.settings import Settings

_MOST_BYTES = 1_000_000
_WRITTEN_BY_PROGRAMS = {".db", ".duckdb", ".lock", ".log", ".pid", ".pyc", ".pyo", ".sqlite", ".sqlite3", ".tmp"}


@cache
def code_of(settings: Settings) -> str:
    """Return a hash of the location's and Tidemark's code, as it is on disk at the first call, soon after loading.

    Data files of the packages, such as SQL and YAML, count too. Files above 1 MB count by their name and size.
    """
    digest = hashlib.sha256()
    for package in sorted({settings.code_location, __name__.partition(".")[0]}):
        found = find_spec(package)
        for folder in sorted(found.submodule_search_locations or ()) if found else ():
            for name, content in _files_in(Path(folder)):
                digest.update(f"{package}/{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file below a folder, except hidden files and files that programs write."""
    for file in sorted(folder.rglob("*")):
        below = file.relative_to(folder)
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in below.parts)
        if is_hidden or file.suffix.lower() in _WRITTEN_BY_PROGRAMS or not file.is_file():
            continue
        size = file.stat().st_size
        is_counted_by_size = size > _MOST_BYTES and file.suffix != ".py"
        yield below.as_posix(), str(size).encode() if is_counted_by_size else file.read_bytes()
