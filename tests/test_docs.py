"""README and docs say what is there: their links, commands, options, variables and snippets."""

import ast
import inspect
import json
import re
import tomllib
from dataclasses import fields
from itertools import pairwise, product
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement

import dagster_tidemark
from dagster_tidemark import errors, formats, models, streams, testing
from dagster_tidemark.cli.app import app
from dagster_tidemark.cli.status import status
from dagster_tidemark.environment import declared_variables
from dagster_tidemark.location import asset_graph
from dagster_tidemark.settings import Settings, load_settings
from tests import pages
from tests.checkout import CHECKOUT

PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
_FOREIGN = {name for name in Settings.model_fields if name.startswith("aws_")} | {"spark_remote", "dagster_home"}
"""Settings whose variables belong to other programs."""
PUBLIC = {module.__name__: set(module.__all__) for module in (dagster_tidemark, formats, models, streams, testing)}
OF_THE_EXAMPLE = {"beats_naive", "published"}
OPTIONAL_CHECKS = {"arrival", "delivery"}
"""Checks that exist only with `expected` and `notify`."""
_COMMAND = re.compile(r"`tidemark ([a-z]+(?: [a-z]+)?)((?: [^`]*)?)`|^ *tidemark ([a-z]+(?: [a-z]+)?)( .*)?$", re.M)


def commands() -> dict[str, set[str]]:
    """Each command with the options it has."""
    found: dict[str, set[str]] = {}

    def walk(command: object, path: tuple[str, ...]) -> None:
        options = {name for option in getattr(command, "params", ()) for name in option.opts if name.startswith("--")}
        found[" ".join(path)] = options | {"--help"}
        for name, below in getattr(command, "commands", {}).items():
            walk(below, (*path, name))

    walk(typer.main.get_command(app), ())
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_on_a_docs_page_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target
    for path in re.findall(
        r"`((?:dagster_tidemark|pipelines|tests|docs|bench|deploy|proof)/[\w/.-]*)`", page.read_text()
    ):
        said = page.read_text()
        written_here = path in dict(pages.modules(said)) or f"`{path}`: " in said or f"writes `{path}`" in said
        assert written_here or (CHECKOUT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_on_a_docs_page_exist(page: Path) -> None:
    known = commands()
    for quoted, its_options, shown, more in _COMMAND.findall(page.read_text().replace("\n  ", " ")):
        words = (quoted or shown).split()
        name = " ".join(words) if " ".join(words) in known else words[0]
        assert name in known, f"tidemark {quoted or shown}"
        if name == "feed":
            continue  # whose options are the sample feed's
        assert set(re.findall(r"--[a-z-]+", its_options or more)) <= known[name], (name, its_options or more)


def test_feeds_page_names_every_option_of_new_feed() -> None:
    named = set(re.findall(r"--[a-z-]+", pages.page("feeds.md")))
    assert commands()["new feed"] - {"--help"} <= named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_on_a_docs_page_parse_and_import_public_names(page: Path) -> None:
    for code in pages.blocks(page.read_text(), "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dagster_tidemark"):
                assert {name.name for name in node.names} <= PUBLIC.get(node.module or "", set()), ast.unparse(node)


def test_every_public_name_is_used_in_a_docs_snippet() -> None:
    named = set()
    for page in PAGES:
        for code in pages.blocks(page.read_text(), "python"):
            for node in ast.walk(ast.parse(code)):
                match node:
                    case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                        named.add(name)
        for code in pages.blocks(page.read_text(), "yaml"):
            named |= set(re.findall(r"^type: dagster_tidemark\.(\w+)$", code, re.M))
    assert [f"{module}.{name}" for module, names in PUBLIC.items() for name in sorted(names - named)] == []


def test_docs_reference_lists_exactly_the_public_names() -> None:
    pages_of_reference = (CHECKOUT / "docs" / "reference").glob("*.md")
    shown = set(re.findall(r"^::: ([\w.]+)$", "".join(page.read_text() for page in pages_of_reference), re.M))
    wanted = {f"{module}.{name}" for module, names in PUBLIC.items() for name in names}
    assert shown == wanted


def test_docs_lists_and_code_blocks_are_valid_markdown() -> None:
    for page in PAGES[1:]:
        text, before = re.sub(r"^( *)```.*?^ *```$", "", page.read_text(), flags=re.M | re.S), ""
        for line in text.splitlines():
            begins = re.match(r"(- |\d+\. )", line) and before and not re.match(r"(- |\d+\. | {2,})", before)
            assert not begins, f"{page.name}: an empty line has to precede the list at {line!r}"
            before = line
        assert not re.findall(r"^ {1,3}```", page.read_text(), re.M), f"{page.name}: indent code in a list by four"


def test_variables_named_in_the_docs_are_settings() -> None:
    asset_graph(load_settings())  # imports the grocer's declarations
    declared = {name.removeprefix("TIDEMARK_").lower() for name in declared_variables()}
    known = set(Settings.model_fields) | declared | {"port_"}
    for page in PAGES:
        for name in re.findall(r"TIDEMARK_([A-Z_]+)", page.read_text()):
            assert name.partition("__")[0].lower() in known, f"{page.name}: TIDEMARK_{name}"


def test_every_setting_is_in_the_table_of_settings() -> None:
    _, said = re.split(r"^## Settings.*\n", pages.page("production.md"), flags=re.M)
    said = said.partition("\n## ")[0]
    for name, setting in Settings.model_fields.items():
        if name in _FOREIGN | {"kill_at", "stop_at"}:
            continue
        [row] = re.findall(rf"^\|.*`TIDEMARK_{name.upper()}`.* \|$", said, re.M)
        default = f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default or "")
        if name not in ("catalog", "project"):  # these have no default of their own
            assert default in {"None", ""} or default in row.split("|")[2], name


