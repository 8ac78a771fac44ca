"""Facts about code that changes objects: methods, functions and statements that change something, and their classes.

Does not belong here: the definition that is changed, and the statements that make classes and objects (`effects`).
"""

import ast
from collections.abc import Callable, Collection, Iterator

from dagster_tidemark.code_versions.modules import FUNCTIONS, Module, own_nodes, root_of
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Project

CHANGING = {
    "__delattr__", "__delitem__", "__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__ixor__", "__setattr__",
    "__setitem__", "add", "append", "appendleft", "clear", "difference_update", "discard",
    "extend", "extendleft", "insert", "intersection_update", "move_to_end", "pop", "popitem", "push", "put", "register",
    "remove", "reverse", "rotate", "set", "setdefault", "sort", "subtract", "symmetric_difference_update", "update",
}  # fmt: skip


CHANGING_FUNCTIONS = {
    "bisect.insort", "bisect.insort_left", "bisect.insort_right", "builtins.delattr", "builtins.setattr",
    "heapq.heapify", "heapq.heappop", "heapq.heappush", "operator.delitem", "operator.iadd", "operator.ior",
    "operator.setitem", "random.shuffle", "unittest.mock.patch.dict", "unittest.mock.patch.multiple",
    "unittest.mock.patch.object",
}  # fmt: skip

ONLY_LOOK = {
    "builtins.bool", "builtins.callable", "builtins.id", "builtins.isinstance", "builtins.issubclass", "builtins.len",
    "builtins.print", "builtins.repr", "builtins.str", "builtins.type",
}  # fmt: skip
"""Functions that change no argument, and that read no iterator to its end."""

PATCHING_BY_NAME = {"unittest.mock.patch", "unittest.mock.patch.dict", "unittest.mock.patch.multiple"}
"""Functions that change what their first argument names, such as `"shop.rates.LOW"`."""

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def run_at_import(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run in its own scope, including the elements of comprehensions."""
    for node in own_nodes(statement):
        yield node
        if isinstance(node, _COMPREHENSIONS):
            for child in ast.iter_child_nodes(node):
                yield from run_at_import(child)


def changed_by(node: ast.AST) -> ast.expr | None:
    """Return the object whose item or attribute a node sets, or whose mutating method it names; None for others."""
    match node:
        case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
            return node.value
        case ast.Attribute(attr=attr) if attr in CHANGING:
            return node.value
    return None


def changes_itself(method: ast.FunctionDef | ast.AsyncFunctionDef, own: str) -> bool:
    """Return True if a method sets or changes an item or attribute of its object, under the name `own`."""
    for node in ast.walk(method):
        match node:
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                is_own = (root := root_of(node)) is not None and root.id == own
            case ast.Call(func=ast.Attribute(attr=attr, value=of)) if attr in CHANGING:
                is_own = (root := root_of(of)) is not None and root.id == own
            case _:
                continue
        if is_own:
            return True
    return False


def changes_class(method: ast.FunctionDef | ast.AsyncFunctionDef, shared: Collection[str]) -> bool:
    """Return True if a method changes an attribute of its class, such as `self.known[name] = self`.

    Args:
        shared: Names that the bodies of the class and its bases bind.
    """
    if not method.args.args:
        return False
    own, of_class = method.args.args[0].arg, any(getattr(d, "id", "") == "classmethod" for d in method.decorator_list)
    for node in ast.walk(method):
        changed = changed_by(node)
        chain = None if changed is None else _attributes_of(changed, own)
        if chain is not None and (of_class or "__class__" in chain or (chain and chain[0] in shared)):
            return True
    return False


def _attributes_of(node: ast.expr, own: str) -> list[str] | None:
    """Return the attributes in an expression that begins with `own` or `type(own)`; None for other expressions."""
    found: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        found += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    match node:
        case ast.Name(id=name) if name == own:
            return found[::-1]
        case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)]) if name == own:
            return ["__class__", *found[::-1]]
    return None


def keeps_state(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a function inside a function changes a variable of the outer one."""
    outer = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    outer |= {node.name for node in function.body if isinstance(node, FUNCTIONS)}
    for inner in (node for node in ast.walk(function) if isinstance(node, FUNCTIONS) and node is not function):
        for node in ast.walk(inner):
            if isinstance(node, ast.Nonlocal):
                return True
            if (changed := changed_by(node)) is not None:
                root = root_of(changed)
                own = {n.id for n in ast.walk(inner) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                if root and root.id in outer - own:
                    return True
    return False


def names_attribute(call: ast.Call) -> bool:
    """Return True for `setattr(of, "name", ...)`."""
    match call:
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[_, ast.Constant(), *_]):
            return True
    return False


def sets_attributes(body: ast.AST) -> bool:
    """Return True if code sets attributes of any object."""
    return any(
        (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del))
        or (isinstance(node, ast.Name) and node.id in ("setattr", "delattr", "vars"))
        or (isinstance(node, ast.Attribute) and node.attr == "__dict__")
        for node in ast.walk(body)
    )


