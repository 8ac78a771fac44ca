"""Reads one module of the project: its imports, and its statements by the names that they bind.

Belongs here: facts that the module's text alone shows. Does not belong here: resolving imports (`project`).
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Place = tuple[int, int]
"""Line and column of a statement."""


@dataclass(eq=False)
class Module:
    """A module of the project.

    Args:
        name: Dotted name for imports.
        path: The module's file; None for a folder without `__init__.py`.
        tree: The module's syntax tree.
        is_package: True if the module may have submodules.
        bindings: Module-level statements that bind or change a name, in order, by name.
        imports: Imported name to (module, attribute). The attribute is None if the name refers to the module itself.
        stars: Modules imported with `*`, in order.
        places: Imported name to the place of its last import in the text. Imports with `*` have the place of the star.
        star_places: Places of the imports with `*`.
        others: Module-level statements that bind no name.
        for_types: Names that only type checkers see.
    """

    name: str
    path: Path | None
    tree: ast.Module
    is_package: bool
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    star_places: list[Place] = field(default_factory=list)
    others: list[ast.stmt] = field(default_factory=list)
    for_types: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._collect(self.tree.body)
        for statement in (each for many in self.bindings.values() for each in many[:]):
            self._drop_declaration(statement)

    @cached_property
    def bound_by_functions(self) -> Collection[str]:
        """Global names of the module that functions in it bind with `global`."""
        return {name for node in ast.walk(self.tree) if isinstance(node, ast.Global) for name in node.names}

    def exports(self, name: str) -> bool:
        """Return True if `from module import *` may bind a name, as far as the text of the module shows."""
        said = self.bindings.get("__all__", [])
        match said:
            case []:
                return not name.startswith("_")
            case [ast.Assign(value=ast.List(elts=names) | ast.Tuple(elts=names))]:
                return any(not isinstance(each, ast.Constant) or each.value == name for each in names)
        return True

    @property
    def statements(self) -> Iterator[ast.stmt]:
        """Module-level statements other than imports, each once."""
        seen: set[int] = set()
        for statement in (s for many in (*self.bindings.values(), self.others) for s in many):
            if id(statement) not in seen:
                seen.add(id(statement))
                yield statement

    def imported_from(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module in a `from ... import`."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, *filter(None, [node.module])])

    def imports_of(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str | None]]]:
        """Yield each name that an import binds, with its module and attribute."""
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                yield alias.asname or alias.name, (self.imported_from(node), alias.name)
            elif alias.asname:
                yield alias.asname, (alias.name, None)
            else:
                root = alias.name.partition(".")[0]
                yield root, (root, None)

    def imported_modules(self) -> Iterator[str]:
        """Yield the absolute names that may be modules in all imports of the module, in functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                if base := self.imported_from(node):
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def _drop_declaration(self, statement: ast.stmt) -> None:
        """Move a declaration without a value, such as `RATE: int`, to `others` if another statement binds the name."""
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=None) if len(self.bindings[name]) > 1:
                self.bindings[name] = [each for each in self.bindings[name] if each is not statement]
                self.others.append(statement)

    def _collect(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            match statement:
                case ast.ImportFrom(module="__future__") | ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case ast.ImportFrom(names=[ast.alias(name="*")]):
                    self.stars.append(self.imported_from(statement))
                    self.star_places.append(place_of(statement))
                case ast.Import() | ast.ImportFrom():
                    self.imports |= dict(self.imports_of(statement))
                    self.places |= {name: place_of(statement) for name, _ in self.imports_of(statement)}
                case ast.If(test=test) if is_type_checking(test, self.imports):
                    self.for_types.update(name for seen in statement.body for name in bound_at_import(self, seen))
                    self._collect(statement.orelse)
                case ast.If(test=test) if (is_script := _compares_with_main(test)) is not None:
                    self._collect(statement.orelse if is_script else statement.body)
                case ast.FunctionDef() | ast.AsyncFunctionDef() if is_overload(statement):
                    pass
                case _:
                    names = list(dict.fromkeys(bound_at_import(self, statement)))
                    for name in names:
                        self.bindings.setdefault(name, []).append(statement)
                    if not names:
                        self.others.append(statement)


def bound_at_import(module: Module, statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds at module level, and the names whose items or attributes it sets."""
    for node in own_nodes(statement):
        match node:
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                if (root := root_of(node)) and root.id not in module.imports:
                    yield root.id
            case ast.Import() | ast.ImportFrom():
                yield from (name for name, _ in module.imports_of(node))
            case _:
                yield from bound_by(node)


def bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node binds, if any. Imports are not handled here."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Name(ctx=ast.Store() | ast.Del()):
            yield node.id
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run in the statement's own scope.

    The bodies of functions, classes and lambdas are left out. Comprehensions contribute only the targets of `:=`.
    """
    yield node
    below: Iterable[ast.AST]
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            below = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        case ast.ClassDef():
            below = [*node.decorator_list, *node.bases, *node.keywords]
        case ast.Lambda():
            below = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            found = (inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
            yield from (inner.target for inner in found)
            return
        case _:
            below = ast.iter_child_nodes(node)
    for child in below:
        yield from own_nodes(child)


def root_of(node: ast.AST) -> ast.Name | None:
    """Return the leftmost name of an expression such as `a.b[c].d()`, if any."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node if isinstance(node, ast.Name) else None


def is_type_checking(test: ast.expr, imports: Mapping[str, tuple[str, str | None]]) -> bool:
    """Return True if the test of an `if` is `TYPE_CHECKING`, under any imported name."""
    if isinstance(test, ast.Name):
        return imports.get(test.id, ("", test.id))[1] == "TYPE_CHECKING"
    return isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a function is decorated with `overload`, so that only type checkers use it."""
    last = [d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in node.decorator_list]
    return "overload" in last


def place_of(statement: ast.stmt) -> Place:
    """Return the place of a statement in the text of its module."""
    return statement.lineno, statement.col_offset


def _compares_with_main(test: ast.expr) -> bool | None:
    """Return True for `__name__ == "__main__"`, False for `!=`, and None for every other test."""
    match test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as compared], comparators=[right]):
            for name, text in ((left, right), (right, left)):
                if getattr(name, "id", "") == "__name__" and getattr(text, "value", "") == "__main__":
                    return isinstance(compared, ast.Eq)
    return None
