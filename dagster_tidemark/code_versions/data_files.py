"""Finds the data files that code reads, if the code's text shows their paths.

    Path(__file__).parents[1] / "data" / NAME      with constants of this or another module
    importlib.resources.files("other.package")     also with joinpath; pkgutil.get_data
    open("data/rates.csv"), read.csv("data/*.csv")  paths relative to the project's root, also in SQL

If only the beginning of a path is known, all files below it count. If no part is known, the line is listed as
undecided. Does not belong here: resolving names (`references`), and hashing files (`project`).
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dagster_tidemark.code_versions.modules import FUNCTIONS, Module
from dagster_tidemark.code_versions.project import (
    Definition,
    External,
    Files,
    InModule,
    Project,
    Target,
)
from dagster_tidemark.code_versions.references import parts_of
from dagster_tidemark.code_versions.scopes import arguments_of

_PATHS = {"pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath", "pathlib.PurePosixPath"}
_SAME = {
    "builtins.str", "builtins.sorted", "builtins.list", "builtins.tuple", "builtins.set", "builtins.iter",
    "builtins.next", "builtins.reversed", "os.fspath", "os.path.abspath", "os.path.realpath", "os.path.normpath",
    "os.path.expanduser", "importlib.resources.as_file",
}  # fmt: skip
_SAME_METHODS = {
    "absolute", "as_posix", "expanduser", "glob", "iterdir", "open", "read_bytes", "read_text", "resolve", "rglob",
    "walk",
}  # fmt: skip
_OF_PACKAGES = (
    "importlib.resources.",
    "importlib_resources.",
    "jinja2.PackageLoader",
    "jinja2.loaders.PackageLoader",
    "pkgutil.get_data",
)
_READERS = re.compile(
    r"(builtins|io|codecs|gzip|bz2|lzma)\.open|(pandas|polars|duckdb|pyarrow\.\w+|geopandas)\.(read|scan|open)_(?!sql)\w+"
    r"|numpy\.(load|loadtxt|genfromtxt|fromfile)|joblib\.load|linecache\.getlines?|os\.(listdir|scandir|walk)"
    r"|glob\.i?glob|pyarrow\.dataset\.dataset|runpy\.run_path"
    r"|importlib\.(util\.spec_from_file_location|machinery\.SourceFileLoader)|jinja2\.(loaders\.)?FileSystemLoader"
)
_LOADERS = re.compile(r"jinja2\.(loaders\.)?(FileSystem|Package)Loader")
"""Functions that later read files of a folder."""
_PYTHON = re.compile(r"importlib\.(util\.spec_from_file_location|machinery\.SourceFileLoader)|runpy\.run_path")
"""Functions that read a module by its path."""
_ROOT = {"pathlib.Path.cwd", "os.getcwd"}
"""Functions that return the working directory, which is the project's root in commands and runs."""

_NAMES_OF_PATHS = {"file", "filename", "filepath_or_buffer", "path", "path_or_buf", "paths", "source"}
_OPENS = {"builtins.open", "bz2.open", "codecs.open", "gzip.open", "io.open", "lzma.open"}
_READING_METHODS = {"read_text", "read_bytes"}
_SPARK_READS = {"csv", "json", "load", "orc", "parquet", "text"}
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class DataPath:
    """A path, or the known beginning of a path.

    Args:
        known: The path, or the part of its beginning that is known; None if no part is known.
        is_whole: True if `known` is the whole path.
    """

    known: Path | None = None
    is_whole: bool = False

    def __bool__(self) -> bool:
        return self.known is not None

    def __truediv__(self, more: "str | DataPath | None") -> "DataPath":
        if isinstance(more, DataPath):
            return more
        if self.known is None or not self.is_whole:
            return self
        if more is None:
            return DataPath(self.known)
        if _GLOB.search(more):
            return DataPath(Path(os.path.normpath(self.known / _GLOB.split(more)[0].rpartition("/")[0])))
        return DataPath(Path(os.path.normpath(self.known / more)), is_whole=True)


