"""The classes of the project: their bases, the class of an object, and methods that change their object.

Does not belong here: the statements that make classes and objects (`effects`).
"""

import ast
from collections.abc import Callable, Iterator

from dagster_tidemark.code_versions.changing_code import changes_itself, names_in
from dagster_tidemark.code_versions.modules import FUNCTIONS, Module
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Project


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
            home = self._project.module(of.module)
            classes = [s for s in (home.bindings[of.name] if home else ()) if isinstance(s, ast.ClassDef)]
            own = any(c.keywords or "__init_subclass__" in names_in(c) for c in classes)
            if own or self.are_looked_up:
                yield of
            for each in classes if home else ():
                assert home is not None
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
                home = self._project.module(of.module)
                for statement in home.bindings[of.name] if home else ():
                    if home and isinstance(statement, ast.ClassDef):
                        yield from self.above(home, statement, seen)
        yield Definition(module.name, node.name), module, node

    def with_bases(self, of: Definition) -> Iterator[Definition]:
        home = self._project.module(of.module)
        for statement in home.bindings.get(of.name, ()) if home else ():
            if home and isinstance(statement, ast.ClassDef):
                yield from (each for each, _, _ in self.above(home, statement))

    def of_object(self, of: Definition) -> Iterator[Definition]:
        """Yield the class of an object that a definition creates by calling the class, and the bases of the class."""
        module = self._project.module(of.module)
        for statement in module.bindings.get(of.name, ()) if module else ():
            match statement:
                case ast.Assign(value=ast.Call(func=made)) | ast.AnnAssign(value=ast.Call(func=made)) if module:
                    if (found := self._definition(module, made)) and found != of:
                        yield from self.with_bases(found)

    def changing_methods(self, of: Definition) -> set[str]:
        """Return the methods of a class that change `self`."""
        if of not in self._methods:
            module = self._project.module(of.module)
            bodies = [s for s in (module.bindings[of.name] if module else ()) if isinstance(s, ast.ClassDef)]
            methods = [m for body in bodies for m in body.body if isinstance(m, FUNCTIONS) and m.args.args]
            self._methods[of] = {m.name for m in methods if changes_itself(m, m.args.args[0].arg)}
        return self._methods[of]
