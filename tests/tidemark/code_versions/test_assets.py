"""From a loaded code location to fingerprints: factories, tables, inputs; assets whose version is theirs."""

import importlib
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from dagster_tidemark.code_versions import assets as of_assets
from dagster_tidemark.code_versions.assets import assets_of
from dagster_tidemark.code_versions.lock_file import Asset, Lock, changed_definitions, differences
from dagster_tidemark.code_versions.project import Project
from dagster_tidemark.settings import load_settings
from tests.tidemark.code_versions.packages import Package, write

FEED = """
    import dagster as dg
    from dagster_tidemark import LINEAGE, Csv, Feed, Grain, Table, feed_assets
    from toy.maths import doubled

    TABLE = Table(
        name="core.trips",
        columns={"day": "date", "km": "bigint"} | LINEAGE,
        partitioned_by="day",
        row_key=("day",),
        comment="A trip",
    )
    FEED = Feed(name="trips", prefix="trips/", grain=Grain.DAY, columns={"km": "bigint"}, rules={"far": "km < 9"})
    ASSETS = feed_assets(
        FEED,
        TABLE,
        partitions_def=dg.DailyPartitionsDefinition(start_date="2026-09-28", end_offset=1),
        transform=lambda rows: doubled(rows),
        tags={"tidemark/pace": "asap"},
    )
    """
TRIPS = {"assets.py": FEED, "maths.py": "def doubled(x): return x * 2\n"}
ONE = """
    import dagster as dg
    from datetime import timedelta
    from dagster_tidemark import Table

    @dg.asset(
        key=["marts", "one"],
        ins={"a": dg.AssetIn(key=["core", "a"], partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1))},
        partitions_def=dg.DailyPartitionsDefinition(start_date="2026-09-28"),
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1)),
        code_version="1",
    )
    def one(a): return a

    ONE = Table(name="marts.one", columns={"day": "date"}, partitioned_by="day", row_key=("day",), comment="One")
    """
MADE = """
    import dagster as dg
    from toy.maths import doubled, halved

    def _made(name, how, rates, most=3):
        @dg.asset(name=name, code_version="1")
        def _asset(first=most): return how(rates["a"]), first
        return _asset

    ONE = _made("one", doubled, {"a": 1})
    MORE = [_made("two", halved, {"a": 2}), _made("three", halved, {"a": 2}, 4)]
    EVERYTHING = [ONE, *MORE]
    """
MATHS = "def doubled(x): return x * 2\ndef halved(x): return x / 2\n"


