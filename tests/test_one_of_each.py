"""One of each: no circle of imports, one loop that repeats commits, private parts of Dagster in one room."""

import ast
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from pkgutil import iter_modules

import dagster as dg
import pytest

from tests.checkout import CHECKOUT

LIBRARY = CHECKOUT / "dagster_tidemark"
RACES = {"CommitConflict", "CommitFailedException"}
LOOPS = {
    "lakehouse/commits.py": "the one that repeats a commit",
    "streams/alerts/worker.py": "sends what is left, and repeats no commit",
}
"""Modules where an error of a lost commit is caught inside a loop."""


def modules() -> dict[str, Path]:
    """Every module of the library, by name."""
    found = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        name = ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(node: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Every module of the library that a module imports when it runs, in functions too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                yield from {f"{child.module}.{alias.name}", child.module} & known.keys()
        elif isinstance(child, ast.Import):
            yield from {alias.name for alias in child.names} & known.keys()
        yield from imported(child, known)


def require_no_circle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other in a circle: {' -> '.join(error.args[1])}")


def test_modules_import_each_other_in_no_circle() -> None:
    known = modules()
    # `from package import module` is no import of the package's other modules: their packages import nothing.
    graph = {
        name: {each for each in imported(ast.parse(path.read_text()), known) if known[each].name != "__init__.py"}
        for name, path in known.items()
    }
    assert sum(map(len, graph.values())) > 1000
    require_no_circle(graph)


def test_a_circle_is_found() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"a -> b -> a|b -> a -> b"):
        require_no_circle({"a": {"b"}, "b": {"a"}})


def races_in_loops(node: ast.AST, *, in_loop: bool = False) -> Iterator[int]:
    """The line of each `except` that catches a lost commit inside a loop of the same function."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.Lambda)
        inside = not is_function and (in_loop or isinstance(child, ast.For | ast.While))
        caught = child.type if isinstance(child, ast.ExceptHandler) and in_loop else None
        if caught is not None and RACES & {each.id for each in ast.walk(caught) if isinstance(each, ast.Name)}:
            yield caught.lineno
        yield from races_in_loops(child, in_loop=inside)


def test_one_loop_repeats_commits() -> None:
    found = {
        str(path.relative_to(LIBRARY)) for path in modules().values() if [*races_in_loops(ast.parse(path.read_text()))]
    }
    assert found == LOOPS.keys(), "use `until_committed`"


def test_the_linter_knows_every_private_part_of_dagster() -> None:
    rules = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    banned = rules["flake8-tidy-imports"]["banned-api"].keys()
    private = {f"dagster.{each.name}" for each in iter_modules(dg.__path__) if each.name.startswith("_")}
    assert private - {"dagster.__main__"} <= banned, "add them to banned-api in pyproject.toml"
    assert "dagster._core" in private and "dagster_shared" in banned
