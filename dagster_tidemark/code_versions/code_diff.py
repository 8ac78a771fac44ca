"""Compares the code of assets with another version of the project, as unified diffs of definitions.

Belongs here: comparing two versions. Does not belong here: reading the other version (`event_log.deployed`).
"""

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeGuard

import dagster as dg

from dagster_tidemark.code_versions.assets import AssetCode
from dagster_tidemark.code_versions.fingerprint import Code
from dagster_tidemark.code_versions.options import OPTIONS_THAT_COMPUTE_NOTHING
from dagster_tidemark.code_versions.project import EVERYTHING, Definition, Files, Project
from dagster_tidemark.code_versions.references import Inlined, LibraryChange, Ref
from dagster_tidemark.component_declarations import Declaration, declared_by
from dagster_tidemark.component_source import Document, documents_of
from dagster_tidemark.engine.code_plan import MovedDefinition
from dagster_tidemark.event_log.deployed import KEPT


def moved_definitions(
    project: Project, before: Mapping[str, str], assets: Iterable[str], loaded: Iterable[Any]
) -> dict[str, list[MovedDefinition]]:
    """Return the definitions in each asset's code that differ. Assets without a difference are left out.

    Changes of only comments, formatting or docstrings do not count, as for `tidemark lock`.

    Args:
        project: The present version, whose modules are loaded.
        before: The other version: the text of each file, by its path relative to the project's root.
        assets: The keys of the assets to compare.
        loaded: All assets of the loaded code location.

    Raises:
        NotPython: a module of either version cannot be parsed.
    """
    loaded = list(loaded)
    now, declared = AssetCode(project, loaded), declared_by(loaded).by_asset
    has_files = any(not name.endswith(".py") for name in before)  # an earlier release kept only modules
    with TemporaryDirectory() as folder:
        for name, text in before.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        old = Code(Project(Path(folder), project.package))
        diffs: dict[tuple[Ref | None, Ref | None], MovedDefinition | None] = {}
        found: dict[str, list[MovedDefinition]] = {}
        for asset in assets:
            starts = now.starts(dg.AssetKey.from_user_string(asset))
            then = _definitions(old, _then(old, starts, project))
            here = _definitions(now.code, starts)
            for label in sorted(then.keys() | here.keys()):
                pair = then.get(label), here.get(label)
                if isinstance(pair[1], Files) and not (has_files and pair[1].path.is_relative_to(project.root)):
                    continue  # the text of the other version is not stored
                if pair not in diffs:
                    diffs[pair] = _moved(label, old, pair[0], now.code, pair[1])
                if (moved := diffs[pair]) is not None:
                    found.setdefault(asset, []).append(moved)
            declaration = declared.get(dg.AssetKey.from_user_string(asset))
            if has_files and declaration and (moved := _moved_component(project, declaration, before)):
                found.setdefault(asset, []).insert(0, moved)
    return found


def _moved_component(project: Project, of: Declaration, before: Mapping[str, str]) -> MovedDefinition | None:
    """Return the difference of a component; None if all attributes that change rows are equal."""
    path = of.source.path
    if path is None or not path.is_relative_to(project.root):
        return None
    then = _document(before.get(path.relative_to(project.root).as_posix(), ""), of)
    here = _document(path.read_text(), of)
    if then and here and _that_compute(then) == _that_compute(here):
        return None
    label, old, new = of.source.file, then.lines if then else [], here.lines if here else []
    lines = list(difflib.unified_diff(old, new, f"deployed {label}", label, lineterm="", n=3))
    return MovedDefinition(label, lines) if lines else None


def _document(text: str, of: Declaration) -> Document | None:
    """Return the component in a YAML file's text that declares the same feed or table, or the file's only component."""
    every = documents_of(text)
    names = {of.table.name, of.feed.name if of.feed else of.table.name}
    return next((each for each in every if each.attributes.get("name") in names), every[0] if len(every) == 1 else None)


def _that_compute(document: Document) -> dict[str, Any]:
    return {name: each for name, each in document.attributes.items() if name not in OPTIONS_THAT_COMPUTE_NOTHING}


def _definitions(code: Code, starts: Sequence[Ref]) -> dict[str, Definition | Files]:
    refs = code.definitions(*starts)
    plain = {label: ref.definition if isinstance(ref, Inlined) else ref for label, ref in refs.items()}
    return {label: ref for label, ref in plain.items() if isinstance(ref, Definition) or _is_kept(ref)}


def _is_kept(ref: Ref) -> TypeGuard[Files]:
    """Return True for a file whose text is stored at each deploy."""
    return isinstance(ref, Files) and ref.path.suffix in KEPT and ref.path.is_file()


def _then(old: Code, starts: Sequence[Ref], project: Project) -> list[Ref]:
    """Return the starts of an asset's code that the other version has."""
    found: list[Ref] = []
    for start in starts:
        if isinstance(start, Files) and start.path.is_relative_to(project.root):
            path = old.project.root / start.path.relative_to(project.root)
            found += [Files(path)] if path.exists() else []
        elif isinstance(start, LibraryChange):
            found += old.registered_formats
        elif _is_there(old.project, start):
            found.append(start)
    return found


def _is_there(project: Project, ref: Ref) -> bool:
    module = project.module(ref.module) if isinstance(ref, Definition) else None
    return module is not None and isinstance(ref, Definition) and (ref.name in (EVERYTHING, *module.bindings))


def _moved(
    label: str, old: Code, then: Definition | Files | None, now: Code, here: Definition | Files | None
) -> MovedDefinition | None:
    if then and here and old.hash_of(then) == now.hash_of(here):
        return None
    before = _text(old.project, then) if then else []
    after = _text(now.project, here) if here else []
    lines = list(difflib.unified_diff(before, after, f"deployed {label}", label, lineterm="", n=3))
    return MovedDefinition(label, lines) if lines else None


def _text(project: Project, of: Definition | Files) -> list[str]:
    """Return the lines of a file, or of a definition with its decorators."""
    if isinstance(of, Files):
        return of.path.read_text().splitlines()
    module = project.module(of.module)
    if module is None or module.path is None:
        return []
    lines = module.path.read_text().splitlines()
    if of.name == EVERYTHING:
        return lines
    found: list[str] = []
    for statement in module.bindings.get(of.name, ()):
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        found += lines[first - 1 : statement.end_lineno]
    return found
