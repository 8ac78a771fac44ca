"""Every way in which a function can refer to another definition: a change there is a change of the asset, and named."""

# ruff: noqa: E501 (packages as text)

import re
from pathlib import Path

import pytest

from dagster_tidemark.code_versions.project import NotPython
from tests.tidemark.code_versions.packages import Package, fingerprint

BEST = "def best(x):\n    return x * 2\n\ndef other(x):\n    return x\n"

# Of each, `2` in the file `changed.py` is replaced by `3`, and has to be seen; or `x` by `+x` in `other`, and must not.
WAYS: dict[str, Package] = {
    "from": {"assets.py": "from toy.changed import best\ndef total(x): return best(x)"},
    "from as": {"assets.py": "from toy.changed import best as b\ndef total(x): return b(x)"},
    "import": {"assets.py": "import toy.changed\ndef total(x): return toy.changed.best(x)"},
    "import as": {"assets.py": "import toy.changed as c\ndef total(x): return c.best(x)"},
    "from package": {"assets.py": "from toy import changed\ndef total(x): return changed.best(x)"},
    "relative": {"assets.py": "from . import changed\ndef total(x): return changed.best(x)"},
    "relative up": {
        "assets.py": "from toy.deep.below import total_of as total",
        "deep/below.py": "from ..changed import best\ndef total_of(x): return best(x)",
    },
    "star": {"assets.py": "from toy.changed import *\ndef total(x): return best(x)"},
    "re-export": {
        "assets.py": "from toy.face import best\ndef total(x): return best(x)",
        "face.py": "from toy.changed import best",
    },
    "re-export by star": {
        "assets.py": "from toy.face import best\ndef total(x): return best(x)",
        "face.py": "from toy.changed import *",
    },
    "in two steps": {
        "assets.py": "from toy.middle import middle\ndef total(x): return middle(x)",
        "middle.py": "from toy.changed import best\ndef middle(x): return best(x)",
    },
    "in the function": {"assets.py": "def total(x):\n    from toy.changed import best\n    return best(x)"},
    "if it is there": {
        "assets.py": "try:\n    from toy.changed import best\nexcept ImportError:\n    best = None\ndef total(x): return best(x)"
    },
    "by version": {
        "assets.py": "import sys\nif sys.version_info > (3,):\n    from toy.changed import best\nelse:\n    best = None\n"
        "def total(x): return best(x)"
    },
    "closure": {
        "assets.py": "from toy.changed import best\ndef total(x):\n    def inner(): return best(x)\n    return inner()"
    },
    "decorator": {"assets.py": "from toy import changed\n@changed.best\ndef total(x): return x"},
    "decorator's argument": {"assets.py": "from functools import wraps\nfrom toy import changed\n@wraps(changed.best)\ndef total(x): return x"},
    "default": {"assets.py": "from toy.changed import best\ndef total(x, how=best): return how(x)"},
    "default of a keyword": {"assets.py": "from toy.changed import best\ndef total(x, *, how=best): return how(x)"},
    "lambda": {"assets.py": "from toy.changed import best\ntotal = lambda x: best(x)"},
    "comprehension": {"assets.py": "from toy.changed import best\ndef total(x): return [best(i) for i in x]"},
    "partial": {"assets.py": "from functools import partial\nfrom toy.changed import best\ntotal = partial(best, 1)"},
    "alias": {"assets.py": "from toy.changed import best\nchosen = best\ndef total(x): return chosen(x)"},
    "class": {
        "assets.py": "from toy.changed import best\nclass C:\n    def m(self, x): return best(x)\ndef total(x): return C().m(x)"
    },
    "base class": {
        "assets.py": "from toy.middle import Base\nclass C(Base): pass\ndef total(x): return C().m(x)",
        "middle.py": "from toy.changed import best\nclass Base:\n    def m(self, x): return best(x)",
    },
    "class attribute": {
        "assets.py": "from toy.changed import best\nclass C:\n    how = best\ndef total(x): return C.how(x)"
    },
    "dictionary": {"assets.py": "from toy.changed import best\nHOW = {'b': best}\ndef total(x): return HOW['b'](x)"},
    "dictionary filled later": {
        "assets.py": "from toy.changed import best\nHOW = {}\nHOW['b'] = best\ndef total(x): return HOW['b'](x)"
    },
    "list appended to": {
        "assets.py": "from toy.changed import best\nHOW = []\nHOW.append(best)\ndef total(x): return HOW[0](x)"
    },
    "dictionary filled elsewhere": {
        "assets.py": "from toy.registry import HOW\ndef total(x): return HOW['b'](x)",
        "registry.py": "HOW = {}",
        "fills.py": "from toy import registry\nfrom toy.changed import best\nregistry.HOW['b'] = best",
    },
    "registered by a method": {
        "assets.py": "from toy.registry import HOW\ndef total(x): return HOW.of(x)",
        "registry.py": "class R:\n    def add(self, f): return f\nHOW = R()",
        "fills.py": "from toy.registry import HOW\nfrom toy.changed import best\n@HOW.add\ndef mine(x): return best(x)",
    },
    "registered by a function": {
        "assets.py": "from toy.registry import HOW\ndef total(x): return HOW['b'](x)",
        "registry.py": "HOW = {}\ndef known(name):\n    def keep(f):\n        HOW[name] = f\n        return f\n    return keep",
        "fills.py": "from toy.registry import known\nfrom toy.changed import best\n@known('b')\ndef mine(x): return best(x)",
    },
    "registered by a function that calls one": {
        "assets.py": "from toy.registry import HOW\ndef total(x): return HOW['b'](x)",
        "registry.py": "HOW = {}\ndef put(name, f): HOW[name] = f\ndef known(f):\n    put(f.__name__, f)\n    return f",
        "fills.py": "from toy import registry\nfrom toy.changed import best\n@registry.known\ndef mine(x): return best(x)",
    },
    "registered as a subclass": {
        "assets.py": "from toy.registry import Base\ndef total(x): return Base.all[0]().m(x)",
        "registry.py": "class Base:\n    all = []\n    def __init_subclass__(cls): Base.all.append(cls)",
        "fills.py": "from toy.registry import Base\nfrom toy.changed import best\nclass C(Base):\n    def m(self, x): return best(x)",
    },
    "found as a subclass": {
        "assets.py": "from toy.registry import Base\ndef total(x): return Base.__subclasses__()[0]().m(x)",
        "registry.py": "class Base: pass",
        "fills.py": "from toy.registry import Base\nfrom toy.changed import best\nclass C(Base):\n    def m(self, x): return best(x)",
    },
    "single dispatch": {
        "assets.py": "from toy.registry import convert\ndef total(x): return convert(x)",
        "registry.py": "from functools import singledispatch\n@singledispatch\ndef convert(x): return x",
        "fills.py": "from toy.registry import convert\nfrom toy.changed import best\n@convert.register\ndef _(x: int): return best(x)",
    },
    "a method is replaced": {
        "assets.py": "from toy.changed import best\nclass C: pass\nC.m = best\ndef total(x): return C().m()"
    },
    "a name as text": {"assets.py": "def total(x): return load('toy.changed.best')(x)"},
    "a name as an entry point": {"assets.py": "def total(x): return load('toy.changed:best')(x)"},
    "a Config": {
        "assets.py": "import dagster as dg\nfrom toy.middle import Limits\n@dg.asset\ndef total(x, config: Limits): return x",
        "middle.py": "import dagster as dg\nfrom toy.changed import best\nclass Limits(dg.Config):\n    most: int = best(1)",
    },
}  # fmt: skip
# What is looked up by a name that nobody can know: all of the module counts, or of the package.
FALLBACKS: dict[str, Package] = {
    "constant getattr": {"assets.py": "from toy import changed\ndef total(x): return getattr(changed, 'best')(x)"},
    "getattr": {"assets.py": "from toy import changed\ndef total(x, name): return getattr(changed, name)(x)"},
    "vars": {"assets.py": "from toy import changed\ndef total(x, name): return vars(changed)[name](x)"},
    "a module as an argument": {"assets.py": "from toy import changed\ndef total(x): return apply(changed, x)"},
    "import_module": {"assets.py": "from importlib import import_module as i\ndef total(x): return i('toy.changed').best(x)"},
    "import_module of a beginning": {
        "assets.py": "import importlib\ndef total(x, n): return importlib.import_module(f'toy.{n}').best(x)"
    },
    "import_module of anything": {
        "assets.py": "import importlib\ndef total(x, n): return importlib.import_module(n).best(x)"
    },
    "__import__": {"assets.py": "def total(x, n): return __import__(n).best(x)"},
    "globals": {"assets.py": "from toy.changed import best\ndef total(x, n): return globals()[n](x)"},
    "eval": {"assets.py": "from toy.changed import best\ndef total(x, n): return eval(n)(x)"},
    "sys.modules": {"assets.py": "import sys\nfrom toy.changed import best\ndef total(x, n): return getattr(sys.modules[__name__], n)(x)"},
    "a name bound at run time": {
        "assets.py": "from toy.changed import best\nglobals().update(b=best)\ndef total(x): return b(x)"
    },
    "a module's __getattr__": {
        "assets.py": "from toy import face\ndef total(x): return face.best(x)",
        "face.py": "from toy import changed\ndef __getattr__(name): return getattr(changed, name)",
    },
}  # fmt: skip


