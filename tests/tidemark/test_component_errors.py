"""What a person gets for a wrong `defs.yaml`: one line with file, line and remedy, and the rest of the location."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagster_tidemark import load_settings, location
from dagster_tidemark.cli.app import app
from tests.tidemark.component_project import FEED, TABLE, AProject, forget, opened_project, page

# Of Dagster itself, where it reads a defs.yaml.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore:.* is currently in preview"),
]

DEFS = "src/acme/defs/"
F, T = page()[DEFS + FEED], page()[DEFS + TABLE]
TRIPS = F.replace("returns", "trips")
SOUND = ["core/trips", "ops/incidents", "ops/landing_events", "ops/maintenance", "raw/trips"]
WITH_FEED = sorted([*SOUND, "core/returns", "raw/returns"])
ALL = sorted([*WITH_FEED, "marts/returns_per_day"])

Write = Callable[[AProject], object]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AProject]:
    with opened_project(tmp_path, monkeypatch) as opened:
        opened.write(DEFS + "trips/defs.yaml", TRIPS)
        yield opened


def loaded() -> tuple[list[str], list[str]]:
    """Return the assets that commands know, and the lines about what is left out."""
    settings = load_settings()
    forget()
    with location.without_broken_parts():
        keys = sorted(key.to_user_string() for key in location.asset_graph(settings).get_all_asset_keys())
        location.tables(settings)
    return keys, list(location.broken_parts(settings))


def put(text: str, name: str, value: str | None) -> str:
    """Return a text with another value of an attribute; None leaves the attribute out, a new one comes first."""
    line = "" if value is None else f"  {name}: {value}\n"
    if re.search(rf"^  {name}:", text, re.M):
        return re.sub(rf"^  {name}:.*\n(    .*\n)*", lambda _: line, text, flags=re.M)
    return text.replace("attributes:\n", f"attributes:\n{line}")


ATTRIBUTES: list[tuple[str, str, str | None, int, str]] = [
    (FEED, "name", None, 3, "name is missing from attributes; add it"),
    (FEED, "grain", None, 3, "grain is missing from attributes; add it"),
    (FEED, "columns", None, 3, "columns is missing from attributes; add it"),
    (FEED, "key", None, 3, "key is missing from attributes; add it"),
    (TABLE, "name", None, 3, "name is missing from attributes; add it"),
    (TABLE, "columns", None, 3, "columns is missing from attributes; add it"),
    (TABLE, "row_key", None, 3, "row_key is missing from attributes; add it"),
    (TABLE, "transform", None, 3, "transform is missing from attributes; add it"),
    (FEED, "name", "", 4, "name must be a string, not nothing; give it a value, or remove the line"),
    (FEED, "name", "[a]", 4, "name must be a string, not a list"),
    (FEED, "name", "3", 4, "name must be a string, not 3; write it in quotes"),
    (FEED, "name", "a b", 4, "expected a table name `namespace.table` of letters, digits and _"),
    (FEED, "table", "returns", 4, "expected a table name `namespace.table` of letters, digits and _"),
    (FEED, "grain", "x", 5, "grain must be one of 'quarter_hour', 'hour', 'day', 'week', 'month', 'none', not 'x'"),
    (FEED, "grain", "null", 5, "grain must be one of"),
    (FEED, "grain", "[day]", 5, "grain must be one of"),
    (FEED, "grain", "none", 5, "prefix is missing; with grain none it is the key of its object"),
    (FEED, "graiin", "day", 4, "graiin is unknown; did you mean grain?"),
    (FEED, "zzz", "day", 4, "zzz is unknown; remove it. Known attributes: allow_empty, "),
    (FEED, "columns", "{}", 7, "key has order_id, line_number, which is not in columns; add it there"),
    (FEED, "columns", "[a]", 6, "columns must be a mapping, not a list"),
    (FEED, "columns", "{order_id: [1]}", 6, "columns.order_id must be a string, not a list"),
    (FEED, "columns", "{order_id: bigintt, line_number: int}", 6, "unknown type 'bigintt'; write 'bigint'"),
    (FEED, "columns", "{no: string}", 6, "a name in columns must be a string, not false; write it in quotes"),
    (FEED, "key", "order_id", 11, "key must be a list, not 'order_id'"),
    (FEED, "key", "[orderid]", 11, "key has orderid, which is not in columns; add it there"),
    (FEED, "key", "[1]", 11, "key.0 must be a string, not 1; write it in quotes"),
    (FEED, "prefix", "returns", 4, "expected prefix to end in '/', found 'returns'"),
    (FEED, "prefix", "/a/", 4, "Spark finds nothing below an empty folder name, as in '/a/'"),
    (FEED, "suffixes", "csv", 4, "suffixes must be a list, not 'csv'"),
    (FEED, "suffixes", "[]", 4, "suffixes is empty, so no file would be taken; leave it out, or name endings"),
    (FEED, "required", "[nope]", 4, "required column 'nope' is not in columns; declare it there, or take it out"),
    (FEED, "rules", "[a]", 12, "rules must be a mapping, not a list"),
    (FEED, "rules", "{a: }", 12, "rules.a must be a string, not nothing; give it a value, or remove the line"),
    (FEED, "quarantine_share", "2", 4, "expected quarantine_share from 0 to 1, found 2.0"),
    (FEED, "removals", "x", 4, "removals must be one of 'follow', 'keep', not 'x'"),
    (FEED, "follow_for", "3", 4, "follow_for must be a mapping, not 3"),
    (FEED, "follow_for", "{days: -1}", 4, "expected follow_for of at least 0"),
    (FEED, "encoding", "nope", 4, "encoding 'nope' cannot be read; declare utf-8"),
    (FEED, "folders", "'x={nope}'", 4, "folders of a feed by day: expected the directives %Y %d %m"),
    (FEED, "keys", "{region: eu}", 4, "keys.region must be a list, not 'eu'"),
    (FEED, "timezone", "Mars/X", 4, "unknown timezone 'Mars/X'"),
    (FEED, "stored_by", "[nope]", 4, "stored_by has 'nope', which is not in columns; declare it there"),
    (FEED, "retention", "3", 4, "retention must be a mapping, not 3"),
    (FEED, "retention", "{newest: x}", 4, "retention.newest must be a whole number, not 'x'"),
    (FEED, "generation", "0", 4, "generation: expected 1 or more, found 0"),
    (FEED, "owners", "nope", 17, "owners must be a list, not 'nope'"),
    (FEED, "owners", "[nope]", 17, "Invalid owner 'nope'"),
    (FEED, "tags", "{a: 1}", 15, "tags.a must be a string, not 1; write it in quotes"),
    (FEED, "tags", "{'a b$': x}", 15, "Found invalid tag keys"),
    (FEED, "column_comments", "{nope: a}", 4, "column_comments has nope, which is not in columns"),
    (FEED, "exact", "nope", 4, "exact must be true or false, not 'nope'"),
    (FEED, "transform", "acme.x:y", 4, "transform acme.x:y cannot be imported: No module named 'acme.x'"),
    (FEED, "automation_condition", "eager", 4, "automation_condition is not an attribute of this component; set it in"),
    (FEED, "translation", "{}", 4, "translation is not an attribute of this component; set it in `post_processing`"),
    (TABLE, "name", "marts", 4, "expected a table name `namespace.table` of letters, digits and _, not 'marts'"),
    (TABLE, "name", "a.b.c", 4, "expected a table name `namespace.table` of letters, digits and _, not 'a.b.c'"),
    (TABLE, "row_key", "day", 8, "row_key must be a list, not 'day'"),
    (TABLE, "row_key", "[date]", 8, "row_key has 'date', which is not in columns; declare it there"),
    (TABLE, "transform", "acme", 16, "transform must be written as `package.module:name`, not 'acme'"),
    (TABLE, "transform", "acme.defs:nope", 16, "transform acme.defs:nope cannot be imported: module 'acme.defs'"),
    (TABLE, "transform", "acme.defs:__name__", 16, "transform acme.defs:__name__ is a str; expected a function"),
    (TABLE, "ins", "[core/returns]", 11, "ins must be a mapping, not a list"),
    (TABLE, "ins", "{other: core/returns}", 11, "Key 'other' in provided ins dict does not correspond"),
    (TABLE, "ins", "{returns: core/retuns}", 11, "its ins have core/retuns, which does not exist or is left out"),
    (TABLE, "ins", "{returns: {key: core/returns, kye: a}}", 11, "ins.returns.kye is unknown; remove it"),
    (TABLE, "ins", "{returns: {}}", 11, "ins.returns.key is missing; add it"),
    (TABLE, "partitions", "dayy", 13, "partitions must be one of quarter_hour, hour, day, week, month, or"),
    (TABLE, "partitions", "[day]", 13, "partitions must be a string, not a list"),
    (TABLE, "partitions", "acme:__name__", 13, "partitions acme:__name__ is a str; expected a partitions definition"),
    (TABLE, "partitioned_by", "lines", 9, "partitioned by lines, which must be a timestamp or date column"),
    (TABLE, "partitioned_by", "[day]", 9, "partitioned_by must be a string or a mapping, not a list"),
    (TABLE, "partitioned_by", "{tme: day}", 9, "partitioned_by.tme is unknown; remove it, or correct its name"),
    (TABLE, "partitioned_by", "{}", 9, "partitioned_by must be a column, or one of `time`, `key` and `dimensions`"),
    (TABLE, "fresh", "24", 14, "fresh must be a mapping, not 24"),
    (TABLE, "fresh", "{hours: x}", 14, "fresh.hours must be a number, not 'x'"),
    (TABLE, "fresh", "{hours: -1}", 14, "fresh: "),
    (TABLE, "fresh", "{}", 14, "fresh must be a length of time (`hours: 24`), or a deadline"),
    (TABLE, "fresh", "{deadline_cron: x y, lower_bound: {minutes: 3}}", 14, "fresh: Invalid cron string."),
    (TABLE, "code_version", "1.10", 17, "code_version must be a string, not 1.1; write it in quotes"),
    (TABLE, "comment", "null", 10, "comment must be a string, not nothing; give it a value, or remove the line"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name", "value", "line", "said"), ATTRIBUTES, ids=[f"{p[:-10]}-{n}-{v}" for p, n, v, _, _ in ATTRIBUTES]
)
def test_invalid_component_attribute_is_reported_and_skips_only_its_component(
    project: AProject, path: str, name: str, value: str | None, line: int, said: str
) -> None:
    project.write(DEFS + path, put(F if path == FEED else T, name, value))
    kept, [first, *others] = loaded()
    assert kept == (SOUND if path == FEED else WITH_FEED)
    assert first.startswith(f"{DEFS}{path}:{line}: ") and said in first and "\n" not in first, first
    reader = f"{DEFS}{TABLE}:11: asset marts/returns_per_day: its ins have core/returns, which does not exist"
    assert others == [] if path == TABLE else others[0].startswith(reader) and len(others) == 1


FITTING = [
    (FEED, "suffixes", "[.xml]", 4, "no format reads files that end in '.xml'"),
    (FEED, "rules", "{a: nope > 1}", 12, "rule 'a' reads 'nope', which is not declared; read one of the columns"),
    (FEED, "partitions", "week", 6, "the asset's windows start at '0 0 * * 1'"),
    (TABLE, "partitions", "null", 13, "the asset has no partitions, but the table has"),
    (TABLE, "partitions", "hour", 13, "the asset's keys are written %Y-%m-%d-%H:%M, the table's %Y-%m-%d"),
    (TABLE, "partitioned_by", "null", 9, "the asset is partitioned by time (%Y-%m-%d)"),
]


@pytest.mark.parametrize(("path", "name", "value", "line", "said"), FITTING)
def test_conflicting_attributes_are_reported_with_file_and_line(
    project: AProject, path: str, name: str, value: str, line: int, said: str
) -> None:
    text = put(F if path == FEED else T, name, value)
    project.write(DEFS + path, text)
    at = next((n for n, each in enumerate(text.splitlines(), 1) if each.startswith(f"  {name}:")), line)
    kept, lines = loaded()
    assert kept == ALL
    assert all(each.startswith((f"{DEFS}{path}:{at}: ", f"{DEFS}{path}:{line}: ")) and said in each for each in lines)
    assert lines


def text(content: str, path: str = FEED) -> Write:
    return lambda project: project.write(DEFS + path, content)


def data(content: bytes) -> Write:
    return lambda project: (project.defs_folder / FEED).write_bytes(content)


def post(more: str) -> Write:
    return text(f"{F}\npost_processing:\n{more}")


FILES: dict[str, tuple[Write, int, str]] = {
    "tab": (text(F.replace("  grain", "\tgrain")), 5, "invalid YAML: found character '\\t' that cannot start any"),
    "indent": (text(F.replace("  rules:", " rules:")), 12, "invalid YAML: expected <block end>"),
    "alias": (text(put(F, "key", "*nope")), 11, "invalid YAML: found undefined alias 'nope'"),
    "latin": (data(F.replace("A returned", "\xc4").encode("latin-1")), 1, "save the file as UTF-8"),
    "utf-16": (data(F.encode("utf-16")), 1, "save the file as UTF-8"),
    "empty": (text(""), 1, "it declares no component; write type and attributes, or remove the file"),
    "comment": (text("# later\n"), 1, "it declares no component; write type and attributes, or remove the file"),
    "null": (text("---\n"), 2, "it declares no component; write type and attributes"),
    "a list": (text("- a\n"), 1, "it declares no component; write type and attributes"),
    "a string": (text("hello\n"), 1, "it declares no component; write type and attributes"),
    "no type": (text(F.replace("type: dagster_tidemark.FeedComponent", "")), 3, "type is missing; add it"),
    "type list": (text(F.replace("type: dagster_tidemark.FeedComponent", "type: [a]")), 1, "type: Input should be a"),
    "type": (text(F.replace("FeedC", "FeeedC")), 1, "Module `dagster_tidemark` has no attribute `FeeedC"),
    "package": (text(F.replace("dagster_tidemark.F", "nope.F")), 1, "Module `nope` not found; correct the name"),
    "type without package": (text(F.replace("dagster_tidemark.F", "F")), 1, "Invalid component type name: `FeedComp"),
    "declaration": (text(F.replace("FeedComponent", "Feed")), 1, "must be a subclass of dagster.Component"),
    "attributes null": (
        text("type: dagster_tidemark.FeedComponent\nattributes:\n"),
        2,
        "name, columns, grain, key are missing from attributes; add them",
    ),
    "attributes list": (text("type: dagster_tidemark.FeedComponent\nattributes: [a]\n"), 2, "attributes: "),
    "attrs": (text(F.replace("attributes:", "attrs:")), 3, "attrs is unknown; remove it, or correct its name"),
    "attributes twice": (text(f"{F}\nattributes:\n  name: b\n"), 20, "attributes is written twice, first in line 3"),
    "key twice": (text(F.replace("  key:", "  grain: hour\n  key:")), 11, "grain is written twice, first in line 5;"),
    "column twice": (text(F.replace("    remark", "    order_id: string\n    remark")), 9, "order_id is written twice"),
    "translation": (text(f"{F}\ntranslation:\n  key: a\n"), 20, "translation is unknown; remove it"),
    "requirements": (text(f"{F}\nrequirements: [X]\n"), 20, "requirements: Input should be an object"),
    "post list": (text(f"{F}\npost_processing: [a]\n"), 20, "post_processing: Input should be an object"),
    "post unknown": (post("  assets:\n    - attributes:\n        nope: a\n"), 21, "attributes.nope is unknown;"),
    "post key": (post("  assets:\n    - attributes:\n        key: a/b\n"), 21, "attributes.key is unknown; remove it"),
    "template variables": (text(f"{F}\ntemplate_vars_module: .nope\n"), 1, "No module named 'acme.defs.returns.nope'"),
    "second of two": (text(f"{F}---\n{TRIPS.replace('trips', 'tolls').replace('day', 'da', 1)}"), 24, "grain must be"),
    "template": (text(put(F, "comment", "'{{ nope }}'")), 14, "cannot be rendered: UndefinedError: 'nope' not"),
    "half a template": (text(put(F, "comment", "'{{ nope'")), 14, "cannot be rendered: jinja2.exceptions."),
    "unset": (
        text(put(F, "comment", "'{{ env.NOT_SET }}'")),
        14,
        "the environment variable NOT_SET is not set; set it, or write {{ env('NOT_SET', 'a default') }}",
    ),
    "unset in text": (text(put(F, "prefix", "'{{ env.NOT_SET }}/a/'")), 4, "environment variable NOT_SET is not set"),
    "required": (text(put(F, "comment", "'{{ env(\"NOT_SET\") }}'")), 14, "variable NOT_SET is not set and no default"),
    "template of another type": (text(put(F, "columns", "'{{ 3 }}'")), 6, "columns must be a mapping, not 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_invalid_component_file_is_reported_and_only_it_is_skipped(project: AProject, case: str) -> None:
    write, line, said = FILES[case]
    write(project)
    kept, [first, *others] = loaded()
    assert first.startswith(f"{DEFS}{FEED}:{line}: ") and said in first and "\n" not in first, first
    assert all("its ins have core/returns" in each for each in others)
    assert set(SOUND) <= set(kept)


def add(path: str, content: str) -> Write:
    return lambda project: project.write(DEFS + path, content)


TOLLS = F.replace("returns", "tolls")
RIGHT: dict[str, tuple[Write, list[str]]] = {
    "byte order mark": (data(b"\xef\xbb\xbf" + F.encode()), []),
    "CRLF": (data(F.replace("\n", "\r\n").encode()), []),
    "anchor": (text(put(F, "key", "&key [order_id, line_number]\n  required: *key")), []),
    "merge": (text(F.replace("  columns:\n", "  columns:\n    <<: {extra: string}\n")), []),
    "no key": (text(put(F, "key", "[]")), []),
    "two in one file": (text(f"{F}---\n{TOLLS}"), ["core/tolls", "raw/tolls"]),
    "below folders": (add("a/b/c/defs.yaml", TOLLS), ["core/tolls", "raw/tolls"]),
    "defs.yml": (add("a/defs.yml", TOLLS), ["core/tolls", "raw/tolls"]),
    "component.yaml": (add("a/component.yaml", TOLLS), ["core/tolls", "raw/tolls"]),
    "requirements": (text(f"{F}\nrequirements:\n  env: [X]\n"), []),
    "week of days": (text(put(T, "partitions", "week"), TABLE), []),
    "regions": (text(put(F, "keys", "{region: [eu, us]}")), []),
}


@pytest.mark.parametrize("case", RIGHT)
def test_unusual_valid_component_files_are_accepted(project: AProject, case: str) -> None:
    write, more = RIGHT[case]
    write(project)
    assert loaded() == (sorted([*ALL, *more]), [])


def test_component_in_a_folder_with_post_processing_is_loaded(project: AProject) -> None:
    group = "type: dagster.DefsFolderComponent\npost_processing:\n  assets:\n    - attributes: {group_name: tolls}\n"
    project.write(DEFS + "group/defs.yaml", group)
    project.write(DEFS + "group/tolls/defs.yaml", TOLLS)
    project.write(DEFS + "group/broken/defs.yaml", put(F.replace("returns", "broken"), "grain", "daay"))
    kept, [line] = loaded()
    assert kept == sorted([*ALL, "core/tolls", "raw/tolls"])
    assert line.startswith(f"{DEFS}group/broken/defs.yaml:5: grain must be one of")


DOUBLE: dict[str, tuple[str, str, str]] = {
    "a component": (
        "a/defs.yaml",
        F.replace("  grain", "  prefix: a/\n  grain"),
        f"table core.returns is declared twice, in {DEFS}a/defs.yaml:1 and {DEFS}{FEED}:1; give one of the two another",
    ),
    "an asset": (
        "a.py",
        "import dagster as dg\n@dg.asset(key=['marts', 'returns_per_day'])\ndef x(): ...\n",
        f"{DEFS}{TABLE}:1: asset marts/returns_per_day is declared here and in Python; remove one of the two",
    ),
    "a derived table": (
        "a.py",
        "from dagster_tidemark import Table, table_asset\n"
        "T = Table('marts.returns_per_day', {'n': 'bigint'}, row_key=('n',))\n"
        "@table_asset(T, ins={'rows': 'core/returns'}, code_version='1')\ndef x(rows): return rows\n",
        f"{DEFS}{TABLE}:1: asset marts/returns_per_day is declared here and in Python; remove one of the two",
    ),
    "a prefix": (
        "a/defs.yaml",
        TOLLS.replace("  grain", "  prefix: returns/more/\n  grain"),
        f"{DEFS}a/defs.yaml:1 and {DEFS}{FEED}:1: feeds returns and tolls: 'returns/more/' lies within 'returns/'",
    ),
}


@pytest.mark.parametrize("case", DOUBLE)
def test_duplicate_declaration_is_reported_with_both_places(project: AProject, case: str) -> None:
    path, content, said = DOUBLE[case]
    project.write(DEFS + path, content)
    kept, lines = loaded()
    assert set(ALL) <= set(kept)
    assert len(lines) == 1 and lines[0].startswith(said), lines


def test_broken_module_in_the_defs_folder_skips_only_itself(project: AProject) -> None:
    project.write(DEFS + "broken.py", "import nothing_of_that_name\n")
    kept, [line] = loaded()
    assert kept == ALL
    assert line == "acme/defs/broken.py, line 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"


def test_commands_report_a_broken_component_and_continue_or_fail(
    project: AProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    project.write(DEFS + FEED, F.replace("type: dagster_tidemark.FeedComponent", "type: nope.FeedComponent"))
    (project.defs_folder / TABLE).unlink()
    line = f"{DEFS}{FEED}:1: Module `nope` not found; correct the name, or install what is missing"
    forget()
    status = CliRunner().invoke(app, ["status"])
    assert (status.exit_code, "core/trips" in status.stdout) == (2, True), status.output
    assert f"left out: {line}" in status.stderr and "Traceback" not in status.output
    for command in (["plan"], ["lock", "check"]):
        forget()
        assert CliRunner().invoke(app, command).output == f"tidemark: {line}\n"
