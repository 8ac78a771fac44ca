"""Discovery of the declarations in a package's modules, so that a new module needs no entry in a list.

A code server refuses a location with a broken module, so that no asset leaves the graph silently. Commands that only
read (`status`, `quarantine`, `reconcile`) skip broken modules and report them: see `leaving_out`.
"""

import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

from pydantic import ValidationError

from dagster_tidemark.errors import TidemarkError

_Kind = TypeVar("_Kind")

_ALTERNATIVE = re.compile(r"(tuple\[[^\]]*\]|\w+Model)\.")
"""Part of a path that names an alternative of Dagster's schema."""
_REMEDIES = {"missing": "is missing; add it", "extra_forbidden": "is unknown; remove it, or correct its name"}

_left_out: ContextVar[list[str] | None] = ContextVar("_left_out", default=None)


@contextmanager
def leaving_out() -> Iterator[list[str]]:
    """Skip broken modules and declarations in the block. The list gets a line for each."""
    found: list[str] = []
    token = _left_out.set(found)
    try:
        yield found
    finally:
        _left_out.reset(token)


def is_leaving_out() -> bool:
    """Return True if broken declarations are left out and recorded."""
    return _left_out.get() is not None


@contextmanager
def refusing(package: str = "") -> Iterator[None]:
    """Raise errors of user code in the block; within `leaving_out`, record them and continue after the block.

    Args:
        package: The package whose code runs. The error then names its line that raised.
    """
    found = _left_out.get()
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a module may raise anything, SystemExit too
        if found is None:
            raise
        found += [line for line in in_words(error, package).splitlines() if line not in found]


def declared(package: ModuleType, kind: type[_Kind]) -> list[_Kind]:
    """Return each object of a kind (`Feed`, `Table`) that a package's modules hold, in the order of their names."""
    modules = imported(sorted(found.name for found in iter_modules(package.__path__, f"{package.__name__}.")))
    held = [value for module in modules for value in vars(module).values() if isinstance(value, kind)]
    return list({id(value): value for value in held}.values())


def modules_below(package: ModuleType) -> list[ModuleType]:
    """Return a package and every module in it and in the packages below."""
    found = [package]
    for each in iter_modules(package.__path__, f"{package.__name__}."):
        for module in imported([each.name]):
            found += modules_below(module) if each.ispkg else [module]
    return found


def imported(names: Sequence[str]) -> list[ModuleType]:
    """Import modules; within `leaving_out`, skip modules that fail."""
    found = []
    for name in names:
        with refusing(name):
            found.append(import_module(name))
    return found


def in_words(error: BaseException, package: str = "") -> str:
    """Return an error of user code in one line: its file and line, and the first line of its text.

    A `TidemarkError` keeps all its lines.
    """
    causes = [error]
    while (cause := causes[-1].__cause__) and cause not in causes:
        causes.append(cause)
    # Dagster wraps the error of a component in another error, whose text shows the tree of components.
    if ours := next((each for each in causes if isinstance(each, TidemarkError)), None):
        return str(ours)
    if invalid := next((each for each in causes if isinstance(each, ValidationError)), None):
        return _invalid_in_words(invalid)
    if mark := getattr(causes[-1], "problem_mark", None):  # of a YAML parser
        return f"{mark.name}:{mark.line + 1}: invalid YAML: {getattr(causes[-1], 'problem', '')}"
    if type(error).__name__ == "ComponentTreeException":
        error = causes[-1]
    words = _text_of(error).strip().splitlines()
    said = f"{type(error).__name__}: {words[0]}" if words else type(error).__name__
    where = _place_of(error, package.partition(".")[0])
    if not where and package:
        where = f"module {package}"
    return f"{where}: {said}" if where else said


def _invalid_in_words(error: ValidationError) -> str:
    """Return schema errors in words. Dagster writes file and line of a `defs.yaml` after the attribute's path."""
    every = [(".".join(map(str, each["loc"])), each) for each in error.errors()]
    if any(_ALTERNATIVE.search(path) for path, _ in every):  # the longest path is in the intended alternative
        every = [max(every, key=lambda each: len(each[0]))]
    found = []
    for full, each in every:
        path, divider, place = _ALTERNATIVE.sub("", full).rpartition(" at ")
        name = path if divider else place
        message = each["msg"] if name else "it declares no component; write type and attributes"
        words = f"{name} {_REMEDIES[each['type']]}" if each["type"] in _REMEDIES else f"{name}: {message}"
        found.append(f"{place}: {words.removeprefix(': ')}" if divider else words)
    return "; ".join(found)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of a class with a broken __str__
        return ""


def _place_of(error: BaseException, package: str) -> str:
    """Return the user's file and line that an error is about; empty if none is known."""
    root = next(iter(getattr(sys.modules.get(package), "__path__", [])), None)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename, root)}, line {error.lineno}"
    if root is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith(root)]
    return f"{_shown(own[-1].filename, root)}, line {own[-1].lineno}" if own else ""


def _shown(file: str, root: str | None) -> str:
    try:
        return str(Path(file).relative_to(Path(root).parent)) if root else file
    except ValueError:
        return file