def changed(package: Package, text: str) -> Package:
    return {**package, "changed.py": text}


@pytest.mark.parametrize("way", WAYS)
def test_change_in_a_referenced_function_changes_the_fingerprint_and_is_reported(way: str, tmp_path: Path) -> None:
    before = fingerprint(tmp_path / "1", changed(WAYS[way], BEST))
    after = fingerprint(tmp_path / "2", changed(WAYS[way], BEST.replace("2", "3")))

    assert before.digest != after.digest
    differing = {label for label in after.definitions if before.definitions.get(label) != after.definitions[label]}
    assert differing == {"toy/changed.py: best()"}


@pytest.mark.parametrize("way", WAYS)
def test_change_in_an_unreferenced_function_keeps_the_fingerprint(way: str, tmp_path: Path) -> None:
    before = fingerprint(tmp_path / "1", changed(WAYS[way], BEST))
    after = fingerprint(tmp_path / "2", changed(WAYS[way], re.sub("return x$", "return +x", BEST, flags=re.M)))

    assert before == after


@pytest.mark.parametrize("way", FALLBACKS)
def test_unresolvable_reference_adds_the_whole_module_to_the_fingerprint(way: str, tmp_path: Path) -> None:
    before = fingerprint(tmp_path / "1", changed(FALLBACKS[way], BEST))
    after = fingerprint(tmp_path / "2", changed(FALLBACKS[way], BEST.replace("2", "3")))

    assert before.digest != after.digest


