"""A wrong declaration is refused by name as the location loads, and a broken module costs no other command its work."""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from typer.testing import CliRunner, Result

from dagster_tidemark import location
from dagster_tidemark.cli import quarantine_work
from dagster_tidemark.cli.app import app
from dagster_tidemark.settings import Settings, load_settings

PARTITIONS = """
import dagster as dg
DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)
"""
DEFINITIONS = """
from {package} import assets, feeds, schemas
from dagster_tidemark import Table, assets_in, build_definitions, declared, load_settings
ASSETS = assets_in(feeds, assets)
TABLES = [*declared(schemas, Table), *declared(feeds, Table)]
defs = build_definitions(load_settings(), ASSETS, feeds.FEEDS, TABLES)
"""
FEEDS = """
import sys
from dagster_tidemark import Feed, declared
FEEDS = declared(sys.modules[__name__], Feed)
"""
FEED = """
from dagster_tidemark import LINEAGE, Feed, Grain, Table, feed_assets
from {package}.partitions import DAYS
LANDING = {landing}
TABLE = Table("core.{name}", {{"day": "date"}} | LANDING | LINEAGE, ("day", *{key}), partitioned_by="day")
FEED = Feed("{name}", "{prefix}", Grain.DAY, LANDING, required={required}, suffixes={suffixes})
ASSETS = feed_assets(FEED, TABLE, partitions_def=DAYS, tags={{"tidemark/pace": "asap"}})
"""
GOOD = {
    "landing": '{"return_id": "bigint", "remark": "string"}',
    "key": ("return_id",),
    "required": ("return_id",),
    "suffixes": None,
}

