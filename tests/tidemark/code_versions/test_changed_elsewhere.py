"""Edits in other places than the definition itself that change its result: each has to change the fingerprint."""

# ruff: noqa: E501 (packages as text)

from pathlib import Path

import pytest

from tests.tidemark.code_versions.packages import Package, fingerprint

KEEP = "def keep(**o):\n    return lambda f: lambda x: f(x) * o['{0}']\n@keep({0}=2)\ndef total(x): return x"
READS_CONFIG = "from toy import config\ndef total(x): return x * config.RATE"
FILLED = {"assets.py": "R = {}\ndef total(x): return x * R['a']"}
LISTED = {"assets.py": "R = []\ndef total(x): return [f(x) for f in R]"}
FILL = "from toy.assets import R\ndef fill(d, v): d['a'] = v\n"
FUNCTION = "def f(x): return x * {}"

# In each, `2` is replaced by `3`.
EDITS: dict[str, Package] = {
    **{
        f"option {name} of an own decorator": {"assets.py": KEEP.format(name)}
        for name in ("comment", "description", "fresh", "metadata", "partitions", "retention", "tags")
    },
    "option of an own decorator of another module": {
        "assets.py": "from toy.own import keep\n@keep(retention=2)\ndef total(x): return x",
        "own.py": "def keep(**o):\n    return lambda f: lambda x: f(x) * o['retention']",
    },
    "option of a local decorator": {"assets.py": "def total(x, keep):\n    @keep(tags=2)\n    def f(): return x\n    return f()"},
    "option of a library's decorator": {"assets.py": "from other import keep\n@keep(tags=2)\ndef total(x): return x"},
    "an attribute of an imported module": {
        "assets.py": READS_CONFIG, "config.py": "RATE = 1", "z.py": "from toy import config\nconfig.RATE = 2",
    },
    "an attribute of a module with an alias": {
        "assets.py": READS_CONFIG, "config.py": "RATE = 1", "z.py": "import toy.config as c\nc.RATE = 2",
    },
    "an attribute of a module with a dotted name": {
        "assets.py": READS_CONFIG, "config.py": "RATE = 1", "z.py": "import toy.config\ntoy.config.RATE = 2",
    },
    "setattr of a module": {
        "assets.py": READS_CONFIG, "config.py": "RATE = 1", "z.py": "from toy import config\nsetattr(config, 'RATE', 2)",
    },
    "an attribute of a module, set by a function": {
        "assets.py": READS_CONFIG,
        "config.py": "RATE = 1",
        "z.py": "from toy import config\ndef setup(): config.RATE = 2\nsetup()",
    },
    "a new attribute of a module": {"assets.py": READS_CONFIG, "config.py": "", "z.py": "from toy import config\nconfig.RATE = 2"},
    "a replaced function of a module": {
        "assets.py": "from toy import config\ndef total(x): return config.f(x)",
        "config.py": "def f(x): return x",
        "z.py": "from toy import config\ndef g(x): return 2 * x\nconfig.f = g",
    },
    "an imported list with +=": {**LISTED, "z.py": "from toy.assets import R\nR += [lambda x: 2 * x]"},
    "an imported list with += after a star": {**LISTED, "z.py": "from toy.assets import *\nR += [lambda x: 2 * x]"},
    "an imported list that is appended to after +=": {
        **LISTED, "z.py": "from toy.assets import R\nR += []\nR.append(lambda x: 2 * x)",
    },
    "an imported dictionary with |=": {**FILLED, "z.py": "from toy.assets import R\nR |= {'a': 2}"},
    "an assigned call that fills": {**FILLED, "z.py": FILL + "_ = fill(R, 2)"},
    "an assigned call with a keyword that fills": {**FILLED, "z.py": FILL + "_ = fill(v=2, d=R)"},
    "an assigned call that fills by another function": {
        **FILLED, "z.py": FILL + "def more(d, v): return fill(d, v)\n_ = more(R, 2)",
    },
    "an assigned call of a class that fills": {
        **FILLED, "z.py": "from toy.assets import R\nclass Fill:\n    def __init__(self, d, v): d['a'] = v\n_ = Fill(R, 2)",
    },
    "an assigned call of a library that fills": {
        **LISTED, "z.py": "import heapq\nfrom toy.assets import R\n_ = heapq.heappush(R, lambda x: 2 * x)",
    },
    "a star after an import": {
        "assets.py": "from toy.b import f\nfrom toy.c import *\ndef total(x): return f(x)",
        "b.py": FUNCTION.format(1),
        "c.py": FUNCTION.format(2),
    },
    "a star after a definition": {
        "assets.py": "def f(x): return x\nfrom toy.c import *\ndef total(x): return f(x)", "c.py": FUNCTION.format(2),
    },
    "a star after a constant": {"assets.py": "N = 1\nfrom toy.c import *\ndef total(x): return x * N", "c.py": "N = 2"},
    "a star that __all__ limits": {
        "assets.py": "from toy.b import *\nfrom toy.c import *\ndef total(x): return f(x)",
        "b.py": FUNCTION.format(2),
        "c.py": "__all__ = ['g']\ndef f(x): return x\ndef g(x): return x",
    },
    "a star that __all__ extends": {
        "assets.py": "from toy.c import *\ndef total(x): return _f(x)",
        "c.py": "__all__ = ['_f']\ndef _f(x): return x * 2",
    },
    "if __name__ !=": {"assets.py": "R = 1\nif __name__ != '__main__':\n    R = 2\ndef total(x): return x * R"},
    "else of __main__": {
        "assets.py": "if __name__ == '__main__':\n    R = 0\nelse:\n    R = 2\ndef total(x): return x * R"
    },
    "elif of __main__": {
        "assets.py": "R = 1\nif '__main__' == __name__:\n    R = 0\nelif R:\n    R = 2\ndef total(x): return x * R"
    },
    "if __name__ is another name": {
        "assets.py": "R = 1\nif __name__ == 'toy.assets':\n    R = 2\ndef total(x): return x * R"
    },
}  # fmt: skip

