"""Generates the files of a new project: a code location with one feed, one table, one test and a Makefile.

The folder `project/` contains the templates. A file `*.tmpl` has placeholders such as `$package`, and the folder
`package/` gets the package's name. `feed_module` and `table_modules` write the feed and the table, as for `tidemark
new`. The folder of an example has files that replace files of `project/`. Does not belong here: a feed or table of an
existing project.
"""

import keyword
import re
import sys
from collections.abc import Mapping
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.scaffold.feed_module import feed_module
from dagster_tidemark.scaffold.sample import read_sample
from dagster_tidemark.scaffold.table_modules import table_modules
from dagster_tidemark.sources.times import Grain

_TEMPLATE = ".tmpl"
_FEED, _SAMPLE, _KEY = "stock", "samples/stock.csv", ("item_id",)
_TABLE, _TABLE_KEY = "stock_by_category", ("category",)
_SHOWN = 3  # maximum number of files listed in a message
EXAMPLES = {"grocer": "[models,kafka]"}
"""The extras of the library that each example needs. The group `dev` of a project adds the extra `local`."""
_OF_THE_SAMPLE = ("README.md", "samples/", "tests/test_")


def package_of(directory: Path) -> str:
    """Return the package's name for a project in a directory: `my-pipelines` gives `my_pipelines`.

    Raises:
        Terminal: the directory is not empty, or its name cannot be the name of a package.
    """
    name = directory.resolve().name
    package = re.sub(r"[-. ]", "_", name.lower())
    if directory.exists() and not directory.is_dir():
        raise Terminal(f"{directory} is a file: name a new or an empty folder")
    if found := sorted(path.name for path in directory.iterdir()) if directory.exists() else []:
        listed = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
        raise Terminal(f"{directory} is not empty ({listed}): name a new or an empty folder")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package):
        raise Terminal(
            f"{name!r} makes no valid Python package name: name a folder of a-z, 0-9, - and _ that begins with a letter"
        )
    if why := _taken(package):
        raise Terminal(f"{package!r} cannot be the project's package: {why}; name another folder")
    return package


def project_files(package: str, example: str = "") -> Mapping[str, str]:
    """Return the text of each file of a new project, by the file's path below the project's folder.

    Args:
        example: One of `EXAMPLES`, to write in place of the sample feed and table; "" for none.

    Raises:
        Terminal: this installation does not contain the example.
    """
    extras = EXAMPLES[example] if example else ""
    values = {"package": package, "name": package.replace("_", "-"), "extras": extras}
    with as_file(files("dagster_tidemark.scaffold")) as folder:
        texts = _filled_in(folder / "project", package, values)
        if example:
            own = (*_OF_THE_SAMPLE, f"{package}/")
            texts = {path: text for path, text in texts.items() if not path.startswith(own)}
            texts |= _example(folder / example, package, values)
        else:
            texts |= _sample_feed_and_table(folder / "project", package)
    return dict(sorted(texts.items()))


def _filled_in(templates: Path, package: str, values: Mapping[str, str]) -> dict[str, str]:
    texts = {}
    every = (path for path in templates.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for path in every:
        text = path.read_text(encoding="utf-8")
        if path.suffix == _TEMPLATE:
            text = Template(text).substitute(values)
        texts[_target(path.relative_to(templates), package)] = text
    return texts


def _sample_feed_and_table(templates: Path, package: str) -> dict[str, str]:
    sample = read_sample(templates / _SAMPLE, feed=_FEED, key=_KEY)
    below = {f"feeds/{_FEED}.py": feed_module(_FEED, Grain.DAY, sample, key=_KEY, package=package)}
    stock = Table(
        name=f"core.{_FEED}",
        columns={"day": "date", **sample.columns, **LINEAGE},
        partitioned_by="day",
        row_key=("day", *_KEY),
    )
    below |= table_modules(_TABLE, stock, "day", _TABLE_KEY, package=package)
    return {f"{package}/{path}": text for path, text in below.items()}


def _example(templates: Path, package: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return an example's files. In its modules, the package name of the checkout (`pipelines`) is replaced."""
    if not (templates / "package").is_dir():
        raise Terminal(
            f"the example {templates.name} comes with the wheel, and this installation is a checkout: "
            "`pipelines/` there is the example"
        )
    texts = _filled_in(templates, package, values)
    texts.pop(f"{package}/ruff.toml", None)  # settings that only the checkout needs
    return {path: re.sub(r"\bpipelines\b", package, text) for path, text in texts.items()}


def write_project(directory: Path, example: str = "") -> Mapping[str, str]:
    """Write a new project into an empty or new directory, and return its files.

    Raises:
        Terminal: `package_of` or `project_files` refused. Nothing was written.
    """
    texts = project_files(package_of(directory), example)
    for path, text in texts.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return texts


def _taken(package: str) -> str:
    """Return the reason why a name is not available for a package; empty if it is available."""
    if keyword.iskeyword(package):
        return "it is a keyword of Python"
    if package in sys.stdlib_module_names:
        return "Python has a module of this name"
    if package in ("samples", "tests"):
        return "the project has a folder of this name for something else"
    found = find_spec(package)
    if found is not None and found.origin is not None:  # a folder without modules has no origin, and is allowed
        return "an installed package has this name"
    return ""


def _target(path: Path, package: str) -> str:
    first, *others = path.with_suffix("").parts if path.suffix == _TEMPLATE else path.parts
    return "/".join([package if first == "package" else first, *others])
