"""Identity of the code that a process has loaded, to notice that a code location or its folder has different code."""

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dagster_tidemark.settings import Settings


@cache
def code_of(settings: Settings) -> str:
    """Return a hash of the location's and Tidemark's code, as it is on disk at the first call, soon after loading."""
    digest = hashlib.sha256()
    for package in sorted({settings.code_location, __name__.partition(".")[0]}):
        found = find_spec(package)
        for folder in sorted(found.submodule_search_locations or ()) if found else ():
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
