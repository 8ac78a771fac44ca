"""Toy packages as text: a package is a file's path below `toy/` to its text."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from dagster_tidemark.code_versions.fingerprint import Code, Fingerprint
from dagster_tidemark.code_versions.project import Definition, Project

Package = Mapping[str, str]


def fingerprint(root: Path, package: Package, start: str = "assets.total") -> Fingerprint:
    """The fingerprint of a definition of a package, which is written below a folder of its own."""
    write(root, package)
    project = Project(root, "toy")
    found = project.named(f"toy.{start}")
    assert isinstance(found, Definition)
    return Code(project).fingerprint(found)


def write(root: Path, package: Package) -> None:
    for name, text in {"__init__.py": "", **package}.items():
        path = root / "toy" / name
        for folder in path.relative_to(root).parents:
            if folder.parts:
                (root / folder).mkdir(parents=True, exist_ok=True)
                (root / folder / "__init__.py").touch()
        path.write_text(textwrap.dedent(text))
