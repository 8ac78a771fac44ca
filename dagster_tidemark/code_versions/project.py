"""Finds the project's modules, and resolves the names that they use.

Belongs here: following imports through modules, packages and re-exports. Does not belong here: the content of a
definition (`normal_form`).
"""

import ast
import builtins
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagster_tidemark.code_versions.modules import Module, Place, place_of, root_of
from dagster_tidemark.errors import Terminal

MACHINERY = __name__.rpartition(".")[0].rpartition(".")[0]
EVERYTHING = "*"
_IN_FINGERPRINTS = "pipelines.tidemark"  # name of Tidemark's package when the first fingerprints were stored
_PUBLIC_MODULE = re.compile(r"^\.(formats|models|streams)(?=\.\w+$)")  # its public names were in one module then
_BUILTINS = frozenset(dir(builtins))
_OF_MODULES = {"__name__", "__package__", "__doc__", "__annotations__", "__builtins__", "__debug__"}
_OF_FILES = {"__file__", "__path__", "__spec__", "__loader__"}


class NotPython(Terminal):
    """A module of the project cannot be parsed. The message names the file and the line."""


@dataclass(frozen=True)
class Definition:
    """A definition in a module of the project. The name `EVERYTHING` means the whole module with its submodules."""

    module: str
    name: str


@dataclass(frozen=True)
class InModule:
    """A module of the project that a name refers to. Its attributes can be resolved."""

    module: str


@dataclass(frozen=True)
class External:
    """A definition or module of a library, of Python or of Tidemark. Only its dotted name counts."""

    name: str

    @property
    def in_fingerprints(self) -> str:
        """Dotted name in fingerprints. Tidemark's modules keep their former names, so that stored fingerprints stay."""
        below = self.name.removeprefix(MACHINERY)
        if below == self.name or below[:1] not in ("", "."):
            return self.name
        return _IN_FINGERPRINTS + _PUBLIC_MODULE.sub("", below)


@dataclass(frozen=True)
class Files:
    """A data file, or all data files of a folder. Python files are excluded."""

    path: Path


@dataclass(frozen=True)
class Unknown:
    """A name that no statement visibly binds, so it must be bound at run time.

    Args:
        module: The module of the project that must bind the name; empty if it is the module that uses the name.
    """

    name: str
    module: str = ""


Target = Definition | InModule | External | Files | Unknown