Write = Callable[[str, str], None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A code location with one sound feed, `orders`. The environment names it, and a Dagster home."""
    name = f"of_{tmp_path.name}"
    for room in ("", "feeds", "schemas", "assets"):
        (tmp_path / name / room).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / room / "__init__.py").touch()
    (tmp_path / name / "partitions.py").write_text(PARTITIONS)
    (tmp_path / name / "definitions.py").write_text(DEFINITIONS.format(package=name))
    (tmp_path / name / "feeds" / "__init__.py").write_text(FEEDS)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", name)
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    yield name
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[module]


@pytest.fixture
def write(package: str, tmp_path: Path) -> Write:
    def _write(path: str, text: str) -> None:
        (tmp_path / package / path).write_text(textwrap.dedent(text))

    _write("feeds/orders.py", feed(package, "orders"))
    return _write


def feed(package: str, name: str, **other: object) -> str:
    return FEED.format(package=package, name=name, **{"prefix": f"{name}/"} | GOOD | other)


def run(*command: str) -> Result:
    return CliRunner().invoke(app, [*command])


WRONG = [
    ({"required": ()}, "feed returns: 'return_id'", "`required`"),
    ({"landing": '{"return_id": "double"}'}, "table core.returns: ['return_id']", "declare a decimal"),
    ({"landing": '{"return_id": "float"}'}, "table core.returns: ['return_id']", "declare a decimal"),
    ({"required": ("return_id", "remrk")}, "feed returns: required column 'remrk'", "declare it there, or take it out"),
    ({"required": '"return_id"'}, "feed returns: expected required as a tuple", "write ('return_id',)"),
    ({"landing": '{"return_id": "bigint", "remark": "strng"}'}, "unknown type 'strng'", "write 'string'"),
    ({"landing": '{"return_id": "long"}'}, "returns: column 'return_id': unknown type 'long'", "write 'bigint'"),
    ({"landing": '{"return_id": "BIGINT"}'}, "returns: column 'return_id'", "write 'bigint'"),
    ({"landing": '{"return_id": "decimal(18, 4)"}'}, "returns: column 'return_id'", "write 'decimal(18,4)'"),
    ({"landing": '{"return_id": "decimal(39,4)"}'}, "returns: column 'return_id'", "1 to 38 digits"),
    ({"landing": '{"return_id": "bigint", "tags": "array<string>"}'}, "returns: column 'tags'", "declare string"),
    ({"landing": '{"return_id": "bigint", "tags": None}'}, "returns: column 'tags'", "expected a type as a string"),
    (
        {"landing": '{"return_id": "bigint", "platform": "string", "Platform": "string"}'},
        "returns: columns 'platform' and 'Platform'",
        "rename one",
    ),
    ({"landing": '{"return_id": "bigint", "": "string"}'}, "returns: the column name ''", "is blank; name the column"),
    (
        {"landing": '{"return_id": "bigint", " ": "string"}'},
        "returns: the column name ' '",
        "is blank; name the column",
    ),
    (
        {"landing": '{"return_id": "bigint", "remark ": "string"}'},
        "returns: the column name 'remark '",
        "write 'remark'",
    ),
    ({"landing": '{"return_id": "bigint", "a.b": "string"}'}, "returns: the column name a.b", "rename the column"),
    ({"landing": '{"return_id": "bigint", "source_row": "bigint"}'}, "feed returns: 'source_row'", "rename the column"),
    ({"landing": "{}", "key": (), "required": ()}, "feed returns: it has no columns", "at least one"),
    ({"suffixes": (".csv", ".xml")}, "feed returns: no format reads files that end in '.xml'", "register a format"),
    ({"suffixes": ("csv",)}, "feed returns: no format reads files that end in 'csv'", "write '.csv'"),
    ({"suffixes": '".csv"'}, "feed returns: expected suffixes as a tuple", "write ('.csv',)"),
    ({"suffixes": ()}, "feed returns: suffixes is empty", "leave it out"),
    ({"landing": '{"return_id": "bigint", "day": "date"}'}, "feed returns: 'day' is a column of its files", "file_day"),
    (
        {"landing": '{"return_id": "bigint", "Day": "date"}'},
        "table core.returns: columns 'day' and 'Day'",
        "rename one",
    ),
    ({"key": ("retrn_id",)}, "table core.returns: row_key has 'retrn_id'", "declare it there, or take it out"),
    ({"prefix": "orders/more/"}, "feeds orders and returns", "give each a prefix"),
]


@pytest.mark.parametrize(("other", "named", "remedy"), WRONG, ids=[repr(other) for other, _, _ in WRONG])
def test_invalid_feed_declaration_is_refused_in_one_line_at_load(
    package: str, write: Write, other: dict[str, object], named: str, remedy: str
) -> None:
    write("feeds/returns.py", feed(package, "returns", **other))
    with pytest.raises(location.LocationBroken) as refused:
        location.definitions(load_settings())
    (line,) = str(refused.value).splitlines()
    assert named in line and remedy in line
    with location.without_broken_parts():
        graph = location.asset_graph(load_settings())
    assert "core/orders" in {key.to_user_string() for key in graph.materializable_asset_keys}, "the others stay"


@pytest.mark.parametrize("line", ["LINEAGE", '"core.{name}"'])
def test_feed_table_without_lineage_or_row_key_is_refused(package: str, write: Write, line: str) -> None:
    text = feed(package, "returns")
    without = (
        text.replace(" | LINEAGE", "")
        if line == "LINEAGE"
        else text.replace("('return_id',)), partitioned_by=\"day\"", "")
    )
    without = without if line == "LINEAGE" else text.replace("(\"day\", *('return_id',))", "()")
    write("feeds/returns.py", without)
    with pytest.raises(location.LocationBroken, match=r"asset core/returns: feed returns: .*core\.returns") as refused:
        location.definitions(load_settings())
    assert len(str(refused.value).splitlines()) == 1


BROKEN = {
    "syntax": ("feeds/broken.py", "def (:\n", "feeds/broken.py, line 1: SyntaxError"),
    "import": ("feeds/broken.py", "import nowhere_to_be_found\n", "feeds/broken.py, line 1: ModuleNotFoundError"),
    "exit": ("feeds/broken.py", "raise SystemExit(3)\n", "feeds/broken.py, line 1: SystemExit: 3"),
    "base": ("feeds/broken.py", "\nraise BaseException\n", "feeds/broken.py, line 2: BaseException"),
    "assert": (
        "assets/broken.py",
        "x = 1\nassert x == 2, 'not\\ntwo'\n",
        "assets/broken.py, line 2: AssertionError: not",
    ),
    "schema": ("schemas/broken.py", "1 / 0\n", "schemas/broken.py, line 1: ZeroDivisionError"),
    "package": ("assets/more/__init__.py", "1 / 0\n", "assets/more/__init__.py, line 1: ZeroDivisionError"),
    "declaration": ("feeds/broken.py", None, "broken: the column name ''"),
    "text": (
        "feeds/broken.py",
        "class Odd(Exception):\n    def __str__(self): raise KeyError\nraise Odd\n",
        "feeds/broken.py, line 3: Odd",
    ),
    "assets": (
        "feeds/broken.py",
        "from .orders import Feed, Grain\nFEED = Feed('broken', 'broken/', Grain.DAY, {'a': 'string'})\n",
        "feed broken: there is no asset raw/broken",
    ),
    "name": (
        "feeds/renamed.py",
        "from .orders import Feed, Grain\nFEED = Feed('orders', 'other/', Grain.DAY, {'a': 'string'})\n",
        "feed orders is declared twice, for orders/ and for other/",
    ),
    "double": (
        "feeds/broken.py",
        "from .orders import FEED, TABLE, ASSETS as _A\nfrom dagster_tidemark import feed_assets\n"
        "from .orders import DAYS\nMORE = feed_assets(FEED, TABLE, partitions_def=DAYS)\n",
        "Asset key raw/orders is defined multiple times",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_module_is_reported_and_the_others_are_loaded(
    package: str, write: Write, tmp_path: Path, fault: str
) -> None:
    path, text, said = BROKEN[fault]
    (tmp_path / package / path).parent.mkdir(exist_ok=True)
    write(path, text or feed(package, "broken", landing='{"return_id": "bigint", "": "string"}'))
    settings = load_settings()
    loads, _, _ = quarantine_work._declared(settings)
    assert list(loads) == ["core/orders"]
    (line,) = location.broken_parts(settings)
    assert said in line
    with location.without_broken_parts():
        assert [each.prefix for each in location.feeds(settings) if each.name != "broken"] == ["orders/"]

    status = run("status")
    assert (status.exit_code, "core/orders" in status.stdout) == (2, True)
    assert f"left out: {line}" in status.stderr and "Traceback" not in status.output
    for command in (["plan"], ["lock", "check"], ["plan", "--apply"]):
        refused = run(*command)
        assert refused.exit_code not in (0, 2) if command[0] == "plan" else refused.exit_code == 2
        assert refused.output == f"tidemark: {line}\n"


def test_new_feed_is_scaffolded_beside_a_broken_module_unless_its_name_exists(
    package: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_PROJECT", str(tmp_path))
    write("feeds/renamed.py", feed(package, "returns"))
    write("feeds/broken.py", "raise SystemExit(3)\n")
    (tmp_path / "a.csv").write_text("id,n\n1,1\n2,2\n")
    said = run("new", "feed", "trips", "--sample", str(tmp_path / "a.csv"))
    assert said.exit_code == 0, said.output
    for name, why in (("orders", "already exists"), ("returns", "feed returns already exists")):
        said = run("new", "feed", name, "--sample", str(tmp_path / "a.csv"))
        assert said.exit_code == 2 and why in said.output and not (tmp_path / package / "feeds/returns.py").exists()


def test_reconcile_lists_other_feeds_beside_a_broken_module_and_exits_with_2(
    package: str, write: Write, cloud: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cloud.exports().items():
        if name not in ("TIDEMARK_CODE_LOCATION", "DAGSTER_HOME", "TIDEMARK_STATE_DIR", "TIDEMARK_PROJECT"):
            monkeypatch.setenv(name, value)
    write("feeds/broken.py", "raise RuntimeError('no')\n")
    looked = run("reconcile")
    # Other tests have put files into the same bucket.
    assert looked.exit_code == 2 and re.search(r"^orders: \d+ partitions changed$", looked.stdout, re.MULTILINE)
    assert "feeds/broken.py, line 1: RuntimeError: no" in looked.stderr


def test_quarantine_command_lists_entries_beside_a_broken_module(
    package: str, write: Write, cloud: Settings, spark_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (cloud.exports() | spark_server.exports()).items():
        if name not in ("TIDEMARK_CODE_LOCATION", "DAGSTER_HOME", "TIDEMARK_STATE_DIR", "TIDEMARK_PROJECT"):
            monkeypatch.setenv(name, value)
    write("feeds/broken.py", "raise RuntimeError('no')\n")
    shown = run("quarantine", "--asset", "core/orders")
    assert shown.exit_code == 0 and "no entries" in shown.stdout, shown.output
    assert "left out: " in shown.stderr and "feeds/broken.py, line 1: RuntimeError: no" in shown.stderr


@pytest.mark.parametrize("file", ["definitions.py", "partitions.py", "feeds/__init__.py", "__init__.py"])
def test_code_location_that_cannot_load_fails_with_one_line(
    package: str, write: Write, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, "raise SystemExit('never')\n")
    for command in (["status"], ["plan"], ["lock", "check"]):
        ended = run(*command)
        assert ended.exit_code not in (0, 2) if command == ["plan"] else ended.exit_code == 2
        assert "SystemExit: never" in ended.stderr and "Traceback" not in ended.output
    assert not quarantine_work._declared(load_settings())[0], "entries are shown nevertheless"
    assert "SystemExit: never" in capsys.readouterr().err


def test_status_command_saves_nothing_in_the_instance(package: str, write: Write) -> None:
    text = feed(package, "returns").replace(
        'tags={"tidemark/pace": "asap"}', 'freshness_policy=dg.FreshnessPolicy.cron("0 9 * * *", timedelta(hours=1))'
    )
    write("feeds/returns.py", f"import dagster as dg\nfrom datetime import timedelta\n{text}")
    assert run("status").exit_code == 9, "nobody has looked yet, so nothing is known to be met"
    with DagsterInstance.get() as instance:
        assert not instance.daemon_cursor_storage.get_cursor_values({"tidemark/since"})
