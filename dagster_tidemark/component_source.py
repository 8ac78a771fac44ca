"""The file and the lines of a component's declaration, for messages and code diffs.

Does not belong here: the declarations themselves (`component_declarations`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from dagster_tidemark.table_partitions import DeclarationRefused

_OWNER = re.compile(r"^(?:(?:asset|feed|table) [^\s:,]+[:,] ?)+")

AttributePath = tuple[str | int, ...]


@dataclass(frozen=True)
class ComponentSource:
    """Place of a component's declaration.

    Args:
        file: Its `defs.yaml`, relative to the project's root; empty for a component in Python.
        path: The same file, absolute.
        line: The first line of the component in the file.
        lines: The line of each attribute by its path; the empty path is the line of `attributes`.
        values: The texts of attributes by their paths.
    """

    file: str = ""
    path: Path | None = None
    line: int = 1
    lines: Mapping[AttributePath, int] = field(default_factory=dict)
    values: Mapping[AttributePath, str] = field(default_factory=dict)

    def place(self, path: Sequence[str | int] | None = None) -> str:
        """Return file and line of an attribute or its nearest parent; without a path, of the component."""
        if not self.file:
            return "a component in Python"
        if path is None:
            return f"{self.file}:{self.line}"
        return f"{self.file}:{self.lines.get(self.known(path), self.line)}"

    def known(self, path: Sequence[str | int]) -> AttributePath:
        """Return a path without the parts that are not in the file, such as the alternatives of a schema."""
        found: AttributePath = ()
        for part in path:
            found = longer if (longer := (*found, part)) in self.lines else found
        return found

    def place_of(self, message: str, default: str | None = None) -> str:
        """Return file and line of the attribute that a message is about.

        Args:
            default: The attribute to name if the message names none.
        """
        text = _OWNER.sub("", message)
        quoted = re.findall(r"'([^']+)'", text)
        inner = [path for word in quoted for path in self.lines if len(path) > 1 and path[-1] == word]
        named = [path for path in self.lines if len(path) == 1 and path != ("name",) and _at(path[0], text) >= 0]
        valued = [path for word in quoted for path, value in self.values.items() if value == word]
        found = [*inner[:1], *sorted(named, key=lambda path: _at(path[0], text)), *valued, ("name",)]
        if not (inner or named or valued) and (default or _at("name", text) < 0):
            return self.place([default] if default else None)
        return self.place(found[0])


def _at(attribute: str | int, text: str) -> int:
    """Return the position where a text mentions an attribute; -1 if it does not."""
    words = re.search(rf"\b{re.escape(str(attribute)).replace('_', '[_ ]')}\b", text)
    return words.start() if words else -1


def source_of(context: dg.ComponentLoadContext, attributes: Any) -> ComponentSource:
    """Return the place of the component that Dagster loads; an empty source for a component in Python."""
    tree = context.resolution_context.source_position_tree
    if tree is None:
        return ComponentSource()
    path, below = Path(tree.position.filename), tree.children.get("attributes")
    lines: dict[AttributePath, int] = {(): tree.position.start.line}
    waiting: list[tuple[AttributePath, Any]] = [((), below)] if below else []
    while waiting:
        at, node = waiting.pop(0)
        lines[at] = node.position.start.line
        waiting += [((*at, name), child) for name, child in node.children.items()]
    root = context.project_root
    file = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    return ComponentSource(file, path, tree.position.start.line, lines, dict(_texts_in(attributes, ())))


def _texts_in(value: Any, path: AttributePath) -> Iterator[tuple[AttributePath, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for name, each in value.items():
                yield from _texts_in(each, (*path, name))
        case list():
            for number, each in enumerate(value):
                yield from _texts_in(each, (*path, number))


def require_keys_once(source: ComponentSource) -> None:
    """Raise if a key occurs twice in a mapping. YAML readers silently take the last one.

    Raises:
        DeclarationRefused: a key occurs twice. The message names both lines.
    """
    if source.path is None:
        return
    for document in yaml.compose_all(source.path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader):
        if document.start_mark.line + 1 != source.line:
            continue
        for key, first in _repeated_keys(document):
            raise DeclarationRefused(
                f"{source.file}:{key.start_mark.line + 1}: {key.value} is written twice, first in line "
                f"{first.start_mark.line + 1}; remove one of them"
            )


def _repeated_keys(document: yaml.Node) -> Iterator[tuple[yaml.ScalarNode, yaml.ScalarNode]]:
    waiting, seen = [document], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias of a node that was already visited
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: dict[str, yaml.ScalarNode] = {}
            for key, value in node.value:
                waiting.append(value)
                if isinstance(key, yaml.ScalarNode) and (first := keys.setdefault(key.value, key)) is not key:
                    yield key, first


@dataclass(frozen=True)
class Document:
    """One component of a YAML file.

    Args:
        lines: Its lines in the file.
        attributes: Its attributes, with their templates.
    """

    lines: Sequence[str]
    attributes: Mapping[str, Any]


def documents_of(text: str) -> list[Document]:
    """Return the components of a YAML file; none if it cannot be read."""
    lines, found = text.splitlines(), list[Document]()
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        values = list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return []
    starts = [node.start_mark.line for node in nodes] + [len(lines)]
    for number, value in enumerate(values):
        own = value if isinstance(value, dict) else {}
        attributes = own.get("attributes")
        last = starts[number + 1]
        part = [line for line in lines[starts[number] : last] if line != "---"]
        found.append(Document(part, attributes if isinstance(attributes, dict) else {}))
    return found