def names_in(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, FUNCTIONS):
            found.add(node.name)
    return found


class Classes:
    """The classes of the project.

    Args:
        definition: Returns the definition that an expression of a module refers to.
        are_looked_up: True if code of the project looks up the subclasses of classes.
    """

    def __init__(
        self, project: Project, definition: Callable[[Module, ast.AST], Definition | None], *, are_looked_up: bool
    ) -> None:
        self._project = project
        self._definition = definition
        self.are_looked_up = are_looked_up
        self._methods: dict[Definition, set[str]] = {}

    def bases_that_know(
        self, module: Module, node: ast.ClassDef, seen: frozenset[Definition] = frozenset()
    ) -> Iterator[Definition]:
        seen |= {Definition(module.name, node.name)}
        for base in node.bases:
            of = self._base(module, node, base)
            if of is None or of in seen:
                continue
            classes = [(home, s) for home, s in self._project.statements(of) if isinstance(s, ast.ClassDef)]
            own = any(each.keywords or "__init_subclass__" in names_in(each) for _, each in classes)
            if own or self.are_looked_up:
                yield of
            for home, each in classes:
                yield from self.bases_that_know(home, each, seen)

    def _base(self, module: Module, node: ast.ClassDef, base: ast.expr) -> Definition | None:
        """Return the definition of a base. In `class Base(Base)` the base is the imported class."""
        of = self._definition(module, base)
        if of == Definition(module.name, node.name):
            imported = self._project.import_of(module, node.name)
            return imported if isinstance(imported, Definition) and imported.name != EVERYTHING else None
        return of

    def above(
        self, module: Module, node: ast.ClassDef, seen: frozenset[Definition] = frozenset()
    ) -> Iterator[tuple[Definition, Module, ast.ClassDef]]:
        """Yield the bases of a class and their bases, then the class itself, each with its module and statement."""
        seen |= {Definition(module.name, node.name)}
        for base in node.bases:
            if (of := self._base(module, node, base)) and of not in seen:
                for home, statement in self._project.statements(of):
                    if isinstance(statement, ast.ClassDef):
                        yield from self.above(home, statement, seen)
        yield Definition(module.name, node.name), module, node

    def with_bases(self, of: Definition) -> Iterator[Definition]:
        for home, statement in self._project.statements(of):
            if isinstance(statement, ast.ClassDef):
                yield from (each for each, _, _ in self.above(home, statement))

    def of_object(self, of: Definition) -> Iterator[Definition]:
        """Yield the class of an object that a definition creates by calling the class, and the bases of the class."""
        for module, statement in self._project.statements(of):
            match statement:
                case ast.Assign(value=ast.Call(func=made)) | ast.AnnAssign(value=ast.Call(func=made)):
                    if (found := self._definition(module, made)) and found != of:
                        yield from self.with_bases(found)

    def changing_methods(self, of: Definition) -> set[str]:
        """Return the methods of a class that change `self`."""
        if of not in self._methods:
            bodies = [s for _, s in self._project.statements(of) if isinstance(s, ast.ClassDef)]
            methods = [m for body in bodies for m in body.body if isinstance(m, FUNCTIONS) and m.args.args]
            self._methods[of] = {m.name for m in methods if changes_itself(m, m.args.args[0].arg)}
        return self._methods[of]