ELSEWHERE = DataPath(is_whole=True)
"""A path with a scheme, such as `s3://`: not a file of the project."""


@dataclass
class DataFiles:
    """Data files that a piece of code reads.

    Args:
        files: Files that the code reads. A folder means that the code may read any file in the folder.
        undecided: Lines that read a file whose path is unknown or outside of the project.
        spent: Ids of the nodes `__file__` whose only use is the reading of one of the files.
    """

    files: list[Files] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    spent: set[int] = field(default_factory=set)


def data_files(nodes: Iterable[ast.AST], module: Module, project: Project) -> DataFiles:
    """Return the data files that statements of a module read."""
    search, nodes = _Search(module, project), list(nodes)
    search.runs_text = any(getattr(n, "id", "") in ("compile", "exec") for each in nodes for n in ast.walk(each))
    search.reads_name = any(getattr(n, "attr", "") in ("buffer", "name") for each in nodes for n in ast.walk(each))
    for node in nodes:
        search.look(node, {}, is_definition=isinstance(node, ast.Assign | ast.AnnAssign))
    search.found.files = list(dict.fromkeys(search.found.files))
    search.found.undecided = list(dict.fromkeys(search.found.undecided))
    return search.found


_Locals = dict[str, ast.expr | None]
"""The variables of a function with their values; None for parameters and variables that are bound more than once."""


