"""Resolves references inside functions and classes: names, attribute chains, and texts that name a definition.

Belongs here: collecting references. An ambiguous reference counts as a reference to the whole module. Does not belong
here: following imports from module to module (`project`).
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from dagster_tidemark.code_versions.modules import Module
from dagster_tidemark.code_versions.project import (
    EVERYTHING,
    Definition,
    External,
    Files,
    InModule,
    Project,
    Target,
    Unknown,
)
from dagster_tidemark.code_versions.scopes import NameScope

_READS_MODULE = ("builtins.globals", "builtins.eval", "builtins.exec", "sys.modules")
_READS_ANY_MODULE = ("sys.modules", "sys._getframe", "inspect.currentframe", "inspect.getmodule", "inspect.stack")
_GLOBALS = {"__globals__", "f_globals", "f_builtins"}
_IMPORTS = (
    "importlib.import_module",
    "builtins.__import__",
    "runpy.",
    "pydoc.locate",
    "pkgutil.",
    "importlib.machinery.SourceFileLoader",
    "importlib.metadata.entry_points",
    "importlib.util.spec_from_file_location",
)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?")


@dataclass(frozen=True)
class Inlined:
    """A constant whose value is written into the code that uses it.

    Reports list it by name, but the fingerprint does not count it separately.
    """

    definition: Definition


@dataclass(frozen=True)
class Given:
    """A resource, by name. Its code is the value that the code location's definitions give it."""

    name: str


@dataclass(frozen=True)
class LibraryChange:
    """A statement of the project that changes a library, such as `DataFrame.with_tax = with_tax`.

    Args:
        module: The module of the statement.
        names: Names of the attributes that it sets.
        library: Name of the library whose users are all affected; empty if only users of `names` are.
        label: The changed name, for messages.
    """

    module: str
    statement: ast.stmt
    names: frozenset[str]
    library: str
    label: str

    def affects(self, words: Collection[str], externals: Collection[str]) -> bool:
        """Return True if code with these attributes and names of libraries may use what the statement changes."""
        if not self.names.isdisjoint(words) or any(name.rpartition(".")[2] in self.names for name in externals):
            return True
        return bool(self.library) and any(f"{name}.".startswith(f"{self.library}.") for name in externals)


@dataclass(frozen=True)
class Attribute:
    """An attribute of a component.

    Args:
        label: The file of the component and the attribute's name.
        value: The attribute's value as JSON.
    """

    label: str
    value: str


Ref = Attribute | Definition | Files | Given | Inlined | LibraryChange
Constants = Callable[[Definition], str | None]
"""Function that returns the normal form of a definition's value if it is a constant that no code changes, else None."""


def no_constants(_: Definition) -> str | None:
    """Return None, so that no definition counts as a constant."""
    return None


def either(named: str, counted: str) -> str:
    """Return a piece of a normal form with two texts: one for the definition's hash, one for the fingerprint.

    The first text has the name of the used definition instead of its content, so that reports list only the definition
    that changed. Control characters separate the texts, because normal forms contain none.
    """
    return f"\1{named}\2{counted}\3"


def as_named(text: str) -> str:
    """Return the normal form for a definition's own hash: with the names of other definitions."""
    return _EITHER.sub(r"\1", text)


def as_counted(text: str) -> str:
    """Return the normal form for fingerprints: without the names of other definitions."""
    return _EITHER.sub(r"\2", text)


_EITHER = re.compile("\1([^\1\2\3]*)\2([^\1\2\3]*)\3")


