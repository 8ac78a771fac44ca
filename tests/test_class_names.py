"""A class has one name in the whole library, so that a name in an error or a document leads to one place."""

import ast
from collections import defaultdict

from tests.checkout import CHECKOUT


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in sorted((CHECKOUT / "dagster_tidemark").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(CHECKOUT)))
    doubled = {name: found for name, found in places.items() if len(found) > 1}
    assert not doubled, f"rename all but one of these classes: {doubled}"
