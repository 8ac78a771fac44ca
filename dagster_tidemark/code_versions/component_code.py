"""Finds the code of an asset that a component declares: its attributes, and what they name.

    transform: shop.sales:daily                 a function, also by a template
    {{ area(env.REGION) }}                      a function of templates
    type: shop.components.SqlTable              a class of the project, with the files of its folder, and with options
                                                such as `tags` if its code reads them
    query: sql/daily.sql                        a file that an attribute of such a class names
    format: xml                                 a file format that the project registers

Does not belong here: assets in Python (`assets`), and the components themselves (`components`).
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from dagster_tidemark.code_versions.fingerprint import Code
from dagster_tidemark.code_versions.options import OPTIONS_THAT_COMPUTE_NOTHING
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Files, InModule, Project, Unknown
from dagster_tidemark.code_versions.references import Attribute, Inlined, Ref
from dagster_tidemark.component_declarations import Declaration, texts_in
from dagster_tidemark.sources import file_endings

_DECLARE = re.compile(r"(component|defs|code-location)\.ya?ml")
"""Files that declare components. Their attributes count, not their text."""

_READ_ANY = {
    "__dict__", "asdict", "attrgetter", "attributes", "getattr", "getattribute", "model_copy", "model_dump",
    "model_dump_json", "model_fields", "model_fields_set", "vars",
}  # fmt: skip
"""Names in code that may read any attribute of a component."""
_WHOLE = {"dict", "format", "hash", "iter", "list", "repr", "sorted", "str", "tuple"}
"""Functions that may read any attribute of an object that they are given."""


def code_of_component(declaration: Declaration, code: Code) -> Iterator[Ref]:
    """Yield the attributes of a component that change rows, and the code and files that they name.

    A function counts by its content, so it can move to another module without effect.
    """
    project, at = code.project, declaration.source.file
    own = list(dict.fromkeys(_classes(declaration, project)))
    left_out = OPTIONS_THAT_COMPUTE_NOTHING - _options_read(declaration, own, code)
    for name, value in sorted(declaration.attributes.items()):
        if name in left_out:
            continue
        named = list(dict.fromkeys(_named_in(declaration.rendered.get(name, value), project, is_own=bool(own))))
        is_name = named and isinstance(value, str)
        counted = _without_name(value) if is_name else _counted(name, value, is_own=bool(own))
        yield Attribute(f"{at}: {name}", f"{name}={_as_text(counted)}")
        yield from named
        if own:
            yield from _files_named(value, declaration, project)
    for name, value in declaration.variables.items():
        yield from _of_variable(f"{at}: {{{{ {name} }}}}", value, project)
    if own:
        yield from own
        beside = list(_files_beside(declaration))
        yield Attribute(f"{at}: names of its files", ",".join(_below(each.path, declaration) for each in beside))
        yield from beside
    if _may_use_formats_of_the_project(declaration):
        yield from code.registered_formats


# Attributes


def _counted(name: str, value: Any, *, is_own: bool) -> Any:
    """Return the part of an attribute's value that counts.

    The order of inputs, their long form and their metadata (when the table runs) change no rows.
    """
    if name != "ins" or is_own or not isinstance(value, dict):
        return value
    plain = {key: _without_metadata(each) if isinstance(each, dict) else each for key, each in value.items()}
    return dict(sorted(plain.items()))


def _as_text(value: Any) -> str:
    """Return a value as JSON. In a class of the project it may be a date, or have dates as names."""
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except TypeError:
        return repr(value)


def _without_metadata(given: dict[str, Any]) -> Any:
    kept = {name: each for name, each in given.items() if name != "metadata"}
    return kept["key"] if kept.keys() == {"key"} else kept


def _without_name(text: str) -> str:
    """Return the text `module:name` as `@`, and `module:Class.method` as `@.method`; other texts are unchanged."""
    if ":" not in text or "{" in text:
        return text
    return ".".join(["@", *text.partition(":")[2].split(".")[1:]])


def _named_in(value: Any, project: Project, *, is_own: bool) -> Iterator[Definition]:
    """Yield the definitions of the project that the texts in a value name as `package.module:name`.

    Args:
        is_own: True for a class of the project, which may also import `package.module.name`.
    """
    for text in texts_in(value):
        module, _, name = text.partition(":")
        if name and project.module(module):
            yield from _definition(f"{module}.{name}", project)
        elif is_own and re.fullmatch(r"\w+(\.\w+)+", text) and project.module(text.partition(".")[0]):
            yield from _definition(text, project)


def _definition(dotted: str, project: Project) -> Iterator[Definition]:
    match project.named(dotted):
        case Definition() as found:
            yield found
        case InModule(module):
            yield Definition(module, EVERYTHING)
        case Unknown(module=module):  # bound at run time
            yield Definition(module or dotted.rpartition(".")[0], EVERYTHING)


# Templates


def _of_variable(label: str, value: Any, project: Project) -> Iterator[Ref]:
    """Yield the code or value of a template variable other than the environment."""
    function = getattr(value, "func", value)  # of a partial
    if isinstance(function, FunctionType) and project.module(function.__module__):
        yield from _definition(f"{function.__module__}.{_outermost(function)}", project)
    elif isinstance(value, str | int | float | bool | list | dict | None):
        yield Attribute(label, _as_text(value))
    else:
        yield Definition(project.package, EVERYTHING)


def _outermost(of: type | FunctionType) -> str:
    """Return the name of the module's definition that a class or function is in."""
    return of.__qualname__.partition(".")[0]


