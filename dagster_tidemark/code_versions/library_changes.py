"""Finds statements that change a library when the project is imported: new methods, replaced functions, settings.

    DataFrame.with_tax = with_tax                         sets an attribute of a library's class or module
    setattr(DataFrame, "with_tax", with_tax)
    os.environ["RATE"] = "2"                              sets an item
    decimal.getcontext().prec = 5                         changes an object that a library returns
    random.seed(1)                                        calls a function that changes a library's state
    @pd.api.extensions.register_dataframe_accessor("geo") registers a class under a name
    register_format(XML)                                  registers a file format with Tidemark, which feeds use

A change of a class or module affects code that uses the name. Any other change affects all users of the library. Does
not belong here: changes of the project's own definitions (`effects`).
"""

import ast
import re
from collections.abc import Collection, Iterator

from dagster_tidemark.code_versions.modules import FUNCTIONS, Module, own_nodes
from dagster_tidemark.code_versions.project import MACHINERY, Definition, Project
from dagster_tidemark.code_versions.references import LibraryChange

_CHANGE_NO_ROWS = {
    "atexit", "builtins", "dagster", "dagster_tidemark", "faulthandler", "gc", "logging", "signal", "structlog", "sys",
    "typing", "warnings",
}  # fmt: skip
_CHANGING = re.compile(
    r"(set|seed|register|patch|enable|disable)(_\w+)?|set[a-z]+|update|setdefault|pop|putenv|unsetenv|tzset"
)
OF_FORMATS = "Feed"
"""Name whose users are affected by a registered file format."""
_REGISTER_FORMAT = re.compile(rf"{re.escape(MACHINERY)}\..*\bregister_format")
_READ_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})


def library_changes(project: Project) -> list[LibraryChange]:
    """Return the statements that change libraries when the package is imported, in the order of modules."""
    found = []
    for module in project.modules_in_use():
        for statement in module.statements:
            changed = [each for each in _changed(module, statement, project) if _may_change_rows(each[0])]
            if changed:
                affected = [_affected(*each) for each in changed]
                names = frozenset(name for words, _ in affected for name in words)
                library = next((library for _, library in affected if library), "")
                label = f"{project.label(module.name)}: {changed[0][0]}"
                found.append(LibraryChange(module.name, statement, names, library, label))
    return found


def _may_change_rows(name: str) -> bool:
    return name.partition(".")[0] not in _CHANGE_NO_ROWS or bool(_REGISTER_FORMAT.fullmatch(name))


def _affected(name: str, words: set[str], is_of_all: bool) -> tuple[Collection[str], str]:
    """Return the names whose users a change affects, and the library if it affects all of the library's users."""
    if name.startswith("os.environ"):
        return _READ_ENVIRONMENT, ""
    return words, name.partition(".")[0] if is_of_all else ""


def _changed(module: Module, statement: ast.stmt, project: Project) -> Iterator[tuple[str, set[str], bool]]:
    """Yield what a statement changes: its dotted name, the attributes that it sets, and if it affects all users."""
    for home, node in _run_by(module, statement, project):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del(), value=of, attr=attr):
                if name := project.external_name(home, of):
                    yield f"{name}.{attr}", {attr}, not _is_class_or_module(of)
            case ast.Subscript(ctx=ast.Store() | ast.Del(), value=of):
                if name := project.external_name(home, of):
                    yield name, set(), True
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[of, attribute, *_]):
                if name := project.external_name(home, of):
                    words = {str(attribute.value)} if isinstance(attribute, ast.Constant) else set()
                    yield name, words, not words
            case ast.Call(func=called) if _REGISTER_FORMAT.fullmatch(project.external_name(home, called)):
                yield project.external_name(home, called), {OF_FORMATS}, False
            case ast.Call(func=ast.Attribute() | ast.Name() as called) if isinstance(statement, ast.Expr):
                yield from _called(home, called, [], project)
    for decorator in statement.decorator_list if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) else ():
        if isinstance(decorator, ast.Call):
            yield from _called(module, decorator.func, decorator.args, project)
        else:
            yield from _called(module, decorator, [], project)


def _run_by(module: Module, statement: ast.stmt, project: Project) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the nodes that a statement runs, and those of the functions that it calls only to call them."""
    waiting, seen = [(module, own_nodes(statement))], set[Definition]()
    while waiting:
        home, nodes = waiting.pop()
        for node in nodes:
            yield home, node
            of = project.target_of(home, node.func) if isinstance(node, ast.Call) else None
            if isinstance(statement, ast.Expr) and isinstance(of, Definition) and of not in seen:
                seen.add(of)
                bodies = [(there, s) for there, s in project.statements(of) if isinstance(s, FUNCTIONS)]
                waiting += [(there, ast.walk(body)) for there, body in bodies]


def _called(
    module: Module, called: ast.expr, args: list[ast.expr], project: Project
) -> Iterator[tuple[str, set[str], bool]]:
    name = project.external_name(module, called)
    if name and _CHANGING.fullmatch(name.rpartition(".")[2]):
        words = {each.value for each in args if isinstance(each, ast.Constant) and isinstance(each.value, str)}
        yield name, words, not words


def _is_class_or_module(node: ast.expr) -> bool:
    """Return True for the name of a module, and for a class, as far as its spelling shows."""
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return isinstance(node, ast.Name) or last[:1].isupper()
