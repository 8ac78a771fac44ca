"""Options of Dagster's and Tidemark's declarations that change no rows, unless code of the asset reads them.

Does not belong here: leaving the options out (`normal_form`, `component_code`).
"""

import ast
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
