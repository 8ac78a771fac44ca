"""Follows references through the project, and hashes all definitions and files found.

Belongs here: following references. Docstrings and names of functions count only if code reads them as values, such as a
query kept in a docstring. Does not belong here: the text of a definition (`normal_form`), and the definitions
where the code of an asset begins (`assets`).
"""

import ast
import hashlib
import os
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dagster_tidemark.code_versions.data_files import data_files
from dagster_tidemark.code_versions.effects import Effect, effects_in
from dagster_tidemark.code_versions.given_resources import given_resources
from dagster_tidemark.code_versions.library_changes import OF_FORMATS, library_changes
from dagster_tidemark.code_versions.modules import FUNCTIONS, Module, place_of
from dagster_tidemark.code_versions.normal_form import NormalForm, form_of, import_form, is_constant, reference_to
from dagster_tidemark.code_versions.options import (
    ANNOTATIONS,
    DOCSTRINGS,
    MODULES,
    NAMES,
    SOURCE,
    is_option_read,
    reads_in,
)
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Files, InModule, Project
from dagster_tidemark.code_versions.references import (
    Attribute,
    Given,
    Inlined,
    LibraryChange,
    Ref,
    as_counted,
    as_named,
)


@dataclass(frozen=True, eq=False)
class _Node:
    """A definition in the code of an asset.

    Args:
        label: The definition's name in messages.
        text: The definition's normal form. References are written as names, without the content of other definitions.
        undecided: Lines that read a file whose path is only known at run time.
        docs: The definition's docstrings. They count only if code of the asset reads docstrings.
        names: The names in a module. They count only if code of the asset uses a module as a value.
        reads: Parts of other definitions that the definition reads; see `options`.
    """

    label: str
    text: str
    refs: tuple[Ref, ...] = ()
    undecided: tuple[str, ...] = ()

    docs: str = ""
    names: str = ""
    reads: frozenset[str] = frozenset()

    @property
    def hash(self) -> str:
        """Hash of this definition alone, which reports use to name changed definitions."""
        return _hash(as_named(self.text))

    def counted(self, reads: Collection[str]) -> str:
        """Return the hash of the parts that count in a fingerprint.

        Args:
            reads: Parts of definitions that any definition of the fingerprint reads.
        """
        name = self.label.rpartition(": ")[2] if NAMES in reads else ""
        docs, names = self.docs if DOCSTRINGS in reads else "", self.names if MODULES in reads else ""
        return _hash(name + as_counted(self.text) + docs + names)


@dataclass(frozen=True)
class Fingerprint:
    """Hash of the code that computes an asset.

    Args:
        digest: Hash of all definitions and the references between them.
        definitions: Short hash of each definition, by label.
        undecided: Lines that read a file outside of the project, or with a path that is only known at run time.
    """

    digest: str
    definitions: Mapping[str, str] = field(default_factory=dict)
    undecided: tuple[str, ...] = field(default=(), compare=False)


