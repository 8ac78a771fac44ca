"""Edits of the grocer's code, as text: cosmetic ones, and real ones of one operator, literal, name or argument each.

Nothing here knows how a fingerprint is made. Does not belong here: which assets an edit concerns.
"""

import ast
import copy
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

Sources = Mapping[str, str]
"""A project: path from its root to text."""

RUFF = Path(sys.executable).with_name("ruff")


def with_comments(text: str, random: Random) -> str:
    """Comments of a line of their own, and behind lines, where a statement ends."""
    ends = {node.end_lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
    inside = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.STRING
        for line in range(token.start[0], token.end[0])
    }
    lines = text.splitlines()
    for number in range(len(lines), 0, -1):
        if number in ends and number not in inside and random.random() < 0.5:
            lines[number - 1] += f"  # {random.choice(['why', 'TODO', 'see core/orders'])}"
        if number not in inside and random.random() < 0.3:
            lines.insert(number, "# " + random.choice(["as the shop says", "return orders", ""]))
    return "\n".join(lines) + "\n"


def with_blank_lines(text: str, random: Random) -> str:
    del random
    return re.sub(r"\n(?=(def|from|import|@|[A-Z_]+ =))", "\n\n\n", text) + "\n\n"


def with_other_quotes(text: str, random: Random) -> str:
    del random
    tokens = [
        token._replace(string=f"'{token.string[1:-1]}'")
        if token.type == tokenize.STRING
        and token.string[0] == '"'
        and not token.string.startswith('"""')
        and not set(token.string[1:-1]) & set("'\\")
        else token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    ]
    return tokenize.untokenize(tokens)


def unparsed(text: str, random: Random) -> str:
    del random
    return ast.unparse(ast.parse(text))


def formatted(text: str, random: Random) -> str:
    """By the formatter, with lines of another length."""
    arguments = [str(RUFF), "format", "--isolated", "--line-length", str(random.choice([40, 60, 80, 200])), "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout


def with_other_docstrings(text: str, random: Random) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Module):
            if ast.get_docstring(node) is not None:
                node.body.pop(0)
            if random.random() < 0.7 or not node.body:
                node.body.insert(0, ast.Expr(ast.Constant(f"One row per {random.randrange(100)}.")))
    return ast.unparse(ast.fix_missing_locations(tree))


def without_annotations(text: str, random: Random) -> str:
    del random
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
    return ast.unparse(tree)


def with_annotations(text: str, random: Random) -> str:
    """Annotations of every parameter and every local variable, and the imports they take."""
    tree = ast.parse(text)
    kinds = ["int", "'orders'", "dict[str, int]", "Sequence[int]", "None"]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = ast.parse(random.choice(kinds), mode="eval").body
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = ast.parse(random.choice(kinds), mode="eval").body
            node.body = [_annotated(statement, random.choice(kinds)) for statement in node.body]
    head = "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
    head += "if TYPE_CHECKING:\n    from collections.abc import Sequence\n"
    return head + ast.unparse(ast.fix_missing_locations(tree))


def _annotated(statement: ast.stmt, kind: str) -> ast.stmt:
    match statement:
        case ast.Assign(targets=[ast.Name() as target]):
            annotation = ast.parse(kind, mode="eval").body
            return ast.AnnAssign(target=target, annotation=annotation, value=statement.value, simple=1)
    return statement


def with_reordered_imports(text: str, random: Random) -> str:
    tree = ast.parse(text)
    imports = [s for s in tree.body if isinstance(s, ast.Import | ast.ImportFrom)]
    rest = [s for s in tree.body if s not in imports]
    unused = ast.parse(
        "import os.path\nfrom decimal import Decimal as D\nfrom pipelines.schemas import marts as unused"
    ).body
    tree.body = random.sample([*imports, *unused], len(imports) + len(unused)) + rest
    for statement in imports:
        if isinstance(statement, ast.ImportFrom):
            random.shuffle(statement.names)
    return ast.unparse(tree)


def with_other_aliases(text: str, random: Random) -> str:
    """`functions as F` by another name, and what is imported from modules by an alias."""
    tree = ast.parse(text)
    new: dict[str, str] = {}
    for statement in tree.body:
        for alias in statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else ():
            if "." not in (alias.asname or alias.name):
                new[alias.asname or alias.name] = alias.asname = f"alias_{len(new)}_{random.randrange(9)}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
    return ast.unparse(tree)


def with_reordered_definitions(text: str, random: Random) -> str:
    """Functions in another order, behind everything else."""
    tree = ast.parse(text)
    functions = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    rest = [s for s in tree.body if s not in functions]
    tree.body = rest + random.sample(functions, len(functions))
    return ast.unparse(tree)