def load(root: Path, package: Package, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module `toy.assets` of a package, imported."""
    write(root, package)
    for name in [name for name in sys.modules if name == "toy" or name.startswith("toy.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(root)
    importlib.invalidate_caches()
    module = importlib.import_module("toy.assets")
    for name in [name for name in sys.modules if name == "toy" or name.startswith("toy.")]:
        monkeypatch.setitem(sys.modules, name, sys.modules[name])  # taken out when the test has ended
    return module


def assets_in(module: ModuleType) -> list[dg.AssetsDefinition]:
    values = [v for held in vars(module).values() for v in (held if isinstance(held, list) else [held])]
    return [v for v in values if isinstance(v, dg.AssetsDefinition)]


def found(root: Path, package: Package, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Asset]:
    return assets_of(assets_in(load(root, package, monkeypatch)), Project(root, "toy"))


def replaced(package: Package, old: str, new: str) -> Package:
    assert any(old in text for text in package.values())
    return {name: text.replace(old, new) for name, text in package.items()}


FACTORY = [
    ("* 2", "* 3", ["toy/maths.py: doubled()"]),
    ("doubled(rows)", "doubled(rows) + 1", ["toy/assets.py: ASSETS"]),
    ('"far": "km < 9"', '"far": "km < 8"', ["toy/assets.py: FEED"]),
    ('"km": "bigint"} |', '"km": "int"} |', ["toy/assets.py: TABLE"]),
    ('row_key=("day",)', 'row_key=("day", "km")', ["toy/assets.py: TABLE"]),
    ('comment="A trip"', 'comment="A journey"', []),
    ("rules={", "quarantine_share=0.5, rules={", []),
    ("rules={", 'names={"km": ["Km"]}, rules={', ["toy/assets.py: FEED"]),
    ("rules={", 'format=Csv(decimal=","), rules={', ["toy/assets.py: FEED"]),
    ("2026-09-28", "2026-10-05", []),
    ("asap", "later", []),
    ("transform=lambda rows: doubled(rows)", "transform=lambda rows: (doubled(rows))", []),
]
DECLARED = [
    ("return a", "return -a", ["toy/assets.py: one()"]),
    ('"core", "a"', '"core", "b"', ["toy/assets.py: one()"]),
    ("start_offset=-1", "start_offset=-2", ["toy/assets.py: one()"]),
    ('columns={"day": "date"}', 'columns={"day": "date", "km": "int"}', ["toy/assets.py: ONE"]),
    ('comment="One"', 'comment="Two"', []),
    ("hours=1", "hours=2", []),
    ("2026-09-28", "2026-10-05", []),
    ('code_version="1"', 'code_version="2"', []),
    ("a): return a", "a: int) -> int: return a", []),
]


@pytest.mark.parametrize(("old", "new", "changed"), FACTORY)
def test_fingerprint_of_a_feed_asset_covers_its_declaration_and_transform(
    old: str, new: str, changed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = found(tmp_path / "1", TRIPS, monkeypatch)["core/trips"].fingerprint
    after = found(tmp_path / "2", replaced(TRIPS, old, new), monkeypatch)["core/trips"].fingerprint

    assert (before.digest != after.digest) is bool(changed)
    assert changed_definitions(before.definitions, after.definitions) == changed


@pytest.mark.parametrize(("old", "new", "changed"), DECLARED)
def test_fingerprint_of_an_asset_covers_its_function_inputs_and_table(
    old: str, new: str, changed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"assets.py": ONE}
    before = found(tmp_path / "1", package, monkeypatch)["marts/one"].fingerprint
    after = found(tmp_path / "2", replaced(package, old, new), monkeypatch)["marts/one"].fingerprint

    assert (before.digest != after.digest) is bool(changed)
    assert changed_definitions(before.definitions, after.definitions) == changed


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("* 2", "* 3", {"one"}),
        ("/ 2", "/ 3", {"two", "three"}),
        ('{"a": 1}', '{"a": 5}', {"one"}),
        ('{"a": 2}, 4', '{"a": 2}, 5', {"two", "three"}),  # of one statement
        ("most=3", "most=6", {"one", "two", "three"}),
        ('how(rates["a"])', 'how(-rates["a"])', {"one", "two", "three"}),
    ],
)
def test_assets_made_by_a_factory_are_fingerprinted_by_statement(
    old: str, new: str, changed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"assets.py": MADE, "maths.py": MATHS}
    before = found(tmp_path / "1", package, monkeypatch)
    after = found(tmp_path / "2", replaced(package, old, new), monkeypatch)

    assert {name for name in after if before[name].fingerprint.digest != after[name].fingerprint.digest} == changed


@pytest.mark.parametrize(
    "asset",
    [
        "@dg.asset\n@timed\ndef a(): return doubled(1)",
        "@dg.asset\n@bare\ndef a(): return doubled(1)",
        "@dg.multi_asset(outs={'a': dg.AssetOut(), 'b': dg.AssetOut()})\ndef both(): return doubled(1), 2",
        "@dg.op\ndef inner(): return doubled(1)\n@dg.graph_asset\ndef a(): return inner()",
        "def made():\n    @dg.asset\n    def a(): return doubled(1)\n    return a\nA = made()",
        "a = dg.asset(name='a')(partial(doubled, x=1)) if False else dg.asset(name='a')(lambda: doubled(1))",
        "class Limits(dg.Config):\n    most: int = doubled(1)\n@dg.asset\ndef a(config: Limits): return config.most",
        "MADE = [dg.asset(name=n)(lambda: doubled(1)) for n in ('a', 'b')]",
    ],
)
def test_fingerprint_covers_called_functions_for_every_way_to_define_an_asset(
    asset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (
        "import dagster as dg\nfrom functools import partial, wraps\nfrom toy.maths import doubled\n"
        "def timed(f):\n    @wraps(f)\n    def timed_(): return f()\n    return timed_\n"
        "def bare(f):\n    def bare_(): return f()\n    return bare_\n"
    )
    package = {"assets.py": head + asset, "maths.py": MATHS}
    before = found(tmp_path / "1", package, monkeypatch)
    after = found(tmp_path / "2", replaced(package, "* 2", "* 3"), monkeypatch)
    other = found(tmp_path / "3", replaced(package, "/ 2", "/ 3"), monkeypatch)

    assert before and before == other
    for name in after:
        changed = changed_definitions(before[name].fingerprint.definitions, after[name].fingerprint.definitions)
        assert changed == ["toy/maths.py: doubled()"]


@pytest.mark.parametrize("name", ["defs.yaml", "more/maths.py"])
def test_asset_found_in_no_module_is_fingerprinted_by_the_whole_package(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"assets.py": "import dagster as dg\nNO_ASSET = [1]\n", "maths.py": MATHS, name: "x = 1"}
    digests = []
    for number, text in enumerate(["x = 1", "x = 2"]):
        load(tmp_path / str(number), {**package, name: text}, monkeypatch)
        made = dg.asset(name="a", code_version="1")(lambda: 1)
        digests.append(assets_of([made], Project(tmp_path / str(number), "toy"))["a"].fingerprint.digest)

    assert digests[0] != digests[1]


def test_asset_list_in_the_definitions_module_does_not_narrow_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {
        "assets.py": "import toy.definitions\n",
        "definitions.py": MADE.replace("ONE =", "_ =").replace("EVERYTHING = [ONE, *MORE]", ""),
        "maths.py": MATHS,
    }
    load(tmp_path, package, monkeypatch)
    assets = assets_of(importlib.import_module("toy.definitions").MORE, Project(tmp_path, "toy"))

    assert "toy/__init__.py: all of it" in assets["two"].fingerprint.definitions


def test_asset_defined_in_the_definitions_module_is_fingerprinted_by_its_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = "@dg.multi_asset(outs={'a': dg.AssetOut(), 'b': dg.AssetOut()})\ndef both(): return 1, 2\n"
    text = f"import dagster as dg\n{both}ALL = [both]\n"
    load(tmp_path, {"assets.py": "import toy.definitions\n", "definitions.py": text}, monkeypatch)
    assets = assets_of(importlib.import_module("toy.definitions").ALL, Project(tmp_path, "toy"))

    assert [list(asset.fingerprint.definitions) for asset in assets.values()] == [["toy/definitions.py: both()"]] * 2


def test_code_version_of_an_asset_can_be_derived_from_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "toy")
    versions = []
    for number, package in enumerate([TRIPS, replaced(TRIPS, "* 2", "*  2"), replaced(TRIPS, "* 2", "* 3")]):
        root = tmp_path / str(number)
        monkeypatch.setenv("TIDEMARK_PROJECT", str(root))
        versioned = of_assets.versioned_by_code(
            [*assets_in(load(root, package, monkeypatch)), "no asset"], load_settings()
        )
        assets = assets_of(versioned, Project(root, "toy"))
        assert versioned[-1] == "no asset"
        assert assets["core/trips"].is_versioned_by_code
        versions.append(assets["core/trips"].code_version)

    assert versions[0] == versions[1] != versions[2]


def test_asset_versioned_by_its_code_needs_no_lock_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [asset] = found(tmp_path, TRIPS, monkeypatch).values()
    by_code = Asset(asset.fingerprint.digest, asset.fingerprint)

    assert differences(Lock(), {"core/trips": by_code}) == []
    assert re.fullmatch("[0-9a-f]{16}", asset.fingerprint.digest)


RATES = """
    import dagster as dg

    class Rates(dg.ConfigurableResource):
        usd: float = 1.0

    @dg.asset(code_version="1")
    def one(rates: Rates): return rates.usd

    @dg.asset(code_version="1")
    def two(): return 2
    """
ASSEMBLED = """
    import dagster as dg
    from dagster_tidemark import build_definitions, load_settings
    from toy.assets import Rates, one, two

    EURO = 1.1
    MORE = {"rates": Rates(usd=EURO), "other": Rates(usd=7.0)}
    """
GIVEN = {
    "a keyword": "defs = build_definitions(load_settings(), [one, two], [], [], rates=Rates(usd=EURO))",
    "a dictionary": "defs = build_definitions(load_settings(), [one, two], [], [], **MORE)",
    "a dictionary here": "defs = build_definitions(load_settings(), [one, two], [], [], **{'rates': Rates(usd=EURO)})",
    "only a run knows": "GIVEN = dict([('rates', Rates(usd=EURO))])\n"
    "defs = build_definitions(load_settings(), [one, two], [], [], **GIVEN)",
    "Dagster's": "defs = dg.Definitions.merge(dg.Definitions(assets=[one, two], resources=MORE))",
    "another module's": "from toy.parts import PART\n"
    "defs = dg.Definitions.merge(dg.Definitions(assets=[one, two]), PART)",
    "a function's": "from toy.parts import part\ndefs = dg.Definitions(assets=[one, two])",
}


@pytest.mark.parametrize("way", GIVEN)
def test_resource_value_is_part_of_the_fingerprint_of_assets_that_require_it(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembled = textwrap.dedent(ASSEMBLED)
    parts = assembled + "PART = dg.Definitions(resources=MORE)\n@dg.definitions\ndef part(): return PART\n"
    package = {
        "assets.py": RATES,
        "definitions.py": "import dagster as dg\nfrom toy.assets import one, two\n" + GIVEN[way],
    }
    package["test_parts.py"] = parts.replace("EURO = 1.1", "EURO = 7.0")
    package |= {"parts.py": parts} if "toy.parts" in GIVEN[way] else {"definitions.py": assembled + GIVEN[way]}
    before = found(tmp_path / "1", package, monkeypatch)
    after = found(tmp_path / "2", replaced(package, "1.1", "1.2"), monkeypatch)
    other = found(tmp_path / "3", replaced(package, "7.0", "8.0"), monkeypatch)

    assert before["one"].fingerprint.digest != after["one"].fingerprint.digest
    assert changed_definitions(before["one"].fingerprint.definitions, after["one"].fingerprint.definitions)
    if way != "only a run knows":  # then it counts for every asset that needs resources
        assert before["two"].fingerprint.digest == after["two"].fingerprint.digest
    assert before["one"].fingerprint.digest == other["one"].fingerprint.digest


KEPT = """
    import dagster as dg

    class Kept(dg.ConfigurableIOManager):
        folder: str
        def handle_output(self, context, obj): ...
        def load_input(self, context): ...

    @dg.asset(code_version="1", io_manager_key="own", check_specs=[dg.AssetCheckSpec("full", asset="one")])
    def one(): return 1
    """
BY_TWO = """
    import dagster as dg
    from toy.assets import Kept, one

    defs = dg.Definitions(assets=[one], resources={"io_manager": Kept(folder="a"), "own": Kept(folder="b")})
    """


def test_io_manager_of_check_results_is_not_part_of_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"assets.py": KEPT, "definitions.py": BY_TWO}
    before = found(tmp_path / "1", package, monkeypatch)
    of_checks = found(tmp_path / "2", replaced(package, 'folder="a"', 'folder="c"'), monkeypatch)
    own = found(tmp_path / "3", replaced(package, 'folder="b"', 'folder="c"'), monkeypatch)
    assert before["one"].fingerprint.digest == of_checks["one"].fingerprint.digest
    assert before["one"].fingerprint.digest != own["one"].fingerprint.digest