class Code:
    """The project's definitions as nodes. Each node is made once, on first use."""

    def __init__(self, project: Project, written: frozenset[str] = frozenset()) -> None:
        self.project = project
        self._written = written
        self._nodes: dict[Ref, _Node] = {}
        self._constants: dict[Definition, str | None] = {}
        self._others: dict[frozenset[str], Code] = {}

    def fingerprint(self, *starts: Ref) -> Fingerprint:
        """Return the fingerprint of definitions and their direct and indirect references.

        Definitions are numbered in the order of discovery. The hash therefore includes the references between
        definitions, but neither their location nor the names of modules.
        """
        reached = self._reached(starts)
        counted = [node for ref, node in reached.items() if not isinstance(ref, Inlined)]
        numbers = {id(node): number for number, node in enumerate(counted)}
        reads = {what for node in counted for what in node.reads}
        if more := {read for read in reads if read == ANNOTATIONS or is_option_read(read)} - self._written:
            return self._with(self._written | more).fingerprint(*starts)
        digest = hashlib.sha256()
        for node in counted:
            refs = ",".join(str(numbers[id(self._node(ref))]) for ref in node.refs if not isinstance(ref, Inlined))
            digest.update(f"{node.counted(reads)}:{refs};".encode())
        if SOURCE in reads:
            digest.update("".join(map(self._source, reached)).encode(errors="surrogatepass"))
        named = {node.label: node.hash[:12] for node in reached.values()}
        if DOCSTRINGS in reads:
            named |= {f"{node.label} (docstring)": _hash(node.docs)[:12] for node in counted if node.docs}
        undecided = tuple(f"{node.label}, {line}" for node in counted for line in node.undecided)
        return Fingerprint(digest.hexdigest()[:16], dict(sorted(named.items())), undecided)

    def _source(self, ref: Ref) -> str:
        """Return the text of a definition with its comments; empty for other references."""
        module = self.project.module(ref.module) if isinstance(ref, Definition) else None
        if module is None or module.path is None or not isinstance(ref, Definition):
            return ""
        text = module.path.read_text()
        if ref.name == EVERYTHING:
            return text
        lines, statements = text.splitlines(), module.bindings[ref.name]
        return "\n".join(line for each in statements for line in lines[each.lineno - 1 : each.end_lineno])

    def hash_of(self, of: Definition | Files) -> str:
        """Return the hash of a definition or file alone, without its references."""
        return self._node(of).hash

    def definitions(self, *starts: Ref) -> dict[str, Ref]:
        """Return the start definitions and their direct and indirect references, by label."""
        return {node.label: ref for ref, node in self._reached(starts).items()}

    def _reached(self, starts: Iterable[Ref]) -> dict[Ref, _Node]:
        """Return the start definitions and their direct and indirect references, in the order of discovery."""
        found: dict[Ref, _Node] = {}
        waiting = deque(starts)
        while waiting:
            ref = waiting.popleft()
            if ref not in found:
                found[ref] = self._node(ref)
                waiting.extend(found[ref].refs)
        return found

    def _node(self, ref: Ref) -> _Node:
        if ref not in self._nodes:
            match ref:
                case Attribute(label, value):
                    self._nodes[ref] = _Node(label, value)
                case Files():
                    self._nodes[ref] = self._of_files(ref)
                case Given(name):
                    self._nodes[ref] = self._of_resource(name)
                case LibraryChange(module, statement, label=label):
                    found = self.project.module(module)
                    assert found is not None
                    self._nodes[ref] = _joined(label, [self._form([statement], found)])
                case Inlined(definition):
                    self._nodes[ref] = replace(self._of_definition(definition), refs=())
                case Definition():
                    self._nodes[ref] = self._of_definition(ref)
        return self._nodes[ref]

    def constant(self, of: Definition) -> str | None:
        """Return the normal form of a definition's value if it is a constant that no code changes, else None."""
        if of not in self._constants:
            self._constants[of] = self._constant(of)
        return self._constants[of]

    def _constant(self, of: Definition) -> str | None:
        module = self.project.module(of.module)
        statements = module.bindings.get(of.name, []) if module else []
        if module is None or len(statements) != 1 or of.name in module.imports or self._effects.get(of):
            return None
        match statements[0]:
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=ast.expr() as value):
                is_last = not self.project.later_star(module, of.name)
                if is_constant(value) and is_last and of.name not in module.bound_by_functions:
                    return form_of([value], module, self.project).text
        return None

    def _with(self, written: frozenset[str]) -> "Code":
        """Return the code of the project with these parts also in the normal form, because code reads them."""
        if written not in self._others:
            other = self._others[written] = Code(self.project, written)
            other._others, other._effects, other._library_changes = self._others, self._effects, self._library_changes
        return self._others[written]

    @cached_property
    def _library_changes(self) -> list[LibraryChange]:
        return library_changes(self.project)

    @cached_property
    def _effects(self) -> Mapping[Definition, list[Effect]]:
        return effects_in(self.project)

    @property
    def registered_formats(self) -> list[LibraryChange]:
        """Statements that register file formats of the project with Tidemark."""
        return [change for change in self._library_changes if OF_FORMATS in change.names]

    def _form(self, nodes: Iterable[ast.AST], module: Module) -> NormalForm:
        nodes = list(nodes)
        read = data_files(nodes, module, self.project)
        form = form_of(nodes, module, self.project, self.constant, self._written, read.spent)
        reads = reads_in(nodes, form.externals, uses_module="@module" in form.text)
        changes = self._changes_used(nodes, form.externals)
        return replace(form, refs=(*form.refs, *read.files, *changes), undecided=tuple(read.undecided), reads=reads)

    def _changes_used(self, nodes: Iterable[ast.AST], externals: Collection[str]) -> list[LibraryChange]:
        """Return the changes of libraries that code with these names may use."""
        if not self._library_changes:
            return []
        words = {n.attr for each in nodes for n in ast.walk(each) if isinstance(n, ast.Attribute)}
        return [change for change in self._library_changes if change.affects(words, externals)]

    def _of_files(self, files: Files) -> _Node:
        is_below = files.path.is_relative_to(self.project.root)
        label = os.path.relpath(files.path, self.project.root if is_below else self.project.home)
        return _Node(f"{label}/ (files)" if files.path.is_dir() else label, self.project.content(files))

    @cached_property
    def resources(self) -> Mapping[str, Mapping[Module, list[ast.expr]]]:
        """Values of the resources in the code location's definitions, by name and module."""
        return given_resources(self.project)

    def _of_resource(self, name: str) -> _Node:
        given = self.resources[name]
        label = f"{self.project.label(next(iter(given)).name)}: resource {name}"
        return _joined(label, [self._form(values, module) for module, values in given.items()])

    def _of_definition(self, of: Definition) -> _Node:
        module = self.project.module(of.module)
        assert module is not None, of
        if of.name == EVERYTHING:
            return self._of_module(module)
        statements = module.bindings[of.name]
        forms = [self._form([statement], module) for statement in statements]
        if of.name in module.imports or isinstance(statements[0], ast.AugAssign):
            imported = self.project.import_of(module, of.name)
            place = module.places.get(of.name, (0, 0))
            before = sum(place_of(statement) < place for statement in statements)
            forms[before:before] = [import_form(imported)] if imported else []
        if later := self.project.later_star(module, of.name):
            forms.append(import_form(later))
        here = [e for e in self._effects.get(of, ()) if e.module == of.module]
        elsewhere = [e for e in self._effects.get(of, ()) if e.module != of.module]
        forms += map(self._of_effect, here)
        forms += sorted(map(self._of_effect, elsewhere), key=lambda form: form.text)  # any import order is possible
        is_function = any(isinstance(statement, FUNCTIONS) for statement in statements)
        node = _joined(f"{self.project.label(of.module)}: {of.name}{'()' if is_function else ''}", forms)
        return replace(node, docs=_docstrings(statements, module))

    def _of_effect(self, effect: Effect) -> NormalForm:
        module = self.project.module(effect.module)
        assert module is not None
        if not effect.defines:
            return self._form([effect.statement], module)
        marked = self._form(getattr(effect.statement, "decorator_list", ()), module)
        mention = reference_to(effect.defines, Definition(effect.module, effect.defines))
        return replace(marked, text=marked.text + mention.text, refs=marked.refs + mention.refs)

    def _of_module(self, module: Module) -> _Node:
        """Return the node of a whole module and its submodules, for code that looks names up at run time."""
        forms = [reference_to(name, Definition(module.name, name)) for name in sorted(module.bindings)]
        forms += [import_form(self.project.imported(*module.imports[name])) for name in sorted(module.imports)]
        stars = [star for star in module.stars if self.project.module(star)]
        forms += [import_form(InModule(star)) for star in stars]
        forms += [self._form([statement], module) for statement in module.others]
        effects = self._effects.get(Definition(module.name, EVERYTHING), ())
        forms += sorted((self._of_effect(e) for e in effects if e.module != module.name), key=lambda form: form.text)
        below = [found for found in self.project.modules_below(module.name) if found is not module]
        forms += [NormalForm("@module", (Definition(found.name, EVERYTHING),)) for found in below]
        node = _joined(f"{self.project.label(module.name)}: all of it", forms)
        return replace(node, names=",".join(sorted({*module.bindings, *module.imports})))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _joined(label: str, forms: Iterable[NormalForm]) -> _Node:
    forms = list(forms)
    refs = tuple(ref for form in forms for ref in form.refs)
    reads = frozenset(what for form in forms for what in form.reads)
    undecided = tuple(line for form in forms for line in form.undecided)
    return _Node(label, ";".join(form.text for form in forms), refs, undecided, reads=reads)


def _docstrings(statements: Sequence[ast.stmt], module: Module) -> str:
    """Return the docstrings in some statements, in order.

    The module's docstring is added if the statements use the name `__doc__`.
    """
    nodes = [node for statement in statements for node in ast.walk(statement)]
    found = [ast.get_docstring(node) for node in nodes if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    if any(isinstance(node, ast.Name) and node.id == "__doc__" for node in nodes):
        found.append(ast.get_docstring(module.tree))
    return "\n".join(filter(None, found))
