"""A definition's syntax tree as text, without cosmetic details, and its references.

A syntax tree has no comments and no formatting. The text also leaves out docstrings, annotations, `pass` and imports.
An imported name is written as the name of its definition, so aliases do not matter. Variables of a function are
numbered, and a constant is replaced by its value. Annotations stay if code may read them: in classes with bases or
decorators, and in functions with a decorator that is not Dagster's.

Belongs here: the text of one definition. Does not belong here: resolving references (`project`).
"""

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dagster_tidemark.code_versions.modules import Module, is_overload, is_type_checking
from dagster_tidemark.code_versions.options import (
    ANNOTATIONS,
    OF_KEYS,
    OF_OWN,
    OPTIONS_THAT_COMPUTE_NOTHING,
    options_in,
)
from dagster_tidemark.code_versions.project import (
    EVERYTHING,
    MACHINERY,
    Definition,
    External,
    Files,
    InModule,
    Project,
    Target,
)
from dagster_tidemark.code_versions.references import Constants, Ref, References, either, no_constants, parts_of
from dagster_tidemark.code_versions.scopes import (
    NameScope,
    arguments_of,
    comprehension_scope,
    function_scope,
    scope_of,
)

FORMAT = 3
"""Version of the normal form. Increase it if code gets a different form. Users must then update their lock files."""

_DECLARING = ("dagster.", f"{MACHINERY}.")
_READ_NO_ANNOTATION = (
    "builtins.property",
    "builtins.staticmethod",
    "builtins.classmethod",
    "functools.cached_property",
    "functools.cache",
    "functools.lru_cache",
    "contextlib.contextmanager",
    "contextlib.asynccontextmanager",
    "abc.abstractmethod",
    "typing.final",
    "typing.override",
)
_COSMETIC = {"annotation", "returns", "type_comment", "type_params", "kind", "ctx", "type_ignores", "simple"}


@dataclass(frozen=True)
class NormalForm:
    """A definition's text without cosmetic details, and the references in it, in the order of the text.

    Args:
        undecided: Lines that read a file outside of the project, or with a path that is only known at run time.
        externals: Names of libraries that the definition mentions.
        reads: Parts of other definitions that the definition reads at run time; see `options`.
    """

    text: str
    refs: tuple[Ref, ...]
    undecided: tuple[str, ...] = ()
    externals: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()


def form_of(
    nodes: Iterable[ast.AST],
    module: Module,
    project: Project,
    constants: Constants = no_constants,
    reads: Collection[str] = (),
    spent: Collection[int] = (),
) -> NormalForm:
    """Return the normal form of module-level statements.

    Args:
        constants: Returns the value of a definition if it is a constant that no code changes, else None.
        reads: Parts that code reads at run time, and that therefore stay: ANNOTATIONS, and options.
        spent: Ids of the nodes `__file__` whose only use is the reading of one known file.
    """
    writer = _Writer(module, project, constants, reads, spent)
    for node in nodes:
        writer.write(node)
    return NormalForm("".join(writer.text), writer.refs, externals=writer.externals)


def reference_to(name: str, target: Definition) -> NormalForm:
    """Return the normal form of a reference to a definition."""
    return NormalForm(either(f"@{name}", "@"), (target,))


def import_form(target: Target) -> NormalForm:
    """Return the normal form of a module-level import. Used if other statements bind the same name."""
    match target:
        case Definition() | Files():
            return NormalForm("@import", (target,))
        case InModule(module):
            return NormalForm("@import", (Definition(module, EVERYTHING),))
        case External():
            return NormalForm(f"!{target.in_fingerprints}", ())
    return NormalForm(f"!{target.name}", (Definition(target.module, EVERYTHING),) if target.module else ())