@pytest.mark.parametrize("text", ["SELECT a FROM b WHERE c = 2", "a\n  b 2\n"])
def test_fingerprint_includes_text_constants(text: str, tmp_path: Path) -> None:
    package = {"assets.py": f"SQL = {text!r}\ndef total(x): return x.sql(SQL)"}
    other = {"assets.py": package["assets.py"].replace("2", "3")}

    assert fingerprint(tmp_path / "1", package).digest != fingerprint(tmp_path / "2", other).digest


@pytest.mark.parametrize(
    "read",
    [
        "from pathlib import Path\ndef total(x): return (Path(__file__).parent / 'q.sql').read_text()",
        "from importlib import resources\ndef total(x): return resources.files('toy').joinpath('q.sql').read_text()",
        "def total(x): return open('toy/q.sql').read()",
    ],
)
def test_fingerprint_includes_a_sql_file_next_to_the_module(read: str, tmp_path: Path) -> None:
    before = fingerprint(tmp_path / "1", {"assets.py": read, "q.sql": "SELECT 1"})
    after = fingerprint(tmp_path / "2", {"assets.py": read, "q.sql": "SELECT 2"})

    assert before.digest != after.digest


def test_fingerprint_distinguishes_functions_with_the_same_name(tmp_path: Path) -> None:
    modules = {"a.py": "def f(x): return x", "b.py": "def f(x): return -x"}
    one = {**modules, "assets.py": "from toy import a, b\ndef total(x): return a.f(x) / b.f(x)"}
    other = {**modules, "assets.py": "from toy import a, b\ndef total(x): return b.f(x) / a.f(x)"}

    assert fingerprint(tmp_path / "1", one).digest != fingerprint(tmp_path / "2", other).digest


def test_fingerprint_covers_mutually_recursive_functions(tmp_path: Path) -> None:
    module = "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n > 0 and even(n - 1)\n"
    one = {"assets.py": module + "def total(x): return even(x)"}
    other = {"assets.py": module.replace("> 0", "> 1") + "def total(x): return even(x)"}

    assert fingerprint(tmp_path / "1", one).digest != fingerprint(tmp_path / "2", other).digest


def test_fingerprint_excludes_the_code_of_the_library(tmp_path: Path) -> None:
    package = {"assets.py": "from dagster_tidemark import shaped_as\ndef total(x): return shaped_as(x, {})"}

    assert list(fingerprint(tmp_path, package).definitions) == ["toy/assets.py: total()"]


def test_fingerprint_refuses_a_module_with_a_syntax_error(tmp_path: Path) -> None:
    with pytest.raises(NotPython, match=r"toy/assets\.py, line 1"):
        fingerprint(tmp_path, {"assets.py": "def total(x: return x"})
