"""From one function to everything of the project that it refers to, and a hash of all of it.

Belongs here: going through references. Does not belong here: the text of a definition (`normal_form`), and where an
asset begins (`assets`).
"""

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pipelines.tidemark.code_versions.effects import Effect, effects_in
from pipelines.tidemark.code_versions.modules import FUNCTIONS, Module
from pipelines.tidemark.code_versions.normal_form import Form, form_of, import_form, reference_to
from pipelines.tidemark.code_versions.project import EVERYTHING, Definition, Files, Project
from pipelines.tidemark.code_versions.references import Ref


@dataclass(frozen=True, eq=False)
class _Node:
    """A definition that is part of what computes an asset.

    Args:
        label: How it is named to a person.
        text: What counts of it, without what it refers to.
    """

    label: str
    text: str
    refs: tuple[Ref, ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Fingerprint:
    """What computes an asset, as a hash.

    Args:
        digest: Of everything.
        definitions: A short hash of each definition by its label.
    """

    digest: str
    definitions: Mapping[str, str] = field(default_factory=dict)


class Code:
    """The project's definitions as nodes, each written once."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._nodes: dict[Ref, _Node] = {}

    def fingerprint(self, *starts: Ref) -> Fingerprint:
        """The fingerprint of definitions and of all that they refer to.

        Definitions are numbered as they are met, so the hash depends neither on where they stand nor on how modules
        are called, and which definition is referred to where is part of it.
        """
        numbers: dict[int, int] = {}
        nodes: list[_Node] = []

        def number_of(ref: Ref) -> int:
            node = self._node(ref)
            if id(node) not in numbers:
                numbers[id(node)] = len(nodes)
                nodes.append(node)
            return numbers[id(node)]

        for start in starts:
            number_of(start)
        digest = hashlib.sha256()
        named: dict[str, str] = {}
        for node in nodes:  # which grows
            refs = ",".join(str(number_of(ref)) for ref in node.refs)
            digest.update(f"{node.hash}:{refs};".encode())
            named[node.label] = node.hash
        return Fingerprint(digest.hexdigest()[:16], {label: of[:12] for label, of in sorted(named.items())})

    def _node(self, ref: Ref) -> _Node:
        if ref not in self._nodes:
            self._nodes[ref] = self._of_files(ref) if isinstance(ref, Files) else self._of_definition(ref)
        return self._nodes[ref]

    @cached_property
    def _effects(self) -> Mapping[Definition, list[Effect]]:
        return effects_in(self.project)

    def _form(self, nodes: Iterable[ast.AST], module: Module) -> Form:
        return form_of(nodes, module, self.project)

    def _of_files(self, files: Files) -> _Node:
        label = files.path.relative_to(self.project.root).as_posix()
        return _Node(f"{label}/ (files)" if files.path.is_dir() else label, self.project.content(files))

    def _of_definition(self, of: Definition) -> _Node:
        module = self.project.module(of.module)
        assert module is not None, of
        if of.name == EVERYTHING:
            return self._of_module(module)
        statements = module.bindings[of.name]
        forms = [self._form([statement], module) for statement in statements]
        if of.name in module.imports:
            forms.insert(0, import_form(self.project.imported(*module.imports[of.name])))
        here = [e for e in self._effects.get(of, ()) if e.module == of.module]
        elsewhere = [e for e in self._effects.get(of, ()) if e.module != of.module]
        forms += map(self._of_effect, here)
        forms += sorted(map(self._of_effect, elsewhere), key=lambda form: form.text)  # nobody knows the imports' order
        is_function = any(isinstance(statement, FUNCTIONS) for statement in statements)
        return _joined(f"{self.project.label(of.module)}: {of.name}{'()' if is_function else ''}", forms)

    def _of_effect(self, effect: Effect) -> Form:
        module = self.project.module(effect.module)
        assert module is not None
        if not effect.defines:
            return self._form([effect.statement], module)
        marked = self._form(getattr(effect.statement, "decorator_list", ()), module)
        mention = reference_to(effect.defines, Definition(effect.module, effect.defines))
        return Form(marked.text + mention.text, marked.refs + mention.refs)

    def _of_module(self, module: Module) -> _Node:
        """All of a module, and of the modules below it: something looks names up in it as it runs."""
        forms = [reference_to(name, Definition(module.name, name)) for name in sorted(module.bindings)]
        forms += [import_form(self.project.imported(*module.imports[name])) for name in sorted(module.imports)]
        forms += [self._form([statement], module) for statement in module.others]
        below = [found for found in self.project.modules_below(module.name) if found is not module]
        forms += [Form("@module", (Definition(found.name, EVERYTHING),)) for found in below]
        return _joined(f"{self.project.label(module.name)}: all of it", forms)


def _joined(label: str, forms: Iterable[Form]) -> _Node:
    forms = list(forms)
    return _Node(label, ";".join(form.text for form in forms), tuple(ref for form in forms for ref in form.refs))
