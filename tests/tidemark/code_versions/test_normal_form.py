"""What changes nothing, and what does: pairs of packages, each with one change."""

# ruff: noqa: E501 (packages as text)

from pathlib import Path

import pytest

from tests.tidemark.code_versions.packages import Package, fingerprint

Pair = tuple[Package, Package]
HELPERS = "RATE = 2\ndef best(x): return x * RATE\ndef other(x): return x\n"


def one(before: str, after: str) -> Pair:
    """A change of the module that the asset is in."""
    return {"assets.py": before, "helpers.py": HELPERS}, {"assets.py": after, "helpers.py": HELPERS}


COSMETIC: dict[str, Pair] = {
    "a comment": one("def total(x):\n    return x + 1\n", "# why\ndef total(x):\n\n    return (  # so\n        x + 1)\n"),
    "quotes and numbers": one('def total(x): return x["a"] + 1000', "def total(x): return x['a'] + 1_000"),
    "adjacent texts": one('def total(x): return "ab"', 'def total(x): return "a" "b"'),
    "adjacent formatted texts": one('def total(x): return f"a{x}b"', 'def total(x): return f"a{x}" "b"'),
    "a docstring is added": one("def total(x): return x", 'def total(x):\n    """All."""\n    return x'),
    "a docstring is changed": one('def total(x):\n    "a"\n    return x', 'def total(x):\n    "b"\n    return x'),
    "pass": one("def total(x): return x", "def total(x):\n    pass\n    return x"),
    "annotations": one(
        "def total(x):\n    y = x\n    return y", "def total(x: int) -> 'int':\n    y: int = x\n    return y"
    ),
    "a declared local": one("def total(x):\n    y = x\n    return y", "def total(x):\n    y: int\n    y = x\n    return y"),
    "from __future__": one("def total(x): return x", "from __future__ import annotations\ndef total(x): return x"),
    "imports for types": one(
        "def total(x): return x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.helpers import best\ndef total(x): return x",
    ),
    "imports for types by an alias": one(
        "def total(x): return x",
        "from typing import TYPE_CHECKING as T\nif T:\n    from toy.helpers import best\ndef total(x): return x",
    ),
    "a field's type for type checkers": one(
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nfrom dataclasses import dataclass\n"
        "if TYPE_CHECKING: import numpy\n@dataclass\nclass C:\n    a: numpy.int8\ndef total(x): return C()",
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nfrom dataclasses import dataclass\n"
        "if TYPE_CHECKING: import numpy\n@dataclass\nclass C:\n    a: numpy.int8\ndef total(x): return C()\nother = 1",
    ),
    "annotations of a property": one(
        "class C:\n    @property\n    def a(self): return 1\ndef total(x): return C().a",
        "class C:\n    @property\n    def a(self) -> int: return 1\ndef total(x): return C().a",
    ),
    "an unused import": one("def total(x): return x", "import os\nfrom toy import helpers\ndef total(x): return x"),
    "imports in another order": one(
        "import os\nimport re\ndef total(x): return re.sub(os.sep, x)",
        "import re\nimport os\ndef total(x): return re.sub(os.sep, x)",
    ),
    "an alias": one(
        "from toy.helpers import best\ndef total(x): return best(x)",
        "from toy.helpers import best as b\ndef total(x): return b(x)",
    ),
    "a module's alias": one(
        "from toy.helpers import best\ndef total(x): return best(x)",
        "import toy.helpers as h\ndef total(x): return h.best(x)",
    ),
    "a dotted import": one(
        "from toy.helpers import best\ndef total(x): return best(x)",
        "import toy.helpers\ndef total(x): return toy.helpers.best(x)",
    ),
    "a relative import": one(
        "from toy.helpers import best\ndef total(x): return best(x)",
        "from .helpers import best\ndef total(x): return best(x)",
    ),
    "a star": one(
        "from toy.helpers import best\ndef total(x): return best(x)",
        "from toy.helpers import *\ndef total(x): return best(x)",
    ),
    "an import in the function": one(
        "from toy.helpers import best\ndef total(x): return best(x)",
        "def total(x):\n    from toy.helpers import best as b\n    return b(x)",
    ),
    "a library's alias": one(
        "import json as j\ndef total(x): return j.dumps(x)", "from json import dumps as d\ndef total(x): return d(x)"
    ),
    "another definition of the module": one(
        "A = 1\ndef other(): return A\ndef total(x): return x", "A = 2\ndef other(): return -A\ndef total(x): return x"
    ),
    "definitions in another order": one(
        "def a(x): return x\ndef b(x): return -x\ndef total(x): return a(b(x))",
        "def total(x): return a(b(x))\ndef b(x): return -x\ndef a(x): return x",
    ),
    "an overload": one(
        "def total(x): return x",
        "from typing import overload\n@overload\ndef total(x: int) -> int: ...\ndef total(x): return x",
    ),
    "what runs only as a script": one("def total(x): return x", "def total(x): return x\nif __name__ == '__main__': total(1)"),
    "a moved file": (
        {"assets.py": "from toy.helpers import best\ndef total(x): return best(x)", "helpers.py": HELPERS},
        {"assets.py": "from toy.more.maths import best\ndef total(x): return best(x)", "more/maths.py": HELPERS},
    ),
    "a re-export": (
        {"assets.py": "from toy.helpers import best\ndef total(x): return best(x)", "helpers.py": HELPERS},
        {
            "assets.py": "from toy.more import best\ndef total(x): return best(x)",
            "more/__init__.py": "from .maths import best as best",
            "more/maths.py": HELPERS,
        },
    ),
    "a function's own module": (
        {"assets.py": "from toy.helpers import best\ndef total(x): return best(x)", "helpers.py": HELPERS},
        {"assets.py": HELPERS + "def total(x): return best(x)"},
    ),
    "an annotation in a plain class": one(
        "class C:\n    a = 1\ndef total(x): return C.a", "class C:\n    a: int = 1\ndef total(x): return C.a"
    ),
    "what a table's column is said to hold": one(
        "from dagster_tidemark import Table\ntotal = Table(name='a.b', columns={'c': 'bigint'}, row_key=('c',))",
        "from dagster_tidemark import Table\ntotal = Table(name='a.b', columns={'c': 'bigint'}, row_key=('c',), comment='A')",
    ),
    "how an asset is declared": one(
        "import dagster as dg\n@dg.asset(code_version='1')\ndef total(x): return x",
        "import dagster as dg\n@dg.asset(code_version='2', owners=['team:x'])\ndef total(x): return x",
    ),
}  # fmt: skip

