"""Finds the definitions behind a variable or an expression: a change of its object changes theirs.

    rates = CONF["rates"]              another name of an object, or of a part of it
    for each in (LOW, HIGH)            a name for each of several objects
    settings().update(rate=2)          the object that a function returns
    import_module("shop.conf")         a module, by its name

Does not belong here: the statements that change an object (`effects`).
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dagster_tidemark.code_versions.modules import FUNCTIONS, Module, own_nodes, root_of
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, External, InModule, Project, Target

ANY_NAME = "**"
"""Name of a definition that means every name in its module."""

Held = tuple[ast.expr, bool]
"""An expression with the value of a variable, and True if the variable holds the elements of this value."""
Locals = Mapping[str, Sequence[Held]]

_GIVES_PART = {"get", "items", "setdefault", "values"}
_GIVE_ELEMENTS = {"enumerate", "filter", "iter", "list", "map", "next", "reversed", "sorted", "tuple", "zip"}


class HeldObjects:
    """The definitions whose objects variables and expressions hold.

    Args:
        target: Returns what an expression of a module refers to.
        namespace: Returns the module whose names an expression holds, such as `vars(module)`; empty for others.
    """

    def __init__(
        self,
        project: Project,
        target: Callable[[Module, ast.AST], Target | None],
        namespace: Callable[[Module, ast.AST], str],
    ) -> None:
        self._project = project
        self._target = target
        self._namespace = namespace
        self._behind: dict[Definition, frozenset[Definition]] = {}
        self._elements: dict[Definition, frozenset[Definition]] = {}

    def behind(self, of: Definition) -> frozenset[Definition]:
        """Return the other definitions whose objects a variable holds, or a function returns."""
        if of not in self._behind:
            self._behind[of] = frozenset()  # for names that refer to each other
            found: set[Definition] = set()
            for module, statement in self._project.statements(of):
                if isinstance(statement, FUNCTIONS):
                    found |= set(self._returned(module, statement))
                else:
                    for value, is_each in values_in([statement]).get(of.name, ()):
                        found |= set(self.held(module, value, {}, is_each=is_each))
            self._behind[of] = frozenset(found - {of})
        return self._behind[of]

    def elements(self, of: Definition) -> frozenset[Definition]:
        """Return the definitions whose objects are in a collection, or are attributes of a class or its objects."""
        if of not in self._elements:
            self._elements[of] = frozenset()
            found: set[Definition] = set()
            for module, statement in self._project.statements(of):
                for home, value in self._parts(module, statement, of.name):
                    found |= {each for each in self.held(home, value, {}) if not self._is_code(each)}
            self._elements[of] = frozenset(found - {of})
        return self._elements[of]

    def _parts(self, module: Module, statement: ast.stmt, name: str) -> Iterator[tuple[Module, ast.expr]]:
        """Yield the elements of a collection, and the values of attributes of a class, each with its module."""
        if isinstance(statement, ast.ClassDef):
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                    yield module, node.value
            return
        for value, is_each in values_in([statement]).get(name, ()):
            match value:
                case ast.List(elts=elements) | ast.Tuple(elts=elements) if not is_each:
                    yield from ((module, each) for each in elements)
                case ast.Dict(values=elements):
                    yield from ((module, each) for each in elements)
                case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
                    yield from ((module, keyword.value) for keyword in keywords)
                case ast.Call(func=ast.Name() | ast.Attribute() as made):
                    target = self._target(module, made)
                    for home, each in self._project.statements(target) if isinstance(target, Definition) else ():
                        if isinstance(each, ast.ClassDef):
                            yield from self._parts(home, each, "")

    def _is_code(self, of: Definition) -> bool:
        return any(isinstance(s, (*FUNCTIONS, ast.ClassDef)) for _, s in self._project.statements(of))

    def held(
        self, module: Module, node: ast.expr, local: Locals, *, is_each: bool = False, seen: set[str] | None = None
    ) -> Iterator[Definition]:
        """Yield the definitions whose objects an expression may be.

        Args:
            local: The values of the variables of a function.
            is_each: True to yield those of the elements of the expression.
            seen: Variables whose values were already examined.
        """
        seen = set() if seen is None else seen
        if name := self.module_of(module, node) or self._namespace(module, node):
            yield Definition(name, ANY_NAME)
            return
        parts: Iterable[ast.expr] = ()
        match node:
            case ast.Name(id=name) if name in local:
                values = [] if name in seen else local[name]
                seen.add(name)
                for value, of_each in values:
                    yield from self.held(module, value, local, is_each=of_each, seen=seen)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                for found in self._named(module, node, local, seen):
                    yield found
                    yield from self.elements(found) if is_each else ()
            case ast.Call(func=called, args=args):
                yield from self._returned_by(module, called)
                if isinstance(called, ast.Attribute) and called.attr in _GIVES_PART:
                    parts = [called.value]
                elif isinstance(called, ast.Name) and called.id in _GIVE_ELEMENTS:
                    parts = args
            case ast.IfExp(body=body, orelse=orelse):
                parts = [body, orelse]
            case ast.BoolOp(values=values):
                parts = values
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                parts = [value]
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements) if is_each:
                parts = elements
        for part in parts:
            yield from self.held(module, part, local, is_each=is_each, seen=seen)

    def module_of(self, module: Module, node: ast.AST) -> str:
        """Return the module of the project that an expression gets by its name at run time; empty for others."""
        match node:
            case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]):
                target = self._target(module, called)
                is_import = target in (External("importlib.import_module"), External("builtins.__import__"))
            case ast.Subscript(value=of, slice=ast.Constant(value=str(name))):
                is_import = self._target(module, of) == External("sys.modules")
            case _:
                return ""
        return name if is_import and self._project.module(name) else ""

    def _named(self, module: Module, node: ast.expr, local: Locals, seen: set[str]) -> Iterator[Definition]:
        inner = node
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Call) or (isinstance(inner, ast.Name) and inner.id in local and inner is not node):
            yield from self.held(module, inner, local, seen=seen)
            return
        match self._target(module, node) if root_of(node) else None:
            case Definition() as found if found.name != EVERYTHING:
                yield found
                yield from self.behind(found)
            case InModule(name):
                yield Definition(name, ANY_NAME)

    def _returned_by(self, module: Module, called: ast.expr) -> Iterator[Definition]:
        target = self._target(module, called) if isinstance(called, ast.Name | ast.Attribute) else None
        if not isinstance(target, Definition) or target.name == EVERYTHING:
            return
        if any(isinstance(each, FUNCTIONS) for _, each in self._project.statements(target)):
            yield from self.behind(target)

    def _returned(self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Definition]:
        local = values_in(function.body)
        for node in (inner for each in function.body for inner in own_nodes(each)):
            if isinstance(node, ast.Return) and node.value:
                yield from self.held(module, node.value, local)


def values_in(statements: Iterable[ast.stmt]) -> dict[str, list[Held]]:
    """Return the values that statements give to each variable in their own scope."""
    found: dict[str, list[Held]] = {}

    def bind(target: ast.expr, value: ast.expr, *, is_each: bool) -> None:
        match target, value:
            case ast.Name(id=name), _:
                found.setdefault(name, []).append((value, is_each))
            case (
                (ast.Tuple(elts=targets) | ast.List(elts=targets)),
                (ast.Tuple(elts=values) | ast.List(elts=values)),
            ) if len(targets) == len(values) and not is_each:
                for one, other in zip(targets, values, strict=True):
                    bind(one, other, is_each=False)
            case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), _):
                for one in targets:
                    bind(one, value, is_each=True)

    for node in (inner for each in statements for inner in own_nodes(each)):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    bind(target, value, is_each=False)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                bind(target, value, is_each=False)
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                bind(target, value, is_each=True)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                bind(target, value, is_each=False)
    return found