# Classes of the project


def _classes(declaration: Declaration, project: Project) -> Iterator[Definition]:
    for each in declaration.component.__mro__ if declaration.component else ():
        if project.module(each.__module__):
            yield from _definition(f"{each.__module__}.{_outermost(each)}", project)


def _options_read(declaration: Declaration, own: list[Definition], code: Code) -> set[str]:
    """Return the options without effect on rows that the component's class may read in its own code."""
    if not own or declaration.component is None:
        return set()
    tidemark = next(each for each in declaration.component.__mro__ if not code.project.module(each.__module__))
    added = OPTIONS_THAT_COMPUTE_NOTHING - getattr(tidemark, "model_fields", {}).keys()
    read = {word for tree in _trees(code.definitions(*own).values(), code.project) for word in _words(tree)}
    return OPTIONS_THAT_COMPUTE_NOTHING if "*" in read else added | (OPTIONS_THAT_COMPUTE_NOTHING & read)


def _trees(refs: Iterable[Ref], project: Project) -> Iterator[ast.AST]:
    for ref in (each.definition if isinstance(each, Inlined) else each for each in refs):
        module = project.module(ref.module) if isinstance(ref, Definition) else None
        if module and isinstance(ref, Definition):
            yield from [module.tree] if ref.name == EVERYTHING else module.bindings[ref.name]


def _words(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes that code reads, also as texts; `*` if it may read any attribute."""
    literal = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=word) | ast.Constant(value=str(word)):
                yield "*" if word in _READ_ANY else word
            case ast.Name(id=word) if word in _READ_ANY and not (word == "getattr" and id(node) in literal):
                yield "*"
            case ast.Call(func=ast.Name(id=called), args=args) if called in _WHOLE:
                yield from ("*" for each in args if getattr(each, "id", "") == "self")
            case ast.FormattedValue(value=ast.Name(id="self")):
                yield "*"


# Files


def _files_beside(declaration: Declaration) -> Iterator[Files]:
    """Yield the data files in the folder of a component, without the folders of other components."""
    if declaration.source.path is None:
        return
    waiting = [declaration.source.path.parent]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.name.startswith((".", "__")):
                continue
            if path.is_dir():
                waiting += [] if any(_DECLARE.fullmatch(below.name) for below in path.iterdir()) else [path]
            elif path.suffix not in (".py", ".pyc") and not _DECLARE.fullmatch(path.name):
                yield Files(path)


def _below(path: Path, declaration: Declaration) -> str:
    assert declaration.source.path is not None
    return path.relative_to(declaration.source.path.parent).as_posix()


def _files_named(value: Any, declaration: Declaration, project: Project) -> Iterator[Files]:
    """Yield the files that texts in an attribute name, from the component's folder or the project's folder."""
    path = declaration.source.path
    bases = [project.home, project.root, *([path.parent] if path else ())]
    for text in texts_in(value):
        if 0 < len(text) < 200 and "\n" not in text:
            named = dict.fromkeys((base / text).resolve() for base in bases)
            yield from (Files(found) for found in named if found.is_file())


# Formats


def _may_use_formats_of_the_project(declaration: Declaration) -> bool:
    """Return True if a feed may have files of a format that the project registers."""
    feed = declaration.feed
    if feed is None:
        return False
    formats = {feed.format_name} if feed.format_name else {file_endings.format_of(each) for each in feed.endings}
    return not formats <= set(file_endings.Format)
