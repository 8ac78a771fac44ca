"""Finding what a package's modules declare, so that a new module needs no entry in a list."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

_Kind = TypeVar("_Kind")


def declared(package: ModuleType, kind: type[_Kind]) -> list[_Kind]:
    """Everything of a kind (`Feed`, `Table`) that the modules of a package hold, each once, in the order of names."""
    names = sorted(found.name for found in iter_modules(package.__path__, f"{package.__name__}."))
    held = [value for name in names for value in vars(import_module(name)).values() if isinstance(value, kind)]
    return list({id(value): value for value in held}.values())