class References:
    """Collector of references, in the order of the code.

    Args:
        scopes: Scopes around the current position, the innermost last.
    """

    def __init__(
        self, module: Module, project: Project, scopes: Sequence[NameScope], constants: Constants = no_constants
    ) -> None:
        self.found: list[Ref] = []
        self.externals: set[str] = set()
        self.own_module = False
        """True while the code is `sys.modules[__name__]`, which is only the module itself."""

        self._module = module
        self._project = project
        self._scopes = scopes
        self._constants = constants

    def local(self, name: str) -> str:
        """Return the text for a variable: its number in the scope that binds it, or its name if the name may matter."""
        for depth, scope in reversed([*enumerate(self._scopes)]):
            if name in scope.variables and not (scope.is_class and scope is not self._scopes[-1]):
                return f"${depth}.{scope.number(name)}" if name in scope.numbered else name
        return name

    def target(self, name: str) -> Target | None:
        """Return what a name refers to; None for variables of functions and attributes of classes."""
        for scope in reversed(self._scopes):
            if scope.is_class and scope is not self._scopes[-1]:
                continue
            if name in scope.variables:
                return None
            if name in scope.imports:
                return self._project.imported(*scope.imports[name])
        return self._project.name(self._module, name)

    def target_of(self, node: ast.expr) -> Target | None:
        """Return what a name or a whole attribute chain refers to; None if it cannot be resolved to the end."""
        root, attributes = parts_of(node)
        target = self.target(root.id) if isinstance(root, ast.Name) else None
        if target is None:
            return None
        target, left = self._project.follow(target, attributes)
        return None if left else target

    def mention(self, target: Target, attributes: Sequence[str] = ()) -> str:
        """Record a reference to a target, and return the text that represents the target in the normal form.

        Returns:
            The target's own name, whatever its alias and its module; for a constant also its value.
        """
        more = "".join(f".{name}" for name in attributes)
        match target:
            case Definition(_, name):
                value = self._constants(target)
                self.found.append(target if value is None else Inlined(target))
                return f"{either(f'@{name}', '@' if value is None else value)}{more}"
            case InModule(module):
                self.found.append(Definition(module, EVERYTHING))
                return "@module"
            case Files():
                self.found.append(target)
                return f"@files{more}"
            case External(name):
                self.externals.add(name)
                if name.startswith(_READS_MODULE):
                    self.found.append(Definition(self._module.name, EVERYTHING))
                is_import = name.startswith(_IMPORTS) and name != "pkgutil.get_data"
                if is_import or (name.startswith(_READS_ANY_MODULE) and not self.own_module):
                    self.any_module()
                return f"!{target.in_fingerprints}"
            case Unknown(name, of):  # any line of the module may bind the name at run time
                self.found.append(Definition(of or self._module.name, EVERYTHING))
                return f"?{name}{more}"

    def any_module(self) -> None:
        """Record references to all modules of the package, for code that may use any module."""
        packages = dict.fromkeys([self._project.package, self._module.name.partition(".")[0]])
        self.found += [Definition(package, EVERYTHING) for package in packages if self._project.module(package)]

    def reads_globals(self, attributes: Collection[str]) -> None:
        """Record references to all modules if attributes give the names of a function's module."""
        if not _GLOBALS.isdisjoint(attributes):
            self.any_module()

    def imports(self, target: Target | None, beginning: str) -> None:
        """Record a reference to a module outside the package that code imports by a name with a known beginning.

        `mention` adds the whole package, and `in_text` adds modules with a dotted name.
        """
        if not (isinstance(target, External) and target.name.startswith(_IMPORTS)):
            return
        names = [name for name in (beginning, beginning.rpartition(".")[0]) if self._project.module(name)]
        if (
            names
            and beginning.partition(".")[0] != self._project.package
            and (names[0] != beginning or "." not in names[0])
        ):
            self.found.append(Definition(names[0], EVERYTHING))

    def in_text(self, text: str) -> None:
        """Record references to definitions that a text names as `package.module.name`. `data_files` collects files."""
        self.found.extend(self._named_in(text))

    def _named_in(self, text: str) -> Iterator[Ref]:
        """Yield the definition or module of the project that a text names as `package.module.name`."""
        if _DOTTED.fullmatch(text) and self._project.module(text.partition(".")[0]):
            target = self._project.named(text.replace(":", "."))
            if isinstance(target, InModule):
                yield Definition(target.module, EVERYTHING)
            elif isinstance(target, Definition):
                yield target


def parts_of(node: ast.expr) -> tuple[ast.expr, list[str]]:
    """Return the leftmost part of an expression such as `a.b.c`, and the attributes after it."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return node, attributes[::-1]