class Project:
    """The modules below a folder, except those of Tidemark.

    Args:
        root: The folder where imports start.
        package: The code location's package. It counts as a whole if a reference cannot be resolved.
    """

    def __init__(self, root: Path, package: str) -> None:
        self.root = root
        self.package = package
        self._modules: dict[str, Module | None] = {}

    @property
    def home(self) -> Path:
        """The project's folder, where commands and runs work and relative paths start: above the folder `src`."""
        above = self.root.parent
        is_src = self.root.name == "src" and (above / "pyproject.toml").is_file()
        return above if is_src and not (self.root / "pyproject.toml").is_file() else self.root

    def module(self, name: str) -> Module | None:
        """Return a module of the project by its name; None for other modules.

        Raises:
            NotPython: the module cannot be parsed.
        """
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        if name == MACHINERY or name.startswith(f"{MACHINERY}.") or not name:
            return None
        base = self.root.joinpath(*name.split("."))
        for path, is_package in ((base / "__init__.py", True), (base.with_name(f"{base.name}.py"), False)):
            if path.is_file():
                try:
                    tree = ast.parse(path.read_bytes(), filename=str(path))
                except (SyntaxError, ValueError) as error:
                    line = getattr(error, "lineno", None) or 1
                    raise NotPython(f"{path.relative_to(self.root)}, line {line}: {error}") from error
                return Module(name, path, tree, is_package)
        if base.is_dir() and _has_modules(base):
            return Module(name, None, ast.Module(body=[], type_ignores=[]), True)
        return None

    def statements(self, of: Definition) -> Iterator[tuple[Module, ast.stmt]]:
        """Yield the statements that bind or change a definition, in order, each with its module."""
        if module := self.module(of.module):
            yield from ((module, statement) for statement in module.bindings.get(of.name, ()))

    def modules_below(self, package: str) -> Iterator[Module]:
        """Yield a package's module and its submodules, in the order of names."""
        module = self.module(package)
        if module is None:
            return
        yield module
        if module.is_package:
            folder = self.root.joinpath(*package.split("."))
            below = {p.stem for p in folder.glob("*.py") if p.stem != "__init__"}
            below |= {p.name for p in folder.iterdir() if p.is_dir() and p.name.isidentifier() and _has_modules(p)}
            for name in sorted(below):
                yield from self.modules_below(f"{package}.{name}")

    def modules_in_use(self) -> list[Module]:
        """Return the modules of the package, and the project's modules that they import, directly or indirectly."""
        found = {module.name: module for module in self.modules_below(self.package)}
        waiting = [*found.values()]
        while waiting:
            for dotted in waiting.pop().imported_modules():
                parts = dotted.split(".")
                for name in (".".join(parts[: number + 1]) for number in range(len(parts))):
                    if name not in found and (module := self.module(name)):
                        found[name] = module
                        waiting.append(module)
        return [found[name] for name in sorted(found)]

    def named(self, dotted: str) -> Target:
        """Return what an absolute dotted name refers to."""
        first, *rest = dotted.split(".")
        target: Target = InModule(first) if self.module(first) else External(first)
        for number, name in enumerate(rest):
            if isinstance(target, InModule):
                target = self.attribute(target.module, name)
            elif isinstance(target, External):
                return External(dotted)
            else:
                return target if number else External(dotted)
        return target

    def attribute(self, module: str, name: str) -> Target:
        """Return what `module.name` refers to."""
        return self._attribute(module, name, frozenset())

    def _attribute(self, module: str, name: str, under_way: frozenset[tuple[str, str]]) -> Target:
        found = self.module(module)
        if found is None:
            return External(f"{module}.{name}")
        bound = self._bound(found, name, under_way)
        if bound is not None:
            return bound
        below = f"{module}.{name}"
        if self.module(below):
            return InModule(below)
        if below == MACHINERY:
            return External(below)
        if "__getattr__" in found.bindings:
            return Definition(module, EVERYTHING)
        is_given = name in found.for_types or (name.startswith("__") and name.endswith("__"))
        return Unknown(name, "" if is_given else module)

    def name(self, module: Module, name: str) -> Target:
        """Return what a global name refers to in a module."""
        bound = self._bound(module, name, frozenset())
        if bound is not None:
            return bound
        if name in _OF_FILES and module.path:
            return Files(module.path.parent)
        if name in _BUILTINS or name in _OF_MODULES:
            return External(f"builtins.{name}")
        if name in module.for_types:  # the type of a field, which no code looks up at run time
            return External(f"typing.{name}")
        return Unknown(name)

    def _bound(self, module: Module, name: str, under_way: frozenset[tuple[str, str]]) -> Target | None:
        if name in module.bindings:
            return Definition(module.name, name)
        here = (module.name, name)
        if here in under_way:
            return None
        if name in module.imports:
            later = self._starred(module, name, module.places[name], under_way | {here})
            return later or self.imported(*module.imports[name], under_way | {here})
        # The last import wins, but the project's modules are searched first, because only their names can be read.
        stars = module.stars[::-1]
        for star in sorted(stars, key=lambda star: self.module(star) is None):
            if self.module(star) is None:
                if name not in _BUILTINS and not star.startswith(f"{MACHINERY}."):
                    return External(f"{star}.{name}")
            elif found := self._of_star(star, name, under_way | {here}):
                return found
        return None

    def _of_star(self, star: str, name: str, under_way: frozenset[tuple[str, str]]) -> Target | None:
        """Return what a name of a module of the project refers to, if `*` imports it."""
        module = self.module(star)
        found = self._attribute(star, name, under_way) if module and module.exports(name) else None
        return None if isinstance(found, Unknown) else found

    def _starred(
        self, module: Module, name: str, after: Place, under_way: frozenset[tuple[str, str]] = frozenset()
    ) -> Target | None:
        """Return what the last `*` after a place binds a name to. Only modules of the project can be read."""
        for star, place in zip(module.stars[::-1], module.star_places[::-1], strict=True):
            if place > after and (found := self._of_star(star, name, under_way)):
                return found
        return None

    def import_of(self, module: Module, name: str) -> Target | None:
        """Return what the imports of a module bind a name to, whatever other statements bind it."""
        if name in module.imports:
            return self.imported(*module.imports[name])
        return self._starred(module, name, (0, 0), frozenset({(module.name, name)}))

    def later_star(self, module: Module, name: str) -> Target | None:
        """Return what a `*` after the first statement that binds a name binds it to, if there is one."""
        return self._starred(module, name, place_of(module.bindings[name][0]), frozenset({(module.name, name)}))

    def imported(
        self, module: str, attribute: str | None, under_way: frozenset[tuple[str, str]] = frozenset()
    ) -> Target:
        """Return what an imported name refers to."""
        if attribute is None:
            return self.named(module)
        return self._attribute(module, attribute, under_way)

    def target_of(self, module: Module, node: ast.AST, of_root: Target | None = None) -> Target | None:
        """Return what an expression such as `name`, `module.name` or `name[item]` refers to, if it begins with a name.

        Args:
            of_root: The target of its first name, if this is not the global name of the module.
        """
        root = root_of(node)
        if root is None:
            return None
        target = of_root or self.name(module, root.id)
        attributes: list[str] = []
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            if isinstance(node, ast.Attribute):
                attributes.append(node.attr)
            node = node.func if isinstance(node, ast.Call) else node.value
        return self.follow(target, attributes[::-1])[0]

    def follow(self, target: Target, attributes: Sequence[str]) -> tuple[Target, Sequence[str]]:
        """Return what an attribute chain of a target refers to, and the attributes that cannot be resolved."""
        while attributes and isinstance(target, InModule | External):
            name, *attributes = attributes
            if isinstance(target, External):
                target = External(f"{target.name}.{name}")
            else:
                target = self.attribute(target.module, name)
        return target, attributes

    def external_name(self, module: Module, node: ast.AST) -> str:
        """Return the dotted name of a library's object, such as `a.b` for `a.b[c]`; empty for other objects."""
        target = self.target_of(module, node)
        return target.name if isinstance(target, External) else ""

    def is_class(self, of: Definition) -> bool:
        """Return True if a definition is a class."""
        return any(isinstance(statement, ast.ClassDef) for _, statement in self.statements(of))

    def label(self, module: str) -> str:
        """Return the file of a module, relative to the project's root."""
        found = self.module(module)
        path = found.path if found and found.path else self.root.joinpath(*module.split("."))
        return path.relative_to(self.root).as_posix()

    def content(self, files: Files) -> str:
        """Return a hash of the content of data files."""
        if files.path.is_file():
            return hashlib.sha256(files.path.read_bytes()).hexdigest()
        digest = hashlib.sha256()
        for path in self.files_in(files.path):
            below = path.relative_to(files.path).as_posix()
            digest.update(f"{below}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def files_in(self, folder: Path) -> Iterator[Path]:
        """Yield the files below a folder that are neither hidden nor Python, nor of Tidemark, in the order of names."""
        machinery = self.root.joinpath(*MACHINERY.split("."))
        for path in (p for p in sorted(folder.rglob("*")) if not p.is_relative_to(machinery)):
            parts = path.relative_to(folder).parts
            hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
            if path.is_file() and not hidden and path.suffix not in (".py", ".pyc"):
                yield path


def _has_modules(folder: Path) -> bool:
    """Return True if a folder has modules, in it or below: Python needs no `__init__.py` to import them."""
    return any(folder.rglob("*.py"))
