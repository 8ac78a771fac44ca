"""Daemon that starts the Python workers of the laptop's Spark server.

It imports the workers' libraries once, before it forks a worker. Otherwise each worker imports them, which takes half a
second. Workers serve several runs, so before each task they forget the user's modules that an earlier task has
imported: an edit is effective in the next run. Belongs here: what pyspark's own daemon lacks.
"""

import sys
import sysconfig
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from pyspark import daemon

_LIBRARIES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.fs",
    "pyarrow.json",
    "pyarrow.parquet",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
)

_daemon: Any = daemon  # it has no type annotations

_STANDARD_LIBRARY = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))

Main = Callable[[BinaryIO, BinaryIO], None]


def forget_user_modules(kept: Collection[str]) -> None:
    """Remove modules that are not installed, so that the next import reads their files again.

    Args:
        kept: Names of modules that stay.
    """
    for name, module in list(sys.modules.items()):
        if name not in kept and _is_of_user(module):
            del sys.modules[name]


def _is_of_user(module: ModuleType) -> bool:
    """Return True if a module's file is not part of the installation. An editable installation is the user's."""
    file = getattr(module, "__file__", None)
    if file is None or file.startswith(_STANDARD_LIBRARY):
        return False
    return not {"site-packages", "dist-packages"} & set(Path(file).parts)


def with_fresh_modules(main: Main, kept: Collection[str]) -> Main:
    """Return a worker's main function that first forgets the user's modules."""

    def fresh(given: BinaryIO, taken: BinaryIO) -> None:
        forget_user_modules(kept)
        main(given, taken)

    return fresh


def run() -> None:
    """Serve Spark's requests for workers until Spark closes the connection."""
    for library in _LIBRARIES:
        import_module(library)
    _daemon.worker_main = with_fresh_modules(_daemon.worker_main, frozenset(sys.modules))
    _daemon.manager()


if __name__ == "__main__":
    run()
