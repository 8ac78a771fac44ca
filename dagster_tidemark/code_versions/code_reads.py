"""Finds code that reads other code at run time: docstrings, names, annotations, options, or all names of a module.

These parts of a definition change no row, unless the code of the same asset reads them. Does not belong here: writing
the parts (`normal_form`).
"""

import ast
import re
from collections.abc import Collection, Iterable

from dagster_tidemark.code_versions.options import all_option_reads, option_reads

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
