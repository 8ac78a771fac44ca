"""The user's project: the folder whose pyproject.toml has `[tool.tidemark]`.

Belongs here: finding this folder and its table. Does not belong here: settings of a deployment (`settings`).
"""

import os
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dagster_tidemark.errors import Terminal

VARIABLE = "TIDEMARK_PROJECT"


class NoProject(Terminal):
    """No project was found, or its pyproject.toml cannot be read. The message names the folder and the remedy."""


class NoneFound(NoProject):
    """The working directory is in no project."""


def project_root() -> Path:
    """Return the folder that `TIDEMARK_PROJECT` names, else the nearest project in or above the working directory.

    Outside of any project, return the project that holds the virtual environment, so that `tidemark env` works in any
    folder.

    Raises:
        NoProject: there is none.
    """
    if named := os.environ.get(VARIABLE):
        root = Path(named).expanduser().absolute()
        if not root.is_dir():
            raise NoProject(f"{VARIABLE}={named}: there is no such folder")
        return root
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(sys.prefix).parents):
        if "tidemark" in _tools(folder):
            return folder
    raise NoneFound(
        f"no pyproject.toml with [tool.tidemark] in {here} or above: go into the project's folder, or set {VARIABLE}"
    )


def found_project() -> Path | None:
    """Return the project's folder, as `project_root`, or None if there is none.

    Raises:
        NoProject: `TIDEMARK_PROJECT` names no folder, or a pyproject.toml cannot be read.
    """
    try:
        return project_root()
    except NoneFound:
        return None


def code_location(root: Path) -> str | None:
    """Return the package that the project's `[tool.tidemark]` names as its code location; None if it names none.

    Raises:
        NoProject: its pyproject.toml cannot be read, or `package` is not a text.
    """
    package = _tools(root).get("tidemark", {}).get("package")
    if package is not None and not isinstance(package, str):
        raise NoProject(f"{root / 'pyproject.toml'}: [tool.tidemark] package = {package!r}; expected a package name")
    return package


@cache  # the settings are read at each tick
def _tools(folder: Path) -> Mapping[str, Any]:
    file = folder / "pyproject.toml"
    try:
        with file.open("rb") as text:
            found = tomllib.load(text).get("tool", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NoProject(f"{file} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}