class _Search:
    def __init__(self, module: Module, project: Project) -> None:
        self.found = DataFiles()
        self.runs_text = False
        """True if the code runs texts as Python, so that modules count as data files too."""
        self.reads_name = False
        """True if the code may read the path of an open file."""

        self._module = module
        self._project = project
        self._under_way: set[tuple[str, str]] = set()

    def look(self, node: ast.AST, local: _Locals, *, is_definition: bool = False) -> None:
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            local = {**local, **_variables(node)}
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            place = self._place(node, local)
            if place:
                self._take(place, node, is_definition=is_definition)
                if place.is_whole and place.known and place.known.is_file() and self._only_reads(node, local):
                    nodes = ast.walk(node)
                    self.found.spent |= {id(n) for n in nodes if isinstance(n, ast.Name) and n.id == "__file__"}
                return
            if place != ELSEWHERE and self._reads(node, local):
                self._note(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._in_text(node.value)
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):  # a docstring
                self.look(child, local, is_definition=is_definition and isinstance(child, ast.expr))

    def _take(self, place: DataPath, node: ast.expr, *, is_definition: bool) -> None:
        path, home = place.known, self._project.home
        assert path is not None
        if not path.exists() and path.is_relative_to(home):  # relative to the folder of imports
            path = self._project.root / path.relative_to(home)
        called = self._called(node, {}) if isinstance(node, ast.Call) else ""
        if self.runs_text or _PYTHON.fullmatch(called) or any(map(_globs_python, ast.walk(node))):
            self.found.files += [Files(each) for each in sorted(path.rglob("*.py")) if path.is_dir()]
        if is_definition and place.is_whole and path.is_dir() and not _LOADERS.fullmatch(called):
            return  # a constant with a folder: the code that uses the constant is examined instead
        if path == self._module.path:
            return  # `__file__` alone is the start of a path that other code completes
        if not path.is_relative_to(home):
            self.found.undecided.append(f"line {node.lineno}: {path} is outside the project")
        elif path in (home, self._project.root):
            self._note(node)
        elif path.exists():
            self.found.files.append(Files(path))

    def _note(self, node: ast.expr) -> None:
        text = ast.unparse(node)
        self.found.undecided.append(f"line {node.lineno}: {text if len(text) <= 60 else text[:57] + '...'}")

    def _in_text(self, text: str) -> None:
        """Add the files that a text names, as a path relative to the project's root or as a quoted path in SQL."""
        if len(text) > 10_000:
            return
        for name in (text, *(a or b for a, b in _QUOTED.findall(text))):
            if re.fullmatch(r"[\w.-]+(/[\w.*?-]+)*", name) and "." in name and ".." not in name:
                place = DataPath(self._project.home, is_whole=True) / name
                if not (place.known and place.known.exists()):
                    place = DataPath(self._project.root, is_whole=True) / name
                path = place.known
                is_there = path is not None and (path.is_file() or (not place.is_whole and path.is_dir()))
                if (
                    path is not None
                    and is_there
                    and path not in (self._project.home, self._project.root)
                    and path.suffix != ".py"
                ):
                    self.found.files.append(Files(path))

    # Values of expressions

    def _target(self, node: ast.expr, local: _Locals) -> Target | None:
        root, attributes = parts_of(node)
        if not isinstance(root, ast.Name) or root.id in local:
            return None
        target, left = self._project.follow(self._project.name(self._module, root.id), attributes)
        return None if left else target

    def _called(self, node: ast.Call, local: _Locals) -> str:
        """Return the dotted name of the called library function; empty if the function is not a library's."""
        target = self._target(node.func, local)
        return target.name if isinstance(target, External) else ""

    def _reads(self, node: ast.expr, local: _Locals) -> bool:
        """Return True if an expression is a call that reads a file, such as `path.read_text()` or `open(path)`."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READING_METHODS:
            return True
        return _first(node) is not None and (
            self._is_of_spark(node) or bool(_READERS.fullmatch(self._called(node, local)))
        )

    def _only_reads(self, node: ast.expr, local: _Locals) -> bool:
        """Return True if an expression gives the content of a file, and nothing that shows the file's path."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READING_METHODS:
            return True
        is_open = self._called(node, local) in _OPENS or getattr(node.func, "attr", "") == "open"
        return is_open and not self.reads_name

    def _is_of_spark(self, node: ast.Call) -> bool:
        """Return True for calls such as `spark.read.csv(...)` and `spark.read.format(...).load(...)`."""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr in _SPARK_READS):
            return False
        return any(isinstance(inner, ast.Attribute) and inner.attr == "read" for inner in ast.walk(node.func.value))

    def _text(self, node: ast.expr, local: _Locals) -> str | None:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr():
                parts = [self._text(part, local) for part in node.values]
                return None if None in parts else "".join(filter(None, parts))
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self._text(value, local)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                one, other = self._text(left, local), self._text(right, local)
                return None if one is None or other is None else one + other
            case ast.Name() | ast.Attribute() if (found := self._value(node, local)) is not None:
                return found[1]._text(found[0], local if found[1] is self else {})
        return None

    def _place(self, node: ast.expr, local: _Locals) -> DataPath | None:
        """Return the path that an expression evaluates to, reads or lists; None if it is not about a path."""
        match node:
            case ast.Name(id="__file__") if self._module.path and "__file__" not in local:
                return DataPath(self._module.path, is_whole=True)
            case ast.Name() | ast.Attribute() if (found := self._value(node, local)) is not None:
                return found[1]._place(found[0], local if found[1] is self else {})
            case ast.Attribute(value=of, attr="__file__" | "__path__" as attr):
                target = self._target(of, local)
                module = self._project.module(target.module) if isinstance(target, InModule) else None
                if module is None or module.path is None:
                    return None
                return DataPath(module.path if attr == "__file__" else module.path.parent, is_whole=True)
            case ast.Attribute(attr="project_root") if self._target(node, local) is None:  # of a component's context
                return DataPath(self._project.home, is_whole=True)
            case ast.Attribute(value=of, attr="parent"):
                return self._up(of, 1, local)
            case ast.Subscript(value=ast.Attribute(value=of, attr="parents"), slice=at):
                number = at.value if isinstance(at, ast.Constant) else None
                return self._up(of, number + 1 if isinstance(number, int) and number >= 0 else None, local)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                place = self._place(left, local)
                return None if place is None else place / (self._place(right, local) or self._text(right, local))
            case ast.BinOp(left=left, op=ast.Add()) if (place := self._place(left, local)) is not None:
                more = self._text(node.right, local)
                return self._joined_text(place, more)
            case ast.JoinedStr(values=[ast.FormattedValue(value=first), *rest]):
                place = self._place(first, local)
                texts = [self._text(part, local) for part in rest]
                if place is None:
                    return None
                return self._joined_text(place, None if None in texts else "".join(filter(None, texts)))
            case ast.Starred(value=of) | ast.Subscript(value=of):  # an element of a list
                place = self._place(of, local)
                return None if place is None else DataPath(place.known)
            case ast.Call():
                return self._of_call(node, local)
        return None

    def _joined_text(self, place: DataPath, more: str | None) -> DataPath:
        if place.known is None or not place.is_whole:
            return place
        if more is None:
            return DataPath(place.known)
        return DataPath(place.known.parent, is_whole=True) / f"{place.known.name}{more}"

    def _up(self, of: ast.expr, levels: int | None, local: _Locals) -> DataPath | None:
        place = self._place(of, local)
        if place is None or place.known is None:
            return place
        parents = [*place.known.parents]
        if levels is None or not place.is_whole or levels > len(parents):
            return DataPath(self._project.home)
        return DataPath(parents[levels - 1], is_whole=True)

    def _of_call(self, node: ast.Call, local: _Locals) -> DataPath | None:
        called = self._called(node, local)
        first = _first(node)
        if _PYTHON.fullmatch(called) and not called.startswith("runpy."):  # its first argument is a name
            given = [k.value for k in node.keywords if k.arg in ("location", "path")]
            first = next(iter([*node.args[1:2], *given]), None)
        if called in _ROOT or (called in _PATHS and not node.args):
            return DataPath(self._project.home, is_whole=True)
        if called.startswith(_OF_PACKAGES):
            return self._in_package(node, local)
        if called == "os.path.dirname" and first is not None:
            return self._up(first, 1, local)
        if called in _PATHS or called == "os.path.join":
            return self._below(self._start(first, local), node.args[1:], local) if first is not None else None
        if called in _SAME:
            return None if first is None else self._place(first, local)
        if first is not None and (_READERS.fullmatch(called) or self._is_of_spark(node)):
            return self._start(first, local)
        if isinstance(node.func, ast.Attribute):
            place = self._place(node.func.value, local)
            if place is None:
                return None
            match node.func.attr:
                case "joinpath":
                    return self._below(place, node.args, local)
                case "with_name" | "with_suffix" | "with_stem":
                    return self._renamed(place, node, local)
                case method if method in _SAME_METHODS:
                    return place
        return None

    def _renamed(self, place: DataPath, node: ast.Call, local: _Locals) -> DataPath:
        text = self._text(node.args[0], local) if node.args else None
        if place.known is None or not place.is_whole:
            return place
        if text is None:
            return DataPath(place.known.parent)
        assert isinstance(node.func, ast.Attribute)
        return DataPath(getattr(place.known, node.func.attr)(text), is_whole=True)

    def _start(self, node: ast.expr, local: _Locals) -> DataPath:
        """Return the path that an expression or a text stands for. Relative paths start at the project's root."""
        place = self._place(node, local)
        if place is not None:
            return place
        text = self._text(node, local)
        if text is not None:
            return ELSEWHERE if "://" in text else DataPath(self._project.home, is_whole=True) / text
        begins = self._beginning(node, local)
        if "://" in begins:
            return ELSEWHERE
        folder = begins.rpartition("/")[0]
        return DataPath((DataPath(self._project.home, is_whole=True) / folder).known) if folder else DataPath()

    def _beginning(self, node: ast.expr, local: _Locals) -> str:
        """Return the known beginning of a text that is composed of parts; empty if it is unknown."""
        match node:
            case ast.BinOp(left=left, op=ast.Add()):
                return self._text(left, local) or self._beginning(left, local)
            case ast.JoinedStr(values=[first, *_]):
                return self._text(first, local) or ""
        return ""

    def _below(self, place: DataPath, parts: Sequence[ast.expr], local: _Locals) -> DataPath:
        for part in parts:
            place = place / (self._place(part, local) or self._text(part, local))
        return place

    def _in_package(self, node: ast.Call, local: _Locals) -> DataPath | None:
        """Return the path that a call of `importlib.resources` or `pkgutil` reads: a package's folder or a file."""
        if not node.args:
            return self._folder(self._module.name) if self._called(node, local).endswith(".files") else None
        package = self._package(node.args[0], local)
        if package is None:
            return DataPath()
        folder = self._folder(package)
        return None if folder is None else self._below(folder, node.args[1:], local)

    def _package(self, node: ast.expr, local: _Locals) -> str | None:
        match node:
            case ast.Name(id="__package__" | "__name__"):
                is_package = self._module.is_package
                return self._module.name if is_package else self._module.name.rpartition(".")[0]
        match self._target(node, local):
            case InModule(module):
                return module
            case External(name) if not name.startswith("builtins."):
                return name
        return self._text(node, local)

    def _folder(self, package: str) -> DataPath | None:
        """Return the folder of a package or module of the project; None for a library."""
        folder = self._project.root.joinpath(*package.split("."))
        if folder.is_dir():
            return DataPath(folder, is_whole=True)
        return DataPath(folder.parent, is_whole=True) if folder.with_suffix(".py").is_file() else None

    def _value(self, node: ast.expr, local: _Locals) -> "tuple[ast.expr, _Search] | None":
        """Return the value of a variable or constant, and the `_Search` for the module that defines it.

        Return None if the value is unknown or bound more than once.
        """
        if isinstance(node, ast.Name) and node.id in local:
            key = ("", node.id)
            value = local[node.id]
            if value is None or key in self._under_way:
                return None
            return (value, self) if _is_free_of(value, node.id) else None
        target = self._target(node, local)
        if not isinstance(target, Definition):
            return None
        match [*self._project.statements(target)]:
            case [(module, ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=ast.expr() as value))]:
                here = (target.module, target.name)
                if here in self._under_way:
                    return None
                other = _Search(module, self._project)
                other._under_way = self._under_way | {here}
                return value, other
        return None


