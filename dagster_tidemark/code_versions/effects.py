"""Finds statements that change a definition elsewhere: they fill a registry, register an overload, or add a subclass.

    HANDLERS["csv"] = read_csv              sets an item or attribute, or calls a method, in any module
    config.RATE = 2                         binds a name of another module
    HANDLERS |= {"csv": read_csv}           changes an imported object in place
    done = fill(HANDLERS, read_csv)         calls a function that changes its argument
    @HANDLERS.register("csv")               uses a method as a decorator
    @handler("csv")                         calls a function that changes the definition at import
    class Csv(Handler)                      if code of `Handler` looks up its subclasses, or its `__init_subclass__`
                                            or metaclass fills a registry
    token = RATE.set(2)                     assigns the result of a method that changes its object
    vars(config).update(values)             may bind any name of a module

Does not belong here: changes that functions make at run time.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dagster_tidemark.code_versions.changing_code import (
    CHANGING,
    CHANGING_FUNCTIONS,
    ONLY_LOOK,
    PATCHING_BY_NAME,
    Classes,
    changed_by,
    changes_class,
    keeps_state,
    names_attribute,
    names_in,
    run_at_import,
    sets_attributes,
)
from dagster_tidemark.code_versions.held_objects import ANY_NAME, HeldObjects, values_in
from dagster_tidemark.code_versions.modules import FUNCTIONS, Module, own_nodes, root_of
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, External, InModule, Project, Target
from dagster_tidemark.code_versions.scopes import arguments_of

_BINDING = (*FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AugAssign)
"""Statements whose calls are expected to change nothing unless their code shows that they do."""
_OF_SUBCLASSES = {"__init_subclass__"}
_OF_METACLASSES = {"__call__", "__init__", "__new__", "__prepare__"}
_OF_INSTANCES = {"__init__", "__new__", "__post_init__"}


@dataclass(frozen=True)
class Effect:
    """A module-level statement that changes a definition elsewhere.

    Args:
        defines: Name of the function or class that the statement defines, if any. Then only its name and its
            decorators count.
    """

    module: str
    statement: ast.stmt
    defines: str = ""


def effects_in(project: Project) -> Mapping[Definition, list[Effect]]:
    """Return, for each definition, all statements that change it but do not bind it.

    The search covers the code location's package and the modules that it imports.
    """
    return _Search(project, project.modules_in_use()).found


class _Search:
    def __init__(self, project: Project, modules: list[Module]) -> None:
        self._project = project
        self.found: dict[Definition, list[Effect]] = defaultdict(list)
        self._change_arguments: set[Definition] = set()
        are_looked_up = any("__subclasses__" in names_in(m.tree) for m in modules)
        self._classes = Classes(project, self._definition, are_looked_up=are_looked_up)
        self._objects = HeldObjects(project, self._target, self._namespace)
        self._find_functions_that_change_arguments(modules)
        self._changed_by = self._what_functions_change(modules)
        self._changed_by_alias = self._what_aliases_change(modules)
        for module in modules:
            for statement in module.statements:
                self._look_at(module, statement)

    def _look_at(self, module: Module, statement: ast.stmt) -> None:
        changed = dict.fromkeys(self._changed(module, statement))
        defines = ""
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            defines = statement.name
            for decorator in statement.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(called, ast.Attribute) and (of := self._definition(module, called.value)):
                    changed[of] = None
        for made in self._classes_made_by(module, statement):
            changed |= dict.fromkeys(self._classes.bases_that_know(module, made))
            changed |= dict.fromkeys(self._changed_by_subclassing(module, made))
        changed |= dict.fromkeys(behind for of in [*changed] for behind in self._objects.behind(of))
        for of in self._each_name(changed):
            if of != Definition(module.name, defines) and not self._binds(module, statement, of):
                self.found[of].append(Effect(module.name, statement, defines))

    def _classes_made_by(self, module: Module, statement: ast.stmt) -> Iterator[ast.ClassDef]:
        """Yield a statement that defines a class, and the classes that it makes by calls such as `type(...)`."""
        if isinstance(statement, ast.ClassDef):
            yield statement
        for node in run_at_import(statement):
            match node:
                case ast.Call(func=called, args=[_, ast.Tuple(elts=bases), *_]):
                    if self._target(module, called) in (External("builtins.type"), External("types.new_class")):
                        yield ast.ClassDef(name="", bases=bases, keywords=[], body=[], decorator_list=[])

    def _each_name(self, changed: Iterable[Definition]) -> Iterable[Definition]:
        """Return the definitions, and for a module that is changed as a whole each of its names."""
        found: dict[Definition, None] = {}
        for of in changed:
            home = self._project.module(of.module) if of.name == ANY_NAME else None
            names = [EVERYTHING, *home.bindings] if home else [of.name]
            found |= dict.fromkeys(Definition(of.module, name) for name in names)
        return found

    def _changed(self, module: Module, statement: ast.stmt) -> Iterator[Definition]:
        yield from self._stored_into(module, run_at_import(statement))
        if isinstance(statement, ast.Expr) or not isinstance(statement, _BINDING):
            for node in run_at_import(statement) if isinstance(statement, ast.Expr) else own_nodes(statement):
                if isinstance(node, ast.Call) and not self._only_looks(module, node):
                    for part in (node.func, *node.args, *(k.value for k in node.keywords)):
                        if of := self._definition(module, part.value if isinstance(part, ast.Starred) else part):
                            yield of
        below = statement.body if isinstance(statement, ast.ClassDef) else []
        yield from self._stored_into(module, (n for each in below for n in run_at_import(each)))
        for each in (statement, *below):
            decorators = getattr(each, "decorator_list", ())
            for node in own_nodes(each):
                if isinstance(node, ast.Call) or node in decorators:
                    yield from self._changed_by_calling(module, node.func if isinstance(node, ast.Call) else node)

    def _only_looks(self, module: Module, call: ast.Call) -> bool:
        is_plain = isinstance(call.func, ast.Name) and not any(isinstance(each, ast.Starred) for each in call.args)
        target = self._target(module, call.func) if is_plain else None
        return isinstance(target, External) and target.name in ONLY_LOOK

    def _changed_by_calling(self, module: Module, called: ast.AST) -> Iterator[Definition]:
        """Yield the definitions that a call of a function, a class or an object with `__call__` changes."""
        if not (isinstance(called, ast.Name | ast.Attribute) and isinstance(called.ctx, ast.Load)):
            return
        if function := self._definition(module, called):
            yield from self._changed_by.get(function, ())
            if isinstance(called, ast.Name) or called.attr == function.name:
                yield from self._changed_by_alias.get(function, ())
                if any(
                    "__call__" in self._classes.changing_methods(each) for each in self._classes.of_object(function)
                ):
                    yield function
                if self._is_closure_with_state(function):
                    yield function

    def _is_closure_with_state(self, of: Definition) -> bool:
        """Return True if a function made by another function changes variables of the other."""
        for module, statement in self._project.statements(of):
            for value, _ in values_in([statement]).get(of.name, ()):
                maker = self._definition(module, value.func) if isinstance(value, ast.Call) else None
                bodies = (body for _, body in self._project.statements(maker)) if maker else ()
                if any(keeps_state(body) for body in bodies if isinstance(body, FUNCTIONS)):
                    return True
        return False

    def _stored_into(self, module: Module, nodes: Iterable[ast.AST]) -> Iterator[Definition]:
        """Yield the definitions that nodes change by setting an item or attribute, or by calling a mutating method."""
        for node in nodes:
            if found := self._namespace_changed_by(module, node):
                yield found
            match node:
                case (
                    ast.Subscript(ctx=ast.Store() | ast.Del(), value=of)
                    | ast.Attribute(ctx=ast.Store() | ast.Del(), value=of)
                ):
                    if found := self._definition(module, of) or self._attribute_of_module(module, node):
                        yield found
                        yield from self._parts_of(module, of)
                case ast.AugAssign(target=ast.Name(id=name)):
                    found_by_import = self._project.import_of(module, name)
                    if isinstance(found_by_import, Definition) and found_by_import.name != EVERYTHING:
                        yield found_by_import
                    held = self._objects.behind(Definition(module.name, name))
                    yield from (of for of in held if not self._is_constant(of))
                case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[of, ast.Constant(value=str(name)), *_]):
                    attribute = ast.Attribute(of, name, ast.Store())
                    if found := self._definition(module, of) or self._attribute_of_module(module, attribute):
                        yield found
                case ast.Attribute(attr=attr, value=of, ctx=ast.Load()) if attr in CHANGING:
                    if found := self._definition(module, of):
                        yield found
                        yield from self._parts_of(module, of)
                case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]) if self._is_patch(module, called):
                    patched = self._project.named(name)
                    yield from [patched] if isinstance(patched, Definition) else ()
                case ast.Call(func=ast.Attribute(attr=attr, value=of)):
                    found = self._definition(module, of)
                    if found and any(attr in self._classes.changing_methods(c) for c in self._classes.of_object(found)):
                        yield found
            if isinstance(node, ast.Call) and self._changes_arguments(module, node):
                for part in (*node.args, *(keyword.value for keyword in node.keywords)):
                    target = self._target(module, part)
                    if found := self._definition(module, part):
                        yield found
                    elif isinstance(target, InModule) and self._sets_any_attribute(module, node):
                        yield Definition(target.module, ANY_NAME)

    def _parts_of(self, module: Module, changed: ast.expr) -> Iterable[Definition]:
        """Return the definitions of the parts of an object if a part is changed, as in `ALL["low"].update(...)`."""
        inner = changed.value if isinstance(changed, ast.Attribute | ast.Subscript) else None
        of = self._definition(module, inner) if inner else None
        return self._objects.elements(of) if of else ()

    def _is_patch(self, module: Module, called: ast.expr) -> bool:
        return isinstance(target := self._target(module, called), External) and target.name in PATCHING_BY_NAME

    def _is_constant(self, of: Definition) -> bool:
        values = values_in(statement for _, statement in self._project.statements(of)).get(of.name, [])
        return len(values) == 1 and isinstance(values[0][0], ast.Constant)

    def _sets_any_attribute(self, module: Module, call: ast.Call) -> bool:
        """Return True if a call may set any attribute of an argument: `setattr`, or a function that calls it."""
        of = self._definition(module, call.func)
        if of is None:
            return not names_attribute(call)
        return any(sets_attributes(each) for _, each in self._project.statements(of))

    def _namespace_changed_by(self, module: Module, node: ast.AST) -> Definition | None:
        """Return a stand-in for all names of a module if a node may bind any of them."""
        match node:
            case ast.Subscript(ctx=ast.Store() | ast.Del(), value=of):
                name = self._namespace(module, of)
            case ast.Attribute(attr=attr, value=of, ctx=ast.Load()) if attr in CHANGING:
                name = self._namespace(module, of)
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[of, *_]):
                name = self._namespace(module, of)
            case ast.Call(func=ast.Name(id="exec"), args=[_]):
                name = module.name
            case _:
                return None
        return Definition(name, ANY_NAME) if name else None

    def _namespace(self, module: Module, node: ast.AST) -> str:
        """Return the module whose names an expression holds, such as `globals()`, `vars(module)`; empty for others."""
        match node:
            case ast.Call(func=ast.Name(id="globals" | "locals" | "vars"), args=[]):
                return module.name
            case ast.Call(func=ast.Name(id="vars"), args=[of]) | ast.Attribute(attr="__dict__", value=of):
                target = self._target(module, of)
                return target.module if isinstance(target, InModule) else self._namespace(module, of)
            case ast.Subscript(value=of, slice=ast.Name(id="__name__")):
                return module.name if self._target(module, of) == External("sys.modules") else ""
        return ""

    def _attribute_of_module(self, module: Module, node: ast.AST) -> Definition | None:
        """Return the definition that `module.name` refers to, or the whole module if it does not bind the name."""
        if found := self._definition(module, node):
            return found
        if not isinstance(node, ast.Attribute):
            return None
        if name := self._objects.module_of(module, node.value):
            bound = self._project.attribute(name, node.attr)
            return bound if isinstance(bound, Definition) else Definition(name, EVERYTHING)
        of = self._target(module, node.value)
        return Definition(of.module, EVERYTHING) if isinstance(of, InModule) else None

    def _changes_arguments(self, module: Module, call: ast.Call) -> bool:
        """Return True if a call may change its arguments."""
        if isinstance(call.func, ast.Lambda):
            return True
        if isinstance(call.func, ast.Name | ast.Attribute):
            target = self._target(module, call.func)
            if isinstance(target, External):
                is_unbound = target.name.startswith(("builtins.", "collections."))
                return target.name in CHANGING_FUNCTIONS or (is_unbound and target.name.rpartition(".")[2] in CHANGING)
        return self._definition(module, call.func) in self._change_arguments

    def _find_functions_that_change_arguments(self, modules: list[Module]) -> None:
        """Find the module-level functions and classes that change an argument, themselves or by another function."""
        of_code = (*FUNCTIONS, ast.ClassDef)
        bodies = {
            Definition(module.name, name): (module, [s for s in statements if isinstance(s, of_code)])
            for module in modules
            for name, statements in module.bindings.items()
        }
        grown = True
        while grown:  # until no function gains by a function that it calls
            found = {
                here
                for here, (module, many) in bodies.items()
                if here not in self._change_arguments and any(self._changes_own(module, body) for body in many)
            }
            self._change_arguments |= found
            grown = bool(found)

    def _changes_own(self, module: Module, body: ast.AST) -> bool:
        """Return True if a function, or a method of a class, changes one of its own parameters other than `self`."""
        functions = [node for node in ast.walk(body) if isinstance(node, FUNCTIONS)]
        return any(self._changes_parameter(module, function) for function in functions)

    def _changes_parameter(self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        names = {argument.arg for argument in arguments_of(function.args)} - {"self", "cls"}
        for name, values in values_in(function.body).items():  # variables that hold a part of a parameter
            roots = {root.id for value, _ in values if not isinstance(value, ast.Call) and (root := root_of(value))}
            names |= {name} if roots & names else set()

        def is_parameter(part: ast.AST) -> bool:
            root = root_of(part)
            return root is not None and root.id in names

        for node in ast.walk(function):
            match node:
                case (
                    ast.Subscript(ctx=ast.Store() | ast.Del(), value=of)
                    | ast.Attribute(ctx=ast.Store() | ast.Del(), value=of)
                    | ast.AugAssign(target=ast.Name() as of)
                ) if is_parameter(of):
                    return True
                case ast.Call(func=ast.Attribute(attr=attr, value=of)) if attr in CHANGING and is_parameter(of):
                    return True
                case ast.Call() if self._changes_arguments(module, node):
                    if any(is_parameter(part) for part in (*node.args, *(k.value for k in node.keywords))):
                        return True
        return False

    def _definition(self, module: Module, node: ast.AST) -> Definition | None:
        """Return the definition that an expression such as `name`, `module.name` or `name[item]` refers to, if any."""
        target = self._target(module, node)
        return target if isinstance(target, Definition) and target.name != EVERYTHING else None

    def _target(self, module: Module, node: ast.AST) -> Target | None:
        root = root_of(node)
        return self._project.target_of(module, node, self._of_root(module, root.id)) if root else None

    def _of_root(self, module: Module, name: str) -> Target:
        """Return what a global name refers to. `R += [1]` of an imported `R` binds a name, but of the same object."""
        bound = module.bindings.get(name, [])
        if bound and all(isinstance(statement, ast.AugAssign) for statement in bound):
            return self._project.import_of(module, name) or Definition(module.name, name)
        return self._project.name(module, name)

    def _binds(self, module: Module, statement: ast.stmt, of: Definition) -> bool:
        return of.module == module.name and any(s is statement for s in module.bindings.get(of.name, ()))

    def _changed_by_subclassing(self, module: Module, node: ast.ClassDef) -> Iterator[Definition]:
        """Yield the definitions that the creation of a class changes, by `__init_subclass__` or by a metaclass."""
        for base, home, each in self._classes.above(module, node):
            yield from self._changed_by.get(_hooks(base, _OF_SUBCLASSES), ())
            for keyword in (*node.keywords, *each.keywords):
                if keyword.arg == "metaclass":
                    at = module if keyword in node.keywords else home
                    if of := self._definition(at, keyword.value):
                        for meta in self._classes.with_bases(of):
                            yield from self._changed_by.get(_hooks(meta, _OF_METACLASSES), ())

    def _what_functions_change(self, modules: list[Module]) -> dict[Definition, set[Definition]]:
        """Return the module-level definitions that each function and class changes when called."""
        changes: dict[Definition, set[Definition]] = {}
        calls: dict[Definition, set[Definition]] = {}

        def note(module: Module, here: Definition, bodies: Iterable[ast.AST]) -> None:
            nodes = [node for body in bodies for node in ast.walk(body)]
            local = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            said = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
            reached = [n for n in nodes if (root := root_of(n)) is None or root.id not in local - said]
            changed = set(self._stored_into(module, reached))
            changed |= {Definition(module.name, name) for name in said if name in module.bindings}
            changed |= set(self._changed_through_locals(module, bodies, nodes, local - said))
            changes[here] = changed
            found = (self._definition(module, n.func) for n in nodes if isinstance(n, ast.Call))
            calls[here] = {of for of in found if of}

        for module in modules:
            for name, statements in module.bindings.items():
                here = Definition(module.name, name)
                bodies = [s for s in statements if isinstance(s, (*FUNCTIONS, ast.ClassDef))]
                note(module, here, bodies)
                for body in (each for each in bodies if isinstance(each, ast.ClassDef)):
                    changes[here] |= set(self._changed_by_own_methods(module, body))
                methods = [m for body in bodies if isinstance(body, ast.ClassDef) for m in body.body]
                for hooks in (_OF_SUBCLASSES, _OF_METACLASSES, _OF_INSTANCES) if bodies else ():
                    note(module, _hooks(here, hooks), [m for m in methods if getattr(m, "name", "") in hooks])
                for base in (each for body in bodies if isinstance(body, ast.ClassDef) for each in body.bases):
                    if (of := self._definition(module, base)) and of != here:
                        calls[here].add(_hooks(of, _OF_INSTANCES))
                        calls[_hooks(here, _OF_INSTANCES)].add(_hooks(of, _OF_INSTANCES))
        grown = True
        while grown:  # add the changes made by called functions, until no function gains any
            grown = False
            for here, called in calls.items():
                more = set().union(*(changes.get(of, set()) for of in called)) - changes[here]
                if more:
                    changes[here] |= more
                    grown = True
        return {here: changed for here, changed in changes.items() if changed}

    def _changed_through_locals(
        self, module: Module, bodies: Iterable[ast.AST], nodes: Iterable[ast.AST], local: set[str]
    ) -> Iterator[Definition]:
        """Yield the definitions that functions change through local variables that hold their objects."""
        functions = [n for body in bodies for n in ast.walk(body) if isinstance(n, FUNCTIONS)]
        values = {name: held for each in functions for name, held in values_in(each.body).items()}
        for node in nodes:
            changed = changed_by(node)
            root = None if changed is None else root_of(changed)
            if root and root.id in local and root.id in values:
                yield from self._objects.held(module, root, values)

    def _changed_by_own_methods(self, module: Module, node: ast.ClassDef) -> Iterator[Definition]:
        """Yield a class whose methods change attributes of the class, and not only of one object."""
        above = [each for _, _, each in self._classes.above(module, node)]
        shared = {name for each in above for name in values_in(each.body)}
        for of, _, each in self._classes.above(module, node):
            if any(changes_class(method, shared) for method in each.body if isinstance(method, FUNCTIONS)):
                yield of

    def _what_aliases_change(self, modules: list[Module]) -> dict[Definition, set[Definition]]:
        """Return the definitions that a call of a name changes, if the name holds a method, a partial or a closure."""
        found: dict[Definition, set[Definition]] = {}
        for module in modules:
            for name, statements in module.bindings.items():
                match statements:
                    case [ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value)]:
                        found[Definition(module.name, name)] = set(self._changed_by_value(module, value))
        return {here: changed for here, changed in found.items() if changed}

    def _changed_by_value(self, module: Module, value: ast.expr) -> Iterator[Definition]:
        """Yield the definitions that a call of a value changes."""
        match value:
            case ast.Attribute(attr=attr, value=of):
                found = self._definition(module, of)
                if found and (
                    attr in CHANGING
                    or any(attr in self._classes.changing_methods(c) for c in self._classes.of_object(found))
                ):
                    yield found
            case ast.Call(func=ast.Name() | ast.Attribute() as called, args=args, keywords=keywords):
                is_partial = self._target(module, called) == External("functools.partial")
                function = args[0] if is_partial and args else called
                yield from self._changed_by_value(module, function)
                made = ast.Call(function, args[1:] if is_partial else args, keywords)
                found = self._definition(module, function)
                if found and is_partial:
                    yield from self._changed_by.get(found, ())
                if self._changes_arguments(module, made):
                    parts = (*made.args, *(keyword.value for keyword in keywords))
                    yield from filter(None, (self._definition(module, part) for part in parts))


def _hooks(of: Definition, hooks: Iterable[str]) -> Definition:
    """Return a stand-in for those methods of a class that run when a class is created."""
    return Definition(of.module, f"{of.name}.{min(hooks)}")