REAL: dict[str, Pair] = {
    "an operator": one("def total(x): return x + 1", "def total(x): return x - 1"),
    "a literal": one("def total(x): return x + 1", "def total(x): return x + 2"),
    "a literal's type": one("def total(x): return x + 1", "def total(x): return x + 1.0"),
    "a column": one("def total(x): return x['a']", "def total(x): return x['b']"),
    "a text in a formatted text": one("def total(x): return f'a{x}'", "def total(x): return f'b{x}'"),
    "a format": one("def total(x): return f'{x:.2f}'", "def total(x): return f'{x:.3f}'"),
    "a called name": one("def total(x): return x.sum()", "def total(x): return x.max()"),
    "a library's function": one(
        "import math as m\ndef total(x): return m.floor(x)", "import math as m\ndef total(x): return m.ceil(x)"
    ),
    "another function by the same alias": one(
        "from math import floor as f\ndef total(x): return f(x)",
        "from math import ceil as f\ndef total(x): return f(x)",
    ),
    "arguments swapped": one("def total(x): return pow(x, 2)", "def total(x): return pow(2, x)"),
    "an argument dropped": one("def total(x): return round(x, 2)", "def total(x): return round(x)"),
    "a keyword": one("def total(x): return x.join(how='left')", "def total(x): return x.join(on='left')"),
    "a condition negated": one("def total(x): return 1 if x else 2", "def total(x): return 1 if not x else 2"),
    "statements swapped": one("def total(x):\n    a()\n    b()", "def total(x):\n    b()\n    a()"),
    "a parameter": one("def total(x): return x", "def total(y): return y"),
    "a default": one("def total(x, n=1): return x", "def total(x, n=2): return x"),
    "a default of a keyword": one("def total(x, *, n=1): return x", "def total(x, *, n=2): return x"),
    "a keyword-only parameter": one("def total(x, n): return x", "def total(x, *, n): return x"),
    "locals swapped": one(
        "def total(x):\n    a, b = x\n    return a - b", "def total(x):\n    a, b = x\n    return b - a"
    ),
    "a local that SQL names": one(
        "def total(x):\n    lines, other = x\n    return sql('SELECT * FROM lines')",
        "def total(x):\n    other, lines = x\n    return sql('SELECT * FROM lines')",
    ),
    "a local that eval names": one(
        "def total(x):\n    a, b = x\n    return eval('a')", "def total(x):\n    b, a = x\n    return eval('a')"
    ),
    "a decorator": one("def total(x): return x", "from toy.helpers import best\n@best\ndef total(x): return x"),
    "a lambda": one("def total(x): return map(lambda a: a + 1, x)", "def total(x): return map(lambda a: a - 1, x)"),
    "a comprehension's filter": one(
        "def total(x): return [i for i in x if i > 0]", "def total(x): return [i for i in x if i >= 0]"
    ),
    "a comprehension's source": one("def total(x): return [x for x in x]", "def total(x): return [x for x in y]"),
    "a nested function": one(
        "def total(x):\n    def inner(): return 1\n    return inner()",
        "def total(x):\n    def inner(): return 2\n    return inner()",
    ),
    "a type hint that a decorator reads": one(
        "from pyspark.sql.functions import pandas_udf\nimport pandas as pd\n"
        "@pandas_udf('long')\ndef total(x: pd.Series) -> pd.Series: return x",
        "from pyspark.sql.functions import pandas_udf\nimport pandas as pd\nfrom collections.abc import Iterator\n"
        "@pandas_udf('long')\ndef total(x: Iterator[pd.Series]) -> Iterator[pd.Series]: return x",
    ),
    "a dataclass's field": one(
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int = 1\ndef total(x): return C()",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int = 2\ndef total(x): return C()",
    ),
    "a table's column": one(
        "from dagster_tidemark import Table\ntotal = Table(name='a.b', columns={'c': 'bigint'}, row_key=('c',))",
        "from dagster_tidemark import Table\ntotal = Table(name='a.b', columns={'c': 'string'}, row_key=('c',))",
    ),
    "a match": one(
        "def total(x):\n    match x:\n        case [a, *_]: return a",
        "def total(x):\n    match x:\n        case [a]: return a",
    ),
    "an exception": one(
        "def total(x):\n    try: return x\n    except KeyError: return 1",
        "def total(x):\n    try: return x\n    except ValueError: return 1",
    ),
    "async": one("def total(x): return x", "async def total(x): return x"),
}


@pytest.mark.parametrize("name", COSMETIC)
def test_cosmetic_code_change_keeps_the_fingerprint(name: str, tmp_path: Path) -> None:
    before, after = COSMETIC[name]
    assert fingerprint(tmp_path / "1", before).digest == fingerprint(tmp_path / "2", after).digest


@pytest.mark.parametrize("name", REAL)
def test_code_change_that_computes_another_result_changes_the_fingerprint(name: str, tmp_path: Path) -> None:
    before, after = REAL[name]
    assert fingerprint(tmp_path / "1", before).digest != fingerprint(tmp_path / "2", after).digest