def is_constant(node: ast.expr) -> bool:
    """Return True if an expression is an immutable literal: a number, a text, or a tuple of immutable literals."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return True
        case ast.Tuple(elts=parts):
            return all(map(is_constant, parts))
    return False


class _Writer:
    """Writer of syntax nodes, one after the other."""

    def __init__(
        self,
        module: Module,
        project: Project,
        constants: Constants,
        reads: Collection[str],
        spent: Collection[int],
    ) -> None:
        self.text: list[str] = []
        self._spent = spent
        self._reads = reads
        self._declaration: ast.expr | None = None
        self._module = module
        self._project = project
        self._scopes: list[NameScope] = []
        self._references = References(module, project, self._scopes, constants)

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(self._references.found)

    @property
    def externals(self) -> frozenset[str]:
        return frozenset(self._references.externals)

    def write(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.Lambda():
                self._lambda(node)
            case ast.ClassDef():
                self._class(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node)
            case ast.Attribute() | ast.Call() if (name := self._name_of_file(node)) is not None:
                self._constant(name)
            case ast.Name() | ast.Attribute():
                self._chain(node)
            case ast.Call():
                self._call(node)
            case ast.Subscript(slice=ast.Name(id="__name__")):
                self._references.own_module = True
                self._generic(node)
                self._references.own_module = False
            case ast.Constant():
                self._constant(node.value)
            case ast.JoinedStr():
                self._joined(node)
            case ast.AnnAssign():
                self._annotated(node)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.If(test=test) if is_type_checking(test, self._module.imports):
                for statement in node.orelse:
                    self.write(statement)
            case ast.Global() | ast.Nonlocal() | ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                self._generic(node)

    def _generic(self, node: ast.AST, without: Sequence[str] = ()) -> None:
        self.text.append(f"{type(node).__name__}(")
        for name, value in ast.iter_fields(node):
            if value is not None and value != [] and name not in _COSMETIC and name not in without:
                self.text.append(f"{name}=")
                self._field(value)
        self.text.append(")")

    def _field(self, value: object) -> None:
        if isinstance(value, list):
            self.text.append("[")
            for each in value:
                before = len(self.text)
                self._field(each)
                if len(self.text) > before:  # a docstring writes nothing
                    self.text.append(",")
            self.text.append("]")
        elif isinstance(value, ast.AST):
            self.write(value)
        else:
            self.text.append(repr(value))

    def _all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            self.text.append(",")
            if node is not None:
                self.write(node)

    # Texts

    def _constant(self, value: object) -> None:
        self.text.append(f"{type(value).__name__}:{value!r}")
        if isinstance(value, str):
            self._references.in_text(value)

    def _joined(self, node: ast.JoinedStr) -> None:
        if all(isinstance(part, ast.Constant) for part in node.values):
            self._constant("".join(str(part.value) for part in node.values if isinstance(part, ast.Constant)))
            return
        self.text.append("JoinedStr(")
        plain = ""
        for part in node.values:
            if isinstance(part, ast.Constant):  # the parser may split one text into several constants
                plain += str(part.value)
                continue
            self.text.append(f"{plain!r},")
            plain = ""
            self.write(part)
        self.text.append(f"{plain!r})")

    # Names

    def _chain(self, node: ast.Name | ast.Attribute) -> None:
        """Write a name or attribute chain as a reference to its target."""
        root, attributes = parts_of(node)
        self._references.reads_globals(attributes)
        if not isinstance(root, ast.Name):
            self.text.append("".join(f".{name}" for name in attributes) + "(")
            self.write(root)
            self.text.append(")")
            return
        if id(root) in self._spent:
            self.text.append("@files")
            return
        target = self._references.target(root.id)
        binds = isinstance(root.ctx, ast.Store | ast.Del) and not self._scopes
        if target is None or (binds and not attributes):
            self.text.append(".".join([f"={self._references.local(root.id)}", *attributes]))
            return
        self.text.append(self._references.mention(*self._project.follow(target, attributes)))

    def _name_of_file(self, node: ast.expr) -> str | None:
        """Return the name that `Path(__file__).stem` or `os.path.basename(__file__)` gives; None for other code."""
        match node:
            case ast.Attribute(attr="name" | "stem" | "suffix" as part, value=ast.Call(func=called, args=[of])):
                known = "pathlib.Path"
            case ast.Call(func=called, args=[of], keywords=[]):
                part, known = "name", "os.path.basename"
            case _:
                return None
        if getattr(of, "id", "") != "__file__" or self._references.target_of(called) != External(known):
            return None
        is_global = isinstance(self._references.target("__file__"), Files) and self._module.path is not None
        return str(getattr(self._module.path, part)) if is_global else None

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if self._scopes and not self._scopes[-1].is_class:
            return  # each use of an imported name is written as a reference
        for name, (module, attribute) in self._module.imports_of(node):
            self.text.append(f"={name}")
            self.text.append(self._references.mention(self._project.imported(module, attribute)))

    # Calls and declarations

    def _call(self, node: ast.Call) -> None:
        target = self._references.target_of(node.func)
        declares = isinstance(target, External) and target.name.startswith(_DECLARING)
        left_out = OPTIONS_THAT_COMPUTE_NOTHING - options_in(self._reads) if declares else set()
        if node is self._declaration:
            left_out |= OF_KEYS
        if node.args:
            self._references.imports(target, _beginning(node.args[0]))
        self.text.append("Call(")
        self.write(node.func)
        self._all([*node.args, *(keyword for keyword in node.keywords if keyword.arg not in left_out)])
        self.text.append(")")

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        before = frozenset(self._references.externals)
        for decorator in node.decorator_list:
            self.text.append("@")
            self._declaration = decorator if self._is_only_asset(node, decorator) else None
            self.write(decorator)
        self._declaration = None
        # A decorator's own function has its annotations in any case.
        self._references.externals -= {name for name in self._references.externals - before if name.endswith(OF_OWN)}

    def _is_only_asset(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, decorator: ast.expr) -> bool:
        """Return True if a decorator makes the one asset of a module-level function, so that the key is the lock's."""
        is_bound_once = not self._scopes and len(self._module.bindings.get(node.name, ())) == 1
        return is_bound_once and self._decorated_by(decorator, ("dagster.asset",)) and isinstance(decorator, ast.Call)

    def _decorated_by(self, decorator: ast.expr, names: tuple[str, ...]) -> bool:
        target = self._references.target_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
        return isinstance(target, External) and target.name.startswith(names)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if is_overload(node):
            return
        # A reference to a module-level function includes the function's content, so its name does not count.
        name = node.name if self._scopes else either(node.name, "")
        self.text.append(f"{type(node).__name__}(={name}")
        self._decorators(node)
        self._annotations(node)
        self._default_values(node.args)
        self._scopes.append(function_scope(node, self._module))
        self._signature(node.args)
        self._field(node.body)
        self._scopes.pop()
        self.text.append(")")

    def _annotations(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Write annotations that decorators may read. Under Dagster's decorators, write only classes of the project.

        Dagster creates objects of these classes, such as a `Config`.
        """
        annotations = [*(argument.annotation for argument in arguments_of(node.args)), node.returns]
        if ANNOTATIONS in self._reads:
            if any(annotations):
                self._all(each and _unquoted(each) for each in annotations)
            return
        decorators = [each for each in node.decorator_list if not self._decorated_by(each, _READ_NO_ANNOTATION)]
        if not all(self._decorated_by(decorator, ("dagster.",)) for decorator in decorators):
            self._all(each and _unquoted(each) for each in annotations)
        elif decorators:
            for name in (name for each in annotations if each for name in ast.walk(_unquoted(each))):
                target = self._references.target_of(name) if isinstance(name, ast.Name | ast.Attribute) else None
                if isinstance(target, Definition) and self._project.is_class(target):
                    self.text.append(self._references.mention(target))

    def _default_values(self, arguments: ast.arguments) -> None:
        self._all((*arguments.defaults, *arguments.kw_defaults))

    def _signature(self, arguments: ast.arguments) -> None:
        for kind in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
            found = getattr(arguments, kind)
            names = [argument.arg for argument in (found if isinstance(found, list) else filter(None, [found]))]
            if names:
                self.text.append(f",{kind}:{','.join(names)}")

    def _lambda(self, node: ast.Lambda) -> None:
        self.text.append("Lambda(")
        self._default_values(node.args)
        self._scopes.append(scope_of([node.body], self._module, arguments_of(node.args)))
        self._signature(node.args)
        self.text.append(":")
        self.write(node.body)
        self._scopes.pop()
        self.text.append(")")

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.text.append(f"{type(node).__name__}(")
        self.write(node.generators[0].iter)  # evaluated in the enclosing scope
        self._scopes.append(comprehension_scope(node, self._module))
        for number, generator in enumerate(node.generators):
            self._generic(generator, without=["iter"] if number == 0 else [])
        self._generic(node, without=["generators"])
        self._scopes.pop()
        self.text.append(")")

    def _class(self, node: ast.ClassDef) -> None:
        self.text.append(f"ClassDef(={node.name}")
        self._decorators(node)
        self._all([*node.bases, *node.keywords])
        scope = scope_of(node.body, self._module)
        scope.is_class = True
        scope.has_fields = bool(node.decorator_list or node.bases or ANNOTATIONS in self._reads)
        self._scopes.append(scope)
        self._field(node.body)
        self._scopes.pop()
        self.text.append(")")

    def _annotated(self, node: ast.AnnAssign) -> None:
        is_field = self._scopes[-1].has_fields if self._scopes else ANNOTATIONS in self._reads
        if is_field:
            self.text.append("Field(")
            self._all([node.target, _unquoted(node.annotation), node.value])
            self.text.append(")")
        elif node.value:
            self._generic(ast.Assign(targets=[node.target], value=node.value))


def _beginning(node: ast.expr) -> str:
    """Return the known beginning of a text; empty if it is unknown."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[first, *_]) | ast.BinOp(left=first, op=ast.Add()):
            return _beginning(first)
    return ""


def _unquoted(annotation: ast.expr) -> ast.expr:
    """Return an annotation without quotes."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return annotation
    return annotation
