"""What a mention leads to, from inside functions and classes: a name, attributes of it, or a text that names something.

Belongs here: what is mentioned, and that all of a module counts where nobody can tell. Does not belong here: following
imports from module to module (`project`).
"""

import ast
import re
from collections.abc import Iterator, Sequence

from pipelines.tidemark.code_versions.modules import Module
from pipelines.tidemark.code_versions.project import (
    EVERYTHING,
    Definition,
    External,
    Files,
    InModule,
    Project,
    Target,
    Unknown,
)
from pipelines.tidemark.code_versions.scopes import Scope

_READS_MODULE = ("builtins.globals", "builtins.eval", "builtins.exec", "sys.modules")
_IMPORTS = ("importlib.import_module", "builtins.__import__", "runpy.", "pydoc.locate", "pkgutil.")
_READS_FILES = ("importlib.resources.", "pkgutil.get_data")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(:[A-Za-z_]\w*)?")

Ref = Definition | Files


class References:
    """Collects what is mentioned, in order.

    Args:
        scopes: Those that the writer is in, the innermost last.
    """

    def __init__(self, module: Module, project: Project, scopes: Sequence[Scope]) -> None:
        self.found: list[Ref] = []
        self._module = module
        self._project = project
        self._scopes = scopes

    def target(self, name: str) -> Target | None:
        """What a name leads to; None where it is a variable of a function, or an attribute of a class."""
        for scope in reversed(self._scopes):
            if scope.is_class and scope is not self._scopes[-1]:
                continue
            if name in scope.variables:
                return None
            if name in scope.imports:
                return self._project.imported(*scope.imports[name])
        return self._project.name(self._module, name)

    def target_of(self, node: ast.expr) -> Target | None:
        """What a name or attributes of one lead to, as far as that is one thing."""
        root, attributes = parts_of(node)
        target = self.target(root.id) if isinstance(root, ast.Name) else None
        if target is None:
            return None
        target, left = self.follow(target, attributes)
        return None if left else target

    def follow(self, target: Target, attributes: Sequence[str]) -> tuple[Target, Sequence[str]]:
        while attributes and isinstance(target, InModule | External):
            name, *attributes = attributes
            if isinstance(target, External):
                target = External(f"{target.name}.{name}")
            else:
                target = self._project.attribute(target.module, name)
        return target, attributes

    def mention(self, target: Target, attributes: Sequence[str] = ()) -> str:
        """Collect what something leads to.

        Returns:
            What stands for it: its own name, by whatever alias; where it is, is no part of it.
        """
        more = "".join(f".{name}" for name in attributes)
        match target:
            case Definition(_, name):
                self.found.append(target)
                return f"@{name}{more}"
            case InModule(module):
                self.found.append(Definition(module, EVERYTHING))
                return "@module"
            case Files():
                self.found.append(target)
                return f"@files{more}"
            case External(name):
                if name.startswith(_READS_MODULE):
                    self.found.append(Definition(self._module.name, EVERYTHING))
                if name.startswith(_IMPORTS):
                    self.found.append(Definition(self._project.package, EVERYTHING))
                if name.startswith(_READS_FILES) and self._module.path:
                    self.found.append(Files(self._module.path.parent))
                return f"!{name}"
            case Unknown(name):  # bound by something at run time, so any line of the module may be it
                self.found.append(Definition(self._module.name, EVERYTHING))
                return f"?{name}{more}"

    def in_text(self, text: str) -> None:
        """Collect what a text names of the project: `package.module.name`, or a file by its path from the root."""
        self.found.extend(self._named_in(text))

    def _named_in(self, text: str) -> Iterator[Ref]:
        """What a text names of the project: `package.module.name`, or a file by its path from the root."""
        if _DOTTED.fullmatch(text) and self._project.module(text.partition(".")[0]):
            target = self._project.named(text.replace(":", "."))
            if isinstance(target, InModule):
                yield Definition(target.module, EVERYTHING)
            elif isinstance(target, Definition):
                yield target
        elif re.fullmatch(r"[\w.-]+(/[\w.-]+)+", text) and ".." not in text:
            path = self._project.root / text
            if path.suffix != ".py" and path.is_file():
                yield Files(path)


def parts_of(node: ast.expr) -> tuple[ast.expr, list[str]]:
    """The left end of `a.b.c`, and the attributes."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return node, attributes[::-1]