# In each, `2` is replaced by `3`, which has no effect.
HARMLESS: dict[str, Package] = {
    "option of Dagster's decorator": {"assets.py": "import dagster as dg\n@dg.asset(tags={'a': '2'})\ndef total(x): return x"},
    "option of Tidemark's decorator": {
        "assets.py": "from dagster_tidemark.models import model\n@model(retention=2)\ndef total(x): return x"
    },
    "what only a script runs": {"assets.py": "def total(x): return x\nif __name__ == '__main__': print(2)"},
    "the else of !=": {"assets.py": "def total(x): return x\nif __name__ != '__main__': pass\nelse: print(2)"},
    "a call that only reads": {
        **FILLED, "z.py": "from toy.assets import R\ndef read(d, v): return d['a'] * v\nN = read(R, 2)",
    },
    "an import after a star": {
        "assets.py": "from toy.c import *\nfrom toy.b import f\ndef total(x): return f(x)",
        "b.py": FUNCTION.format(1),
        "c.py": FUNCTION.format(2),
    },
    "another attribute of the module": {
        "assets.py": READS_CONFIG, "config.py": "RATE = 1\nOTHER = 1", "z.py": "from toy import config\nconfig.OTHER = 2",
    },
}  # fmt: skip


def edited(package: Package) -> Package:
    return {name: text.replace("2", "3") for name, text in package.items()}


@pytest.mark.parametrize("name", EDITS)
def test_change_from_elsewhere_changes_the_fingerprint(name: str, tmp_path: Path) -> None:
    before, after = EDITS[name], edited(EDITS[name])
    assert fingerprint(tmp_path / "1", before).digest != fingerprint(tmp_path / "2", after).digest


@pytest.mark.parametrize("name", HARMLESS)
def test_change_elsewhere_without_effect_keeps_the_fingerprint(name: str, tmp_path: Path) -> None:
    before, after = HARMLESS[name], edited(HARMLESS[name])
    assert fingerprint(tmp_path / "1", before).digest == fingerprint(tmp_path / "2", after).digest


def test_order_of_an_import_and_a_definition_of_the_same_name_counts(tmp_path: Path) -> None:
    line, own = "from toy.b import f\n", "def f(x): return 2\n"
    texts = (line + own, own + line)
    one, other = ({"assets.py": t + "def total(x): return f(x)", "b.py": "def f(x): return 1"} for t in texts)
    assert fingerprint(tmp_path / "1", one).digest != fingerprint(tmp_path / "2", other).digest
