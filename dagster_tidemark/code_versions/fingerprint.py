"""Follows references through the project, and hashes all definitions and files found.

Belongs here: following references. Docstrings and names of functions count only if code reads them as values, such as a
query kept in a docstring. Does not belong here: the text of a definition (`normal_form`), and the definitions
where the code of an asset begins (`assets`).
"""

import ast
import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dagster_tidemark.code_versions.data_files import data_files
from dagster_tidemark.code_versions.effects import Effect, effects_in
from dagster_tidemark.code_versions.given_resources import given_resources
from dagster_tidemark.code_versions.modules import FUNCTIONS, Module, place_of
from dagster_tidemark.code_versions.normal_form import NormalForm, form_of, import_form, is_constant, reference_to
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Files, Project
from dagster_tidemark.code_versions.references import Attribute, Given, Inlined, Ref, as_counted, as_named

_DOCS = {"__doc__", "getdoc", "getsource"}
_NAMES = {"__name__", "__qualname__"}


@dataclass(frozen=True, eq=False)
class _Node:
    """A definition in the code of an asset.

    Args:
        label: The definition's name in messages.
        text: The definition's normal form. References are written as names, without the content of other definitions.
        undecided: Lines that read a file whose path is only known at run time.
        docs: The definition's docstrings. They count only if code of the asset reads docstrings.
        reads: `docstrings` if the definition reads docstrings, `names` if it reads names of functions.
    """

    label: str
    text: str
    refs: tuple[Ref, ...] = ()
    undecided: tuple[str, ...] = ()

    docs: str = ""
    reads: frozenset[str] = frozenset()

    @property
    def hash(self) -> str:
        """Hash of this definition alone, which reports use to name changed definitions."""
        return _hash(as_named(self.text))

    def counted(self, reads: Collection[str]) -> str:
        """Return the hash of the parts that count in a fingerprint.

        Args:
            reads: `docstrings` if any definition of the fingerprint reads docstrings, and `names` likewise.
        """
        name = self.label.rpartition(": ")[2] if "names" in reads else ""
        return _hash(name + as_counted(self.text) + (self.docs if "docstrings" in reads else ""))


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

    def __init__(self, project: Project) -> None:
        self.project = project
        self._nodes: dict[Ref, _Node] = {}
        self._constants: dict[Definition, str | None] = {}

    def fingerprint(self, *starts: Ref) -> Fingerprint:
        """Return the fingerprint of definitions and their direct and indirect references.

        Definitions are numbered in the order of discovery. The hash therefore includes the references between
        definitions, but neither their location nor the names of modules.
        """
        reached = self._reached(starts)
        counted = [node for ref, node in reached.items() if not isinstance(ref, Inlined)]
        numbers = {id(node): number for number, node in enumerate(counted)}
        reads = {what for node in counted for what in node.reads}
        digest = hashlib.sha256()
        for node in counted:
            refs = ",".join(str(numbers[id(self._node(ref))]) for ref in node.refs if not isinstance(ref, Inlined))
            digest.update(f"{node.counted(reads)}:{refs};".encode())
        named = {node.label: node.hash[:12] for node in reached.values()}
        if "docstrings" in reads:
            named |= {f"{node.label} (docstring)": _hash(node.docs)[:12] for node in counted if node.docs}
        undecided = tuple(f"{node.label}, {line}" for node in counted for line in node.undecided)
        return Fingerprint(digest.hexdigest()[:16], dict(sorted(named.items())), undecided)

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

    @cached_property
    def _effects(self) -> Mapping[Definition, list[Effect]]:
        return effects_in(self.project)

    def _form(self, nodes: Iterable[ast.AST], module: Module) -> NormalForm:
        nodes = list(nodes)
        form, read = form_of(nodes, module, self.project, self.constant), data_files(nodes, module, self.project)
        return NormalForm(form.text, (*form.refs, *read.files), tuple(read.undecided))

    def _of_files(self, files: Files) -> _Node:
        label = files.path.relative_to(self.project.root).as_posix()
        return _Node(f"{label}/ (files)" if files.path.is_dir() else label, self.project.content(files))

    @cached_property
    def resources(self) -> Mapping[str, tuple[Module, list[ast.expr]]]:
        """Values of the resources in the code location's definitions, by name."""
        return given_resources(self.project)

    def _of_resource(self, name: str) -> _Node:
        module, values = self.resources[name]
        return _joined(f"{self.project.label(module.name)}: resource {name}", [self._form(values, module)])

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
        reads = {"docstrings": _reads_docstrings(statements), "names": _reads_names(statements)}
        found = frozenset(what for what, is_read in reads.items() if is_read)
        return replace(node, docs=_docstrings(statements, module), reads=found)

    def _of_effect(self, effect: Effect) -> NormalForm:
        module = self.project.module(effect.module)
        assert module is not None
        if not effect.defines:
            return self._form([effect.statement], module)
        marked = self._form(getattr(effect.statement, "decorator_list", ()), module)
        mention = reference_to(effect.defines, Definition(effect.module, effect.defines))
        return NormalForm(marked.text + mention.text, marked.refs + mention.refs, marked.undecided)

    def _of_module(self, module: Module) -> _Node:
        """Return the node of a whole module and its submodules, for code that looks names up at run time."""
        forms = [reference_to(name, Definition(module.name, name)) for name in sorted(module.bindings)]
        forms += [import_form(self.project.imported(*module.imports[name])) for name in sorted(module.imports)]
        forms += [self._form([statement], module) for statement in module.others]
        effects = self._effects.get(Definition(module.name, EVERYTHING), ())
        forms += sorted((self._of_effect(e) for e in effects if e.module != module.name), key=lambda form: form.text)
        below = [found for found in self.project.modules_below(module.name) if found is not module]
        forms += [NormalForm("@module", (Definition(found.name, EVERYTHING),)) for found in below]
        return _joined(f"{self.project.label(module.name)}: all of it", forms)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _joined(label: str, forms: Iterable[NormalForm]) -> _Node:
    forms = list(forms)
    refs = tuple(ref for form in forms for ref in form.refs)
    return _Node(label, ";".join(form.text for form in forms), refs, tuple(u for form in forms for u in form.undecided))


def _docstrings(statements: Sequence[ast.stmt], module: Module) -> str:
    """Return the docstrings in some statements, in order.

    The module's docstring is added if the statements use the name `__doc__`.
    """
    nodes = [node for statement in statements for node in ast.walk(statement)]
    found = [ast.get_docstring(node) for node in nodes if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    if any(isinstance(node, ast.Name) and node.id == "__doc__" for node in nodes):
        found.append(ast.get_docstring(module.tree))
    return "\n".join(filter(None, found))


def _reads_docstrings(statements: Iterable[ast.stmt]) -> bool:
    """Return True if statements read any docstring. The syntax does not show which object's docstring is read."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _DOCS) or (isinstance(node, ast.Name) and node.id in _DOCS)
        for node in nodes
    )


def _reads_names(statements: Iterable[ast.stmt]) -> bool:
    """Return True if statements read the name of a function."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in _NAMES
        for statement in statements
        for node in ast.walk(statement)
    )
