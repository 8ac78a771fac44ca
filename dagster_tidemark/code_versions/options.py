"""Parts of definitions that change no row, unless code of the same asset reads them at run time.

These are options of Dagster's and Tidemark's declarations, docstrings, names, and annotations. Belongs here: the
options, and finding code that reads such parts. Does not belong here: leaving them out (`normal_form`,
`component_code`).
"""

import ast
import re
from collections.abc import Collection, Iterable

OPTIONS_THAT_COMPUTE_NOTHING = {
    "automation_condition", "backfill_policy", "check_specs", "code_version", "column_comments", "comment",
    "compute_kind", "description", "fresh", "freshness_policy", "group_name", "kinds", "metadata", "op_tags", "owners",
    "partitions", "partitions_def", "pool", "quarantine_share", "retention", "retry_policy", "tags",
}  # fmt: skip
"""Options of Dagster's and Tidemark's decorators and classes that do not change rows, such as scheduling."""

OF_KEYS = {"key_prefix"}
"""Options that only determine an asset's key, under which the lock has its code."""

_OPTIONS = OPTIONS_THAT_COMPUTE_NOTHING - {"code_version"}  # a changed version is a new version in any case
_READ = "option "
_READ_BY = {
    "asset_partitions_def_for_output": {"partitions_def"},
    "definition_metadata": {"metadata"},
    "descriptions_by_key": {"description"},
    "get_asset_spec": {"description", "metadata", "tags"},
    "get_tag": {"op_tags", "tags"},
    "group_names_by_key": {"group_name"},
    "has_tag": {"op_tags", "tags"},
    "metadata_by_key": {"metadata"},
    "output_metadata": {"metadata"},
    "owners_by_key": {"owners"},
    "partitions": {"partitions", "partitions_def"},
    "partitions_def": {"partitions", "partitions_def"},
    "run_tags": {"op_tags", "tags"},
    "specs_by_key": {"description", "metadata", "tags"},
    "tags": {"op_tags", "tags"},
    "tags_by_key": {"tags"},
}
"""Options that code reads by an attribute with a name other than the option's own."""
_READ_ALL = {"dataclasses.asdict", "dataclasses.astuple", "dataclasses.fields", "dataclasses.replace"}


def option_reads(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the options that code reads of any object, in the form of `options_in`."""
    nodes, found = list(nodes), set[str]()
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if id(node) not in called or name not in _OPTIONS:
                found |= _READ_BY.get(name, {name} & _OPTIONS)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found |= _READ_BY.get(name, {name} & _OPTIONS)
            case ast.Call(func=ast.Name(id="attrgetter") | ast.Attribute(attr="attrgetter"), args=names):
                texts = [each.value for each in names if isinstance(each, ast.Constant)]
                found |= _OPTIONS.intersection(word for text in texts for word in str(text).split("."))
            case ast.MatchClass(kwd_attrs=names):
                found |= _OPTIONS.intersection(names)
    return {f"{_READ}{option}" for option in found}


def all_option_reads(nodes: Iterable[ast.AST], externals: Collection[str], *, uses_module: bool) -> set[str]:
    """Return all options if code may read any field of an object.

    Args:
        externals: Names of libraries that the code mentions.
        uses_module: True if the code uses a module as a value, so that `vars` may be about the module.
    """
    may_read = _READ_ALL.intersection(externals) or (not uses_module and any(map(_reads_vars, nodes)))
    return {f"{_READ}{option}" for option in _OPTIONS} if may_read else set()


def _reads_vars(node: ast.AST) -> bool:
    """Return True for `vars(of)`, except for an object's own `vars(self)`: no declaration has code of the project."""
    match node:
        case ast.Call(func=ast.Name(id="vars"), args=[of]):
            return getattr(of, "id", "") not in ("self", "cls")
    return False


def is_option_read(read: str) -> bool:
    """Return True for the reading of an option."""
    return read.startswith(_READ)


def options_in(reads: Iterable[str]) -> set[str]:
    """Return the options among the parts that code reads."""
    return {read.removeprefix(_READ) for read in reads if is_option_read(read)}


DOCSTRINGS = "docstrings"
NAMES = "names"
ANNOTATIONS = "annotations"
MODULES = "modules"
"""All names of a module, such as by `vars(module)` or `getattr(module, name)`."""

OF_OWN = (".pandas_udf", ".arrow_udf", ".validate_call")
"""Endings of functions that read the annotations of the function that they are given."""

SOURCE = "source"
"""The text of functions and classes, with comments, such as by `inspect.getsource`."""

_DOCS = {"__doc__", "getdoc"}
_SOURCE = {"getsource", "getsourcelines"}
_NAMES = {"__name__", "__qualname__"}
_HINTS = {"__annotations__"}
_READ_HINTS = re.compile(
    r"functools\.singledispatch(method)?|(typing|typing_extensions)\.get_type_hints|pydantic\.(validate_call|create_model)"
    r"|inspect\.(signature|getfullargspec|get_annotations)|pyspark\.sql\..*(pandas|arrow)_udf"
)


def reads_in(nodes: Iterable[ast.AST], externals: Collection[str], *, uses_module: bool) -> frozenset[str]:
    """Return the parts of other definitions that code reads. The syntax does not show which definitions it reads.

    Args:
        externals: Names of libraries that the code mentions.
        uses_module: True if the code uses a module of the project as a value.
    """
    found = {MODULES} if uses_module else set()
    if any(_READ_HINTS.fullmatch(name) for name in externals):
        found.add(ANNOTATIONS)
    every = [inner for each in nodes for inner in ast.walk(each)]
    found |= all_option_reads(every, externals, uses_module=uses_module) | option_reads(every)
    for node in every:
        match node:
            case ast.Attribute(attr=word):
                is_text = False
            case ast.Name(id=word):
                found |= {DOCSTRINGS} if word in _DOCS else set()
                found |= {SOURCE} if word in _SOURCE else set()
                continue
            case ast.Constant(value=str(word)):
                is_text = True
            case _:
                continue
        found |= {NAMES} if word in _NAMES else set()
        found |= {ANNOTATIONS} if word in _HINTS else set()
        if not is_text:
            found |= {DOCSTRINGS} if word in _DOCS else set()
            found |= {SOURCE} if word in _SOURCE else set()
    return frozenset(found)