def _globs_python(node: ast.AST) -> bool:
    """Return True for calls such as `folder.glob("*.py")`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="glob" | "rglob"), args=[ast.Constant(value=str(text)), *_]):
            return text.endswith(".py")
    return False


def _first(call: ast.Call) -> ast.expr | None:
    """Return the first positional argument of a call, or else a keyword argument for a path, such as `filename`."""
    if call.args:
        return call.args[0]
    return next((keyword.value for keyword in call.keywords if keyword.arg in _NAMES_OF_PATHS), None)


def _is_free_of(node: ast.expr, name: str) -> bool:
    return not any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def _variables(function: ast.AST) -> _Locals:
    """Return the variables of a function, each with its value if one assignment, `with` or loop binds it, else None."""
    found: _Locals = {}
    many: set[str] = set()

    def bind(name: str, value: ast.expr | None) -> None:
        if name in found:
            many.add(name)
        found[name] = value

    assert isinstance(function, (*FUNCTIONS, ast.Lambda))
    for argument in arguments_of(function.args):
        bind(argument.arg, None)
    for node in _inside(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                bind(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                bind(name, value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                bind(name, value)
            case ast.For(target=ast.Name(id=name), iter=of) | ast.comprehension(target=ast.Name(id=name), iter=of):
                bind(name, ast.Starred(of))
            case ast.withitem(optional_vars=ast.Name(id=name), context_expr=value):
                bind(name, value)
    for node in _inside(function):  # variables bound in another way, such as by unpacking
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in found:
            found[node.id] = None
    return {name: None if name in many else value for name, value in found.items()}


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            yield from _inside(child)
