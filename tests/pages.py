"""The pages of docs/ as tests follow them: their steps, the commands of a step, and the modules that it shows."""

import linecache
import re
from pathlib import Path
from typing import Any

from tests.checkout import CHECKOUT

DOCS = CHECKOUT / "docs"
_FENCE = r"^( *)```{language}\n(.*?)^ *```$"
_MODULE = re.compile(
    r"^(?:\d\. )?`([\w-]+/[\w/-]+\.py)`(?=[:,]| has)((?:(?!\n\n).)*):\n\n( *)```python\n(?!\3 )(.*?)^ *```$",
    re.M | re.S,
)


def page(name: str) -> str:
    """Return the text of a page."""
    return (DOCS / name).read_text()


def step(text: str, number: int) -> str:
    """Return the text of a page's step, `## 3. Look at the rows`."""
    return text.split(f"\n## {number}. ")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a language, in order."""
    found = re.findall(_FENCE.format(language=re.escape(language)), text, re.M | re.S)
    return [_outdented(code, indent) for indent, code in found]


def modules(text: str) -> list[tuple[str, str]]:
    """Return path and code of each module that a text shows.

    A paragraph or a step begins with the path and `:`, `,` or `has`, and ends with a colon; then the code follows.
    """
    return [(path, _outdented(code, indent)) for path, _, indent, code in _MODULE.findall(text)]


def written(project: Path, text: str) -> list[str]:
    """Write the modules that a text shows into a project, and return their paths.

    Code without a docstring is added to a module that exists.
    """
    shown = modules(text)
    for path, code in shown:
        file = project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text() if file.exists() and not code.startswith('"""') else ""
        file.write_text(f"{before}\n{code}" if before else code)
    return [path for path, _ in shown]


def execute(code: str, name: str, module: dict[str, Any]) -> None:
    """Execute code of a page in a module. `inspect` finds its lines, which Dagster links in the UI.

    Under the name of the page itself, `inspect` would read the page as Python.
    """
    file = f"<docs/{name}: {hash(code)}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec", dont_inherit=True), module)


def python_of(command: str) -> str:
    """Return the program that a command line gives to `python -`."""
    (program,) = re.findall(r"^python - <<'EOF'\n(.*?)^EOF$", command, re.M | re.S)
    return program


def calls_of_clients(code: str) -> set[str]:
    """Return the names of the methods of AWS clients that code calls."""
    verbs = "change|create|delete|get|head|list|put|receive|send"
    return set(re.findall(rf"\b(?:self\._client|_client\(settings\)|client)\.((?:{verbs})_\w+)", code))


def _outdented(code: str, indent: str) -> str:
    """Return code of a list without the list's indent."""
    return re.sub(rf"^{indent}", "", code, flags=re.M)
