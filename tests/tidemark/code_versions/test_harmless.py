"""Edits that rename, extract or respell code: harmless ones, and similar ones that change the result."""

from pathlib import Path

import pytest

from tests.tidemark.code_versions.packages import Package, fingerprint

HELPERS = "RATE = 2\nWORD = 'a'\ndef best(x): return x * RATE\n"
HARMLESS = {
    "a renamed local": (
        "def total(x):\n    y = x + 1\n    return y * y",
        "def total(x):\n    z = x + 1\n    return z * z",
    ),
    "a renamed loop variable": (
        "def total(x):\n    s = 0\n    for i in x: s += i\n    return s",
        "def total(x):\n    t = 0\n    for each in x: t += each\n    return t",
    ),
    "a renamed variable of a comprehension": (
        "def total(x): return [i + 1 for i in x]",
        "def total(x): return [j + 1 for j in x]",
    ),
    "a renamed local of an inner function": (
        "def total(x):\n    def f(a):\n        b = a\n        return b + c\n    c = 1\n    return f(x)",
        "def total(x):\n    def f(a):\n        d = a\n        return d + e\n    e = 1\n    return f(x)",
    ),
    "unpacked": ("def total(x):\n    a, b = x\n    return b - a", "def total(x):\n    b, a = x\n    return a - b"),
    "an extracted constant": ("def total(x): return x * 1.5", "SHARE = 1.5\ndef total(x): return x * SHARE"),
    "a constant in another module": (
        "def total(x): return x * 2",
        "from toy.helpers import RATE\ndef total(x): return x * RATE",
    ),
    "a renamed constant": ("A = -2\ndef total(x): return x * A", "B = -2\ndef total(x): return x * B"),
    "a constant default": ("def total(x, y=3): return x + y", "N: int = 3\ndef total(x, y=N): return x + y"),
    "a tuple": ("def total(x): return x in ('a', 1)", "OF = ('a', 1)\ndef total(x): return x in OF"),
    "an f-string for a literal": ("def total(x): return x['ab']", "def total(x): return x[f'ab']"),
    "a renamed function": (
        "def f(x): return x + 1\ndef total(x): return f(x)",
        "def g(x): return x + 1\ndef total(x): return g(x)",
    ),
    "a renamed function of another module": (
        "from toy.helpers import best\ndef total(x): return best(x)",
        "from toy.other import better\ndef total(x): return better(x)",
    ),
}
REAL = {
    "another local": (
        "def total(x):\n    y = 1\n    z = 2\n    return y",
        "def total(x):\n    y = 1\n    z = 2\n    return z",
    ),
    "locals exchanged": (
        "def total(x):\n    a, b = x\n    return b - a",
        "def total(x):\n    a, b = x\n    return a - b",
    ),
    "a local in SQL": (
        "import duckdb\ndef total(x):\n    rows = x\n    return duckdb.sql('FROM rows')",
        "import duckdb\ndef total(x):\n    others = x\n    return duckdb.sql('FROM rows')",
    ),
    "a local of locals()": (
        "def total(x):\n    y = x\n    return locals()",
        "def total(x):\n    z = x\n    return locals()",
    ),
    "a parameter": ("def total(x, low=1): return x + low", "def total(x, least=1): return x + least"),
    "a keyword": ("def total(x): return x.agg(low=1)", "def total(x): return x.agg(least=1)"),
    "a constant's value": ("A = 2\ndef total(x): return x * A", "A = 3\ndef total(x): return x * A"),
    "a constant that a function changes": (
        "A = 2\ndef f():\n    global A\n    A = 3\ndef total(x):\n    f()\n    return x * A",
        "A = 2\ndef f():\n    global A\n    A = 4\ndef total(x):\n    f()\n    return x * A",
    ),
    "a number of another type": ("A = 2\ndef total(x): return x * A", "A = 2.0\ndef total(x): return x * A"),
    "a list that is filled": (
        "A = []\nA.append(1)\ndef total(x): return A",
        "A = []\nA.append(2)\ndef total(x): return A",
    ),
    "another function": (
        "def f(x): return x\ndef g(x): return -x\ndef total(x): return f(x), g(x)",
        "def f(x): return x\ndef g(x): return -x\ndef total(x): return g(x), f(x)",
    ),
    "a function's name that is read": (
        "def f(x): return x\ndef total(x): return {f.__name__: f(x)}",
        "def g(x): return x\ndef total(x): return {g.__name__: g(x)}",
    ),
    "a value in an f-string": ("def total(x): return f'a{x}'", "def total(x): return f'a{x}b'"),
    "a docstring that is read": (
        'def q():\n    """SELECT 1"""\ndef total(x): return x.sql(q.__doc__)',
        'def q():\n    """SELECT 2"""\ndef total(x): return x.sql(q.__doc__)',
    ),
    "a docstring that a decorator reads": (
        'from toy.other import query\n@query\ndef total(x):\n    """SELECT 1"""',
        'from toy.other import query\n@query\ndef total(x):\n    """SELECT 2"""',
    ),
    "a class's docstring": (
        'import inspect\nclass Q:\n    """SELECT 1"""\ndef total(x): return x.sql(inspect.getdoc(Q))',
        'import inspect\nclass Q:\n    """SELECT 2"""\ndef total(x): return x.sql(inspect.getdoc(Q))',
    ),
    "a module's docstring": (
        '"""SELECT 1"""\ndef total(x): return x.sql(__doc__)',
        '"""SELECT 2"""\ndef total(x): return x.sql(__doc__)',
    ),
}
OTHER = "R = 2\ndef better(x): return x * R\ndef query(f): return lambda x: x.sql(f.__doc__)\n"


def package(text: str) -> Package:
    return {"assets.py": text, "helpers.py": HELPERS, "other.py": OTHER}


@pytest.mark.parametrize("edit", HARMLESS)
def test_harmless_refactoring_keeps_the_fingerprint(edit: str, tmp_path: Path) -> None:
    before, after = (fingerprint(tmp_path / str(n), package(text)) for n, text in enumerate(HARMLESS[edit]))
    assert before.digest == after.digest


@pytest.mark.parametrize("edit", REAL)
def test_refactoring_that_changes_the_result_changes_the_fingerprint(edit: str, tmp_path: Path) -> None:
    before, after = (fingerprint(tmp_path / str(n), package(text)) for n, text in enumerate(REAL[edit]))
    assert before.digest != after.digest
