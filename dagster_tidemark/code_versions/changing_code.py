"""Facts about the syntax of code that changes objects: methods, functions and statements that change something.

Does not belong here: the definition that is changed (`effects`).
"""

import ast
from collections.abc import Iterator

from dagster_tidemark.code_versions.modules import FUNCTIONS, own_nodes, root_of

CHANGING = {
    "__delitem__", "__setattr__", "__setitem__", "add", "append", "appendleft", "clear", "difference_update", "discard",
    "extend", "extendleft", "insert", "intersection_update", "move_to_end", "pop", "popitem", "push", "put", "register",
    "remove", "reverse", "rotate", "set", "setdefault", "sort", "subtract", "symmetric_difference_update", "update",
}  # fmt: skip


CHANGING_FUNCTIONS = {
    "bisect.insort", "bisect.insort_left", "bisect.insort_right", "builtins.delattr", "builtins.setattr",
    "heapq.heapify", "heapq.heappop", "heapq.heappush", "operator.delitem", "operator.setitem", "random.shuffle",
}  # fmt: skip

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def run_at_import(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run in its own scope, including the elements of comprehensions."""
    for node in own_nodes(statement):
        yield node
        if isinstance(node, _COMPREHENSIONS):
            for child in ast.iter_child_nodes(node):
                yield from run_at_import(child)


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