COSMETIC: Mapping[str, Callable[[str, Random], str]] = {
    edit.__name__: edit
    for edit in (
        with_comments,
        with_blank_lines,
        with_other_quotes,
        unparsed,
        formatted,
        with_other_docstrings,
        without_annotations,
        with_annotations,
        with_reordered_imports,
        with_other_aliases,
        with_reordered_definitions,
    )
}


def moved(sources: Sources, path: str, target: str) -> Sources:
    """A module elsewhere, and every import of it changed."""
    old, new = (p.removesuffix(".py").replace("/", ".") for p in (path, target))
    packages = [f"{folder}/__init__.py" for folder in map(str, Path(target).parents) if folder != "."]
    texts = {name: text for name, text in sources.items() if name != path} | {target: sources[path]}
    texts |= {name: "" for name in packages if name not in texts}
    (folder, _, last), (new_folder, _, new_last) = old.rpartition("."), new.rpartition(".")

    def apart(found: re.Match[str]) -> str:
        names = found[1].split(", ")
        others = [f"from {folder} import {name}" for name in names if name != last]
        return "\n".join([*others, f"from {new_folder} import {new_last} as {last}"]) if last in names else found[0]

    return {
        name: re.sub(rf"^from {re.escape(folder)} import ([\w, ]+)$", apart, text, flags=re.M).replace(
            f"from {old} import", f"from {new} import"
        )
        for name, text in texts.items()
    }


Edit = tuple[str, str, str]
"""What was done, the name of the definition at module level in which, and the module's new text."""

_OPERATORS: Mapping[type, ast.AST] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Add(), ast.Div: ast.Mult(), ast.BitOr: ast.BitAnd(),
    ast.Gt: ast.GtE(), ast.Lt: ast.LtE(), ast.Eq: ast.NotEq(), ast.In: ast.NotIn(), ast.USub: ast.UAdd(),
}  # fmt: skip
_NO_CODE = {"comment", "column_comments", "quarantine_share"}


def real_edits(text: str) -> Iterator[Edit]:
    """Every edit of one thing: of an operator, a literal, a called name, an argument, a condition."""
    statements = ast.parse(text).body
    texts = [ast.unparse(statement) for statement in statements]
    for number, statement in enumerate(statements):
        if isinstance(statement, ast.FunctionDef):
            name = statement.name
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
        else:
            continue
        count = len(list(_places(statement)))
        for place in range(count):
            edited = copy.deepcopy(statement)
            for what in _changed(list(_places(edited))[place]):
                changed = ast.unparse(ast.fix_missing_locations(edited))
                yield what, name, "\n".join([*texts[:number], changed, *texts[number + 1 :]]) + "\n"


def _places(node: ast.AST) -> Iterator[ast.AST]:
    """What counts of a definition: no docstring, no annotation, no asset's declaration, no comment of a table."""
    match node:
        case ast.FunctionDef():
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            below: list[ast.AST] = [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *body]
        case ast.Assign():
            below = [node.value]
        case ast.keyword(arg=str(name)) if name in _NO_CODE:
            return
        case _:
            below = list(ast.iter_child_nodes(node))
    yield node
    for child in below:
        yield from _places(child)


def _changed(node: ast.AST) -> Iterator[str]:
    """Change a node, in at most one way."""
    match node:
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) if type(op) in _OPERATORS:
            node.op = _OPERATORS[type(op)]  # type: ignore[assignment]
            yield f"operator {type(op).__name__}"
        case ast.Compare(ops=[op]) if type(op) in _OPERATORS:
            node.ops = [_OPERATORS[type(op)]]  # type: ignore[list-item]
            yield f"comparison {type(op).__name__}"
        case ast.Constant(value=str(text)):
            node.value = f"{text}_x"
            yield f"text {text!r}"
        case ast.Constant(value=int(number) | float(number)):
            node.value = not number if isinstance(number, bool) else number + 1
            yield f"number {number}"
        case ast.Call(func=ast.Attribute(attr=attr)) if len(node.args) != 2:
            node.func.attr = f"{attr}_distinct"  # type: ignore[attr-defined]
            yield f"called {attr}"
        case ast.Call(args=[_, _]):
            node.args.reverse()
            yield "arguments swapped"
        case ast.Call(args=[*_, _], func=ast.Name(id=name)):
            node.args.pop()
            yield f"argument of {name} dropped"
        case ast.keyword(arg=str(name)):
            node.arg = f"{name}_x"
            yield f"keyword {name}"
        case ast.Return(value=ast.expr() as value):
            node.value = ast.UnaryOp(op=ast.Invert(), operand=value)
            yield "negated"
        case ast.Attribute(attr=attr, ctx=ast.Load()):
            node.attr = f"{attr}_x"
            yield f"attribute {attr}"