def test_arguments_in_a_table_of_the_docs_equal_the_signature() -> None:
    """A table begins with `| `Stream(...)` |`, and has a row for each argument."""
    compared = set()
    for page in PAGES:
        for name, rows in re.findall(r"^\| `(\w+)\(\.\.\.\)` \|.*\n\|[-|]*\n((?:\|.*\n)+)", page.read_text(), re.M):
            known = next(getattr(of, name) for of in (dagster_tidemark, streams, testing) if hasattr(of, name))
            assert set(re.findall(r"^\| `(\w+)` ", rows, re.M)) == set(inspect.signature(known).parameters), name
            compared.add(name)
    assert compared >= {"Stream", "Alerting", "Answering", "Simulation"}
    [pace] = re.findall(r"^\| argument \| default.*\n\|[-|]*\n((?:\|.*\n)+)", pages.page("simulator.md"), re.M)
    assert re.findall(r"^\| `(\w+)` ", pace, re.M) == [each.name for each in fields(testing.RunPace)]
    [delivered] = re.findall(r"^\| argument \| default.*\n\|[-|]*\n((?:\|.*\n)+)", pages.page("deliveries.md"), re.M)
    listed = [name for row in delivered.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert listed == [each.name for each in fields(streams.Deliveries)]


def test_simulator_page_has_each_method() -> None:
    said = pages.page("simulator.md")
    methods = [name for name in dir(testing.Simulation) if not name.startswith("_")]
    assert [name for name in methods if not re.search(rf"[`.]{name}\b", said)] == []


def test_exit_codes_of_status_are_the_same_everywhere() -> None:
    [row] = re.findall(r"^\| `tidemark status` .*$", pages.page("operating.md"), re.M)
    of_help = set(re.findall(r"(\d+) if\b", (status.__doc__ or "").replace("with 4 if", "4 if")))
    assert set(re.findall(r"(\d+): ", row.split("|")[3])) == of_help
    watch = pages.page("production.md").partition("\n## Watch it\n")[2].partition("\n## ")[0]
    # 0: all is well; 1 and 3: no answer
    assert set(re.findall(r"^\| (\d+) \|", watch, re.M)) == of_help | {"0", "1", "3"}


def test_versions_that_an_existing_location_needs_are_those_of_the_package() -> None:
    said = " ".join(pages.page("existing-location.md").split())
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    needed = {each.name: each.specifier for each in map(Requirement, project["dependencies"])}
    [(pythons, dagster, pyspark, pandas)] = re.findall(
        r"run with Python ([\d., or]+), Dagster ([\d.]+) or a later [\d.]+, pyspark ([\d.]+) and pandas (\d)\.", said
    )
    assert str(needed["dagster"]) == f"<1.14,>={dagster}" and str(needed["pyspark"]) == f"=={pyspark}"
    assert needed["pandas"].contains(f"{pandas}.9") and not needed["pandas"].contains(f"{int(pandas) + 1}.0")
    assert project["requires-python"] == ">=3.11,<3.14" and pythons == "3.11, 3.12 or 3.13"


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for module in (dagster_tidemark, formats, models, streams, testing):
        for name in module.__all__:
            assert getattr(module, name).__doc__ or name in ("LINEAGE", "MESSAGE", "MODEL_VERSIONS"), name


def test_readme_diagram_equals_the_asset_graph() -> None:
    (picture,) = re.findall(r"^```mermaid\nflowchart LR\n(.*?)^```", (CHECKOUT / "README.md").read_text(), re.M | re.S)
    drawn = set()
    for line in picture.splitlines():
        columns = [[key.strip() for key in column.split("&")] for column in line.split("-->")]
        drawn |= {arrow for left, right in pairwise(columns) for arrow in product(left, right)}
    nodes = asset_graph(load_settings()).asset_nodes
    assert drawn == {(above.to_user_string(), n.key.to_user_string()) for n in nodes for above in n.parent_keys}


def test_error_tree_lists_every_error_below_its_base() -> None:
    bases, codes = classes_of_the_library()
    found: dict[str, set[str]] = {"Transient": set(), "Terminal": set(), "TidemarkError": set()}
    for name in bases:
        above = [name]
        while above[-1] not in found and above[-1] in bases:
            above.append(next((base for base in bases[above[-1]] if base in found or base in bases), ""))
        if name not in found and above[-1] in found:
            found[above[-1]].add(name)
    tree = (errors.__doc__ or "").partition("    TidemarkError")[2].partition("\n\n")[0]
    at, told = "TidemarkError", dict[str, set[str]]()
    for line in tree.splitlines():
        branch = re.match(r" *[├└]── (\w+)", line)
        at = branch[1] if branch and branch[1] in found else "TidemarkError" if branch else at
        told.setdefault(at, set()).update(re.findall(r"\b[A-Z]\w+[a-z]\w*\b", line.partition(":")[0]))
    assert {base: names - {base} for base, names in told.items()} == found
    for name, code in codes.items():
        assert re.search(rf"\b{name} +exits with {code}\b", errors.__doc__ or ""), f"{name} exits with {code}"


def classes_of_the_library() -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the names of the bases of each class, and the exit codes that classes declare."""
    bases, codes = dict[str, list[str]](), dict[str, int]()
    for path in (CHECKOUT / "dagster_tidemark").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                for code in re.findall(r"^exit_code\b.* = (\d+)$", "\n".join(map(ast.unparse, node.body)), re.M):
                    codes[node.name] = int(code)
    return bases, codes


def test_architecture_page_lists_the_packages_in_import_order() -> None:
    text = (CHECKOUT / "docs" / "architecture.md").read_text()
    (listed,) = re.findall(r"^```\n(cli .*?)^```", text, re.M | re.S)
    rooms = [re.split(r"  +", line)[0].split(" | ") for line in listed.splitlines()]
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("exhaustive")]
    assert rooms == [layer.split(" | ") for layer in layers]


def test_modules_in_the_message_tables_of_the_docs_exist() -> None:
    text = (CHECKOUT / "docs" / "architecture.md").read_text()
    steps = re.findall(r"^\| .* \| (`\w+`) \| ((?:`[\w/]+`(?:, )?)+) \|$", text, re.M)
    assert len(steps) > 15
    for room, modules in steps:
        below = ""
        for name in re.findall(r"`([\w/]+)`", modules):
            found = [CHECKOUT / "dagster_tidemark" / room.strip("`") / folder / name for folder in ("", below)]
            assert any(path.with_suffix(".py").exists() or path.is_dir() for path in found), f"{room} {name}"
            below = name.rpartition("/")[0] or below


def test_readme_lists_every_package() -> None:
    packages = {path.parent.name for path in (CHECKOUT / "dagster_tidemark").glob("*/__init__.py")}
    text = (CHECKOUT / "README.md").read_text().partition("| in `dagster_tidemark/` | question |")[2]
    assert packages <= set(re.findall(r"`(\w+)/`", text))


def test_every_broad_except_has_a_comment() -> None:
    silent = []
    for path in sorted((CHECKOUT / "dagster_tidemark").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if re.search(r"\bexcept(:| \(?(Base)?Exception\b)", line) and "#" not in line:
                silent.append(f"{path.relative_to(CHECKOUT)}:{number}")
    assert silent == []


def test_readme_has_at_most_120_lines() -> None:
    assert len((CHECKOUT / "README.md").read_text().splitlines()) <= 120


def test_table_of_catalogs_equals_its_proof() -> None:
    said = json.loads((CHECKOUT / "proof" / "catalogs.json").read_text())
    rows = [
        f"| {name} | "
        + " | ".join(f"{by['Spark'][each]} / {by['pyiceberg'].get(each, '–')}" for each in said["operations"])
        + " |"
        for name, by in said["catalogs"].items()
    ]
    page = (CHECKOUT / "docs" / "operating.md").read_text()
    assert "\n".join(rows) in page


def test_upgrading_page_names_each_table_check_and_cursor() -> None:
    page = (CHECKOUT / "docs" / "upgrading.md").read_text()
    texts = {path: path.read_text() for path in (CHECKOUT / "dagster_tidemark").rglob("*.py")}
    tables = set(re.findall(r'name="(ops\.\w+)"', "".join(texts.values())))
    assert len(tables) == 5 and [name for name in tables if f"`{name}`" not in page] == []
    [checks] = re.findall(r"^\| \*\*Check results\*\*.*$", page, re.M)
    declared = {key.name for key in asset_graph(load_settings()).asset_check_keys} - OF_THE_EXAMPLE
    declared = {re.sub(r".+_filled$", "<column>_filled", name) for name in declared}
    assert [name for name in sorted({*declared, *OPTIONAL_CHECKS}) if f"`{name}`" not in checks] == []
    [cursors] = re.findall(r"^\| \*\*Sensor state\*\*.*$", page, re.M)
    with_cursor = [
        node.name
        for path, text in texts.items()
        if path.parent.name == "sensors" and re.search(r"update_cursor\(|cursor=json\.dumps", text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and any("dg.sensor(" in ast.unparse(of) for of in node.decorator_list)
    ]
    names = {"listens": "listener_*", "landing_events": "landing"}
    assert len(with_cursor) >= 6
    assert [n for n in with_cursor if f"`{names.get(n, n)}`" not in cursors and n != "asset_events"] == []
