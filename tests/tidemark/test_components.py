"""Feeds and tables declared in `defs.yaml`: the same assets as in Python, in the project of docs/components.md."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import pytest
from jsonschema import Draft202012Validator
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from dagster_tidemark import (
    LINEAGE,
    Feed,
    FeedComponent,
    Grain,
    Table,
    TableComponent,
    assets_in,
    build_definitions,
    extend,
    feed_assets,
    load_settings,
    location,
    table_asset,
)
from dagster_tidemark.cli.app import app
from dagster_tidemark.code_versions.assets import assets_of
from dagster_tidemark.code_versions.lock_file import Asset, Lock, differences
from dagster_tidemark.code_versions.project import Project
from dagster_tidemark.component_declarations import declared_by
from dagster_tidemark.dagster_internals import components
from dagster_tidemark.engine.code_plan import state_of
from dagster_tidemark.event_log.deployed import code_texts
from dagster_tidemark.settings import Settings
from dagster_tidemark.table_partitions import DeclarationRefused
from tests.tidemark.component_project import FEED, TABLE, AProject, examples, forget, opened_project
from tests.warm_python import run_script

# Of Dagster itself, where it reads a defs.yaml.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore:.* is currently in preview"),
]

DAYS = dg.DailyPartitionsDefinition("2026-09-28", end_offset=1)
LANDING = {"order_id": "bigint", "line_number": "bigint", "remark": "string", "returned_at": "timestamp"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AProject]:
    with opened_project(tmp_path, monkeypatch) as opened:
        yield opened


def in_python() -> tuple[list[Any], Table, Table, Feed]:
    """Declare what the page declares, with `feed_assets` and `table_asset`."""
    core = Table(
        "core.returns",
        {"day": "date"} | LANDING | LINEAGE,
        partitioned_by="day",
        row_key=("day", "order_id", "line_number"),
        comment="A returned order line",
    )
    feed = Feed(
        "returns",
        "returns/",
        Grain.DAY,
        LANDING,
        required=("order_id", "line_number"),
        rules={"wrong_day": "to_date(returned_at) = day"},
    )
    of_feed = feed_assets(
        feed, core, partitions_def=DAYS, owners=["team:orders"], tags={"tidemark/pace": "asap"}, code_version="1"
    )
    mart = Table(
        "marts.returns_per_day",
        {"day": "date", "lines": "bigint"},
        partitioned_by="day",
        row_key=("day",),
        comment="A day of returns",
    )

    @table_asset(mart, ins={"returns": "core/returns"}, partitions=DAYS, fresh=timedelta(hours=24), code_version="1")
    def returns_per_day(returns: DataFrame) -> DataFrame:
        """One row per day: how many order lines were returned."""
        return returns

    return [*of_feed, returns_per_day], core, mart, feed


def written_out() -> dg.AssetsDefinition:
    """Declare the page's table with `dg.asset`."""

    @dg.asset(
        key=["marts", "returns_per_day"],
        ins={"returns": dg.AssetIn(key=["core", "returns"])},
        group_name="marts",
        kinds={"iceberg", "pyspark"},
        partitions_def=DAYS,
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24)),
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key="tidemark_io_manager",
        code_version="1",
    )
    def returns_per_day(returns: DataFrame) -> DataFrame:
        """One row per day: how many order lines were returned."""
        return returns

    return returns_per_day


WHERE_DECLARED = {"dagster/code_references", "dagster/component_origin"}


def described(defs: dg.Definitions) -> dict[str, Any]:
    """Return all that the location declares of its assets, without the places of declarations."""
    found: dict[str, Any] = {}
    for asset in defs.assets or ():
        if isinstance(asset, dg.SourceAsset):
            found[asset.key.to_user_string()] = (
                asset.description,
                asset.group_name,
                asset.partitions_def,
                asset.tags,
                asset.required_resource_keys,
            )
            continue
        assert isinstance(asset, dg.AssetsDefinition)
        for spec in asset.specs:
            kept = {name: value for name, value in spec.metadata.items() if name not in WHERE_DECLARED}
            plain = spec.replace_attributes(metadata=kept, automation_condition=None)
            condition = spec.automation_condition
            found[spec.key.to_user_string()] = (
                plain,
                condition.get_label() or type(condition).__name__ if condition else None,
                asset.backfill_policy,
                asset.required_resource_keys,
                sorted(check.name for check in asset.check_specs),
                asset.get_io_manager_key_for_asset_key(spec.key) if asset.is_materializable else None,
            )
    return found


def names(defs: dg.Definitions) -> dict[str, Any]:
    """Return the names of the location's other definitions."""
    repository = defs.get_repository_def()
    return {
        "sensors": sorted(each.name for each in repository.sensor_defs),
        "schedules": sorted(each.name for each in repository.schedule_defs),
        "checks": sorted(str(key) for key in repository.asset_graph.asset_check_keys),
        "resources": sorted(repository.get_top_level_resources()),
    }


def test_component_call_and_plain_dagster_give_the_same_code_location(project: AProject) -> None:
    assets, core, mart, feed = in_python()
    by_component = project.load()
    by_call = extend(dg.Definitions(), load_settings(), assets=assets, tables=[core, mart], feeds=[feed])
    by_hand = [*assets[:-1], written_out()]
    with_dg = extend(dg.Definitions(), load_settings(), assets=by_hand, tables=[core, mart], feeds=[feed])
    assert described(by_component) == described(by_call) == described(with_dg)
    assert names(by_component) == names(by_call) == names(with_dg)
    found = declared_by(by_component.assets or ())
    [own_core, own_mart] = sorted(found.tables, key=lambda table: table.name)
    assert (replace(own_core, partitioned_by=core.partitioned_by), own_mart) == (core, mart)
    assert own_core.partitioning == core.partitioning
    [declared] = found.feeds
    assert {name: value for name, value in vars(declared).items() if name != "_layout"} == {
        name: value for name, value in vars(feed).items() if name != "_layout"
    }


def test_every_feed_and_table_setting_is_a_component_attribute() -> None:
    renamed = {"stored_by", "required"}
    assert set(vars(in_python()[3])) - {"_layout"} <= FeedComponent.model_fields.keys()
    of_table = set(vars(in_python()[1])) - {"added", "branch"}
    assert of_table <= TableComponent.model_fields.keys()
    assert of_table - {"row_key"} | renamed <= FeedComponent.model_fields.keys()


def test_two_components_of_one_feed_or_table_are_refused(project: AProject) -> None:
    text = (project.defs_folder / FEED).read_text()
    project.write("src/acme/defs/again/defs.yaml", text.replace("  grain", "  table: core.again\n  grain"))
    places = r"src/acme/defs/again/defs.yaml:1 and src/acme/defs/returns/defs.yaml:1"
    with pytest.raises(DeclarationRefused, match=f"feed returns is declared twice, in {places}"):
        project.load()
    project.write("src/acme/defs/again/defs.yaml", text.replace("name: returns", "name: again\n  table: core.returns"))
    with pytest.raises(DeclarationRefused, match=f"table core.returns is declared twice, in {places}"):
        project.load()


def loaded_without_call(project: AProject) -> dg.Definitions:
    project.write(
        "src/acme/definitions.py",
        """
        from pathlib import Path
        import dagster as dg

        @dg.definitions
        def defs() -> dg.Definitions:
            return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
        """,
    )
    return project.load()


def test_component_location_without_the_extend_call_is_refused(project: AProject) -> None:
    bare = loaded_without_call(project)
    line = r"asset core/returns \(src/acme/defs/returns/defs.yaml:1\) has no automation: .* extend\(dg.load_from"
    with pytest.raises(DeclarationRefused, match=line):
        bare.get_repository_def()
    with pytest.raises(DeclarationRefused, match=line):
        dg.Definitions.merge(extend(dg.Definitions(), load_settings()), bare).get_repository_def()
    extend(bare, load_settings()).get_repository_def()


def test_post_processing_that_removes_the_component_metadata_is_refused(project: AProject) -> None:
    more = "\npost_processing:\n  assets:\n    - operation: replace\n      attributes:\n        metadata: {a: b}\n"
    project.change(TABLE, 'code_version: "1"\n', f'code_version: "1"\n{more}')
    with pytest.raises(DeclarationRefused, match=r"there is no table marts\.returns_per_day: pass the table to extend"):
        project.load()


def test_post_processing_adds_settings_and_a_python_check_joins_its_table(project: AProject) -> None:
    more = (
        "\npost_processing:\n  assets:\n    - attributes:\n        tags: {team: sales}\n"
        '        automation_condition: "{{ dg.AutomationCondition.eager() }}"\n'
    )
    project.change(TABLE, 'code_version: "1"\n', f'code_version: "1"\n{more}')
    project.write(
        "src/acme/defs/checks.py",
        """
        import dagster as dg

        @dg.asset_check(asset=["marts", "returns_per_day"])
        def has_rows() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=True)

        @dg.asset
        def theirs() -> int:
            return 1
        """,
    )
    graph = project.load().resolve_asset_graph()
    mart = graph.get(dg.AssetKey(["marts", "returns_per_day"]))
    assert mart.tags["team"] == "sales" and mart.automation_condition is not None
    assert "eager" in str(mart.automation_condition.get_label())
    assert graph.get(dg.AssetKey("theirs")).automation_condition is None
    assert dg.AssetCheckKey(mart.key, "has_rows") in graph.asset_check_keys


def test_python_asset_in_the_defs_folder_needs_its_table_declared(project: AProject) -> None:
    project.write(
        "src/acme/defs/sales.py",
        """
        from dagster_tidemark import Table, table_asset

        SALES = Table("marts.sales", {"n": "bigint"}, row_key=("n",))

        @table_asset(SALES, ins={"rows": "core/returns"}, code_version="1")
        def sales(rows):
            return rows
        """,
    )
    with pytest.raises(DeclarationRefused, match=r"there is no table marts\.sales: pass the table to extend"):
        project.load()
    both = (project.root / "src/acme/definitions.py").read_text()
    both = both.replace("load_settings())", "load_settings(), tables=[SALES])")
    project.write("src/acme/definitions.py", both.replace("\n\n@dg", "from acme.defs.sales import SALES\n\n@dg", 1))
    graph = project.load().resolve_asset_graph()
    assert graph.get(dg.AssetKey(["marts", "sales"])).automation_condition is not None


def test_component_is_found_below_the_assets_of_a_tidemark_location(project: AProject) -> None:
    project.load()
    settings = load_settings()
    found = build_definitions(settings, assets_in(import_module("acme.defs")), (), ())
    graph = found.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["marts", "returns_per_day"])).automation_condition is not None
    assert "landing" in {each.name for each in found.get_repository_def().sensor_defs}


def test_commands_list_component_feeds_and_tables_and_skip_broken_ones(project: AProject) -> None:
    settings = load_settings()
    project.load()
    assert [feed.name for feed in location.feeds(settings)] == ["returns"]
    assert location.tables(settings).keys() == {"core.returns", "marts.returns_per_day"}
    project.change(TABLE, "partitions: day", "partitions: dayy")
    forget()
    with location.without_broken_parts():
        kept = location.asset_graph(settings).get_all_asset_keys()
    assert dg.AssetKey(["core", "returns"]) in kept and dg.AssetKey(["marts", "returns_per_day"]) not in kept
    found = [line.partition(" ")[0] for line in location.broken_parts(settings)]
    assert found == [f"src/acme/defs/{project.line_of(TABLE, 'partitions')}"]


# Code versions


def lock_of(project: AProject) -> dict[str, Asset]:
    settings = load_settings()
    assert settings.code_root == project.root / "src"
    return assets_of(project.load().assets or (), Project(settings.code_root, "acme"))


@pytest.mark.parametrize(
    ("path", "before", "after", "asset", "named"),
    [
        (FEED, "remark: string", "note: string", "core/returns", f"src/acme/defs/{FEED}: columns"),
        (FEED, "= day", "<= day", "core/returns", f"src/acme/defs/{FEED}: rules"),
        (TABLE, "[day]", "[day, lines]", "marts/returns_per_day", f"src/acme/defs/{TABLE}: row_key"),
        (
            "returns_per_day/transform.py",
            'count("*")',
            'sum("order_id")',
            "marts/returns_per_day",
            "acme/defs/returns_per_day/transform.py: returns_per_day()",
        ),
    ],
)
def test_component_change_that_affects_rows_changes_only_its_own_fingerprint(
    project: AProject, path: str, before: str, after: str, asset: str, named: str
) -> None:
    lock = Lock(lock_of(project))
    assert lock.assets.keys() == {"core/returns", "marts/returns_per_day"}
    project.change(path, before, after)
    [finding] = differences(lock, lock_of(project))
    assert (finding.asset, finding.definitions) == (asset, (named,))
    assert f'{named} changed and code_version is still "1"' in finding.message


def test_display_and_schedule_changes_of_a_component_keep_its_fingerprint(
    project: AProject,
) -> None:
    lock = Lock(lock_of(project))
    project.change(FEED, "comment: A returned order line", "comment: Another\n  quarantine_share: 0.5")
    project.change(FEED, "team:orders", "team:sales")
    project.change(FEED, "  key:", "  exact: false  # the default\n  key:")
    project.change(TABLE, "hours: 24", "hours: 2")
    text = (project.defs_folder / "returns_per_day/transform.py").read_text()
    project.write("src/acme/elsewhere.py", text)
    project.change(TABLE, "acme.defs.returns_per_day.transform:", "acme.elsewhere:")
    assert differences(lock, lock_of(project)) == []


def test_environment_value_enters_the_fingerprint_by_its_template(
    project: AProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.change(FEED, "  grain", '  prefix: "{{ env.FOLDER }}/"\n  grain')
    monkeypatch.setenv("FOLDER", "a")
    lock = Lock(lock_of(project))
    monkeypatch.setenv("FOLDER", "b")
    assert differences(lock, lock_of(project)) == []
    project.change(FEED, "env.FOLDER", "env.OTHER")
    monkeypatch.setenv("OTHER", "b")
    [finding] = differences(lock, lock_of(project))
    assert finding.definitions == (f"src/acme/defs/{FEED}: prefix",)


# Templates


def test_template_in_a_component_may_give_a_value_of_any_type(
    project: AProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERSION", "1.10")
    monkeypatch.setenv("SHARE", "0.5")
    monkeypatch.setenv("GRAIN", "day")
    more = "import dagster as dg\n@dg.template_var\ndef more(): return ['remark']\n"
    project.write("src/acme/defs/returns/more.py", more)
    project.change(FEED, "attributes:", "template_vars_module: .more\nattributes:")
    project.change(FEED, 'code_version: "1"', 'code_version: "{{ env.VERSION }}"')
    project.change(FEED, "grain: day ", 'grain: "{{ env.GRAIN }}" ')
    project.change(FEED, "  key:", '  quarantine_share: "{{ env.SHARE }}"\n  required: "{{ more }}"\n  key:')
    project.change(FEED, "remark: string", "remark: \"{{ 'str' }}ing\"")
    defs = project.load()
    [feed] = declared_by(defs.assets or ()).feeds
    assert (feed.grain, feed.quarantine_share, feed.columns["remark"]) == (Grain.DAY, 0.5, "string")
    assert feed.required == ("order_id", "line_number", "remark")
    versions = [each.code_versions_by_key for each in defs.assets or () if isinstance(each, dg.AssetsDefinition)]
    assert {"1.10"} <= {version for each in versions for version in each.values()}


def test_component_schema_accepts_templates_and_reports_wrong_types() -> None:
    for component in (FeedComponent, TableComponent):
        schema = component.get_model_cls().model_json_schema()  # type: ignore[union-attr]
        check = Draft202012Validator(schema)
        every = dict.fromkeys(component.model_fields, "{{ env.X }}")
        assert not [error.message for error in check.iter_errors(every)]
        faulty = every | {"columns": "text", "retention": {"newest": "x"}}
        wrong = [error.message for error in check.iter_errors(faulty)]
        assert sorted(wrong) == ["'text' is not of type 'object'", "'x' is not of type 'integer'"]


# Further examples of the page


def with_examples(project: AProject) -> dg.Definitions:
    for path, text in examples().items():
        project.write(path, text)
    return project.load()


def test_components_page_examples_load(project: AProject) -> None:
    graph = with_examples(project).resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.materializable_asset_keys}
    assert keys == {
        "core/returns",
        "core/prices",
        "core/bookings",
        "core/tolls",
        "marts/returns_per_day",
        "marts/returns_value",
    }
    tolls = graph.get(dg.AssetKey(["core", "tolls"])).partitions_def
    assert isinstance(tolls, dg.MultiPartitionsDefinition) and tolls.partition_dimension_names == ["month", "region"]
    with location.without_broken_parts():
        location.asset_graph(load_settings())
    assert location.broken_parts(load_settings()) == ()


# The differences that `tidemark plan --diff` shows


def planned(
    project: AProject, before: dict[str, str], folder: Path, exits: Collection[int] = (0, 7)
) -> dict[str, list[str]]:
    """Return the lines that `tidemark plan --diff` shows, by the label of what changed."""
    forget()
    with dg.DagsterInstance.ephemeral() as instance:
        state = state_of(location.definitions(load_settings()), instance, contract_scale=1.0)
    replace(state, code=before).write(folder / "state.json")
    done = CliRunner().invoke(app, ["plan", "--against", str(folder / "state.json"), "--diff", "--json"])
    assert done.exit_code in exits, done.output
    found = json.loads(done.stdout)["code"]
    return {each["definition"]: each["diff"] for moved in found.values() for each in moved}


def changed(lines: list[str]) -> list[str]:
    return [line for line in lines[2:] if line[0] in "+-"]


def test_plan_shows_changed_lines_of_a_component_query_and_function(project: AProject, tmp_path: Path) -> None:
    with_examples(project)
    src, value = project.root / "src", project.defs_folder / "returns_value"
    before = code_texts(src, "acme")
    assert planned(project, before, tmp_path) == {}
    project.change(FEED, "wrong_day: to_date(returned_at) = day", "wrong_day: to_date(returned_at) >= day")
    project.change("returns_value/query.sql", "sum(p.price_usd)", "max(p.price_usd)")
    project.change("returns_per_day/transform.py", 'F.count("*")', 'F.sum("order_id")')
    project.change(TABLE, "comment: A day of returns", "comment: A day")  # changes no rows
    found = planned(project, before, tmp_path)
    feed, query = f"src/acme/defs/{FEED}", value.relative_to(src).joinpath("query.sql").as_posix()
    function = "acme/defs/returns_per_day/transform.py: returns_per_day()"
    assert found.keys() == {feed, query, function}
    assert changed(found[feed]) == [
        "-    wrong_day: to_date(returned_at) = day",
        "+    wrong_day: to_date(returned_at) >= day",
    ]
    assert [line for line in changed(found[query]) if "max(" in line]
    of_modules = {path: text for path, text in before.items() if path.endswith(".py")}
    assert planned(project, of_modules, tmp_path).keys() == {function}, "a former release kept no other files"


def test_plan_shows_a_new_component_completely(project: AProject, tmp_path: Path) -> None:
    project.load()
    before = code_texts(project.root / "src", "acme")
    with_examples(project)
    found = planned(project, before, tmp_path)
    lines = (project.defs_folder / "prices/defs.yaml").read_text().splitlines()
    assert changed(found["src/acme/defs/prices/defs.yaml"]) == [f"+{line}" for line in lines]


OWN_CLASS = """
from dagster_tidemark import TableComponent, table_asset

class SqlTable(TableComponent):
    transform: str = ""

    def _assets(self):
        return [table_asset(self.declaration.table, **self._asset_options())(lambda: self.rows())]

    def rows(self):
        return (self._source.path.parent / "a.sql").read_text()
"""
OF_OWN_CLASS = """
type: acme.kinds.SqlTable
attributes:
  name: marts.own
  columns: {n: bigint}
  row_key: [n]
"""


def test_plan_shows_the_changed_class_and_file_of_a_component(project: AProject, tmp_path: Path) -> None:
    project.write("src/acme/kinds.py", OWN_CLASS)
    for name, text in {"defs.yaml": OF_OWN_CLASS, "a.sql": "SELECT 1", "b.sql": "SELECT 2"}.items():
        project.write(f"src/acme/defs/own/{name}", text)
    project.load()
    before = code_texts(project.root / "src", "acme")
    assert planned(project, before, tmp_path, exits=(2, 7)) == {}
    project.change("own/a.sql", "1", "3")
    assert planned(project, before, tmp_path, exits=(2, 7)).keys() == {"acme/defs/own/a.sql"}
    project.change("../kinds.py", '"a.sql"', '"b.sql"')
    found = planned(project, before, tmp_path, exits=(2, 7))
    assert found.keys() == {"acme/defs/own/a.sql", "acme/kinds.py: SqlTable"}
    assert [line[0] for line in changed(found["acme/kinds.py: SqlTable"])] == ["-", "+"]


# With Spark


def test_components_page_query_computes_its_table(project: AProject, spark: SparkSession) -> None:
    with_examples(project)
    day = date(2026, 10, 1)
    returns = spark.createDataFrame([(day, 1), (day, 2), (day, 3)], "day date, order_id bigint")
    prices = spark.createDataFrame([(1, Decimal("2.5")), (2, None)], "order_id bigint, price_usd decimal(18,4)")
    module = import_module("acme.defs.returns_value.transform")
    assert module.returns_value(returns, prices).collect() == [(day, Decimal("2.5000"))]


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")  # Dagster of its own nested resources
def test_component_feed_and_table_are_built_from_landed_files(
    project: AProject, cloud: Settings, spark_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"r{uuid.uuid4().hex[:8]}"  # the catalog is that of all tests
    for path in [FEED, TABLE, "returns_per_day/transform.py"]:
        text = (project.defs_folder / path).read_text()
        project.write(
            f"src/acme/defs/{path}", text.replace("returns", name).replace(f"acme.defs.{name}", "acme.defs.returns")
        )
    settings = spark_server.model_copy(update={"landing_bucket": name})
    for variable, value in settings.exports().items():
        if not variable.startswith("TIDEMARK_CODE"):
            monkeypatch.setenv(variable, value)
    s3 = boto3.client("s3", **settings.aws_options())
    s3.create_bucket(Bucket=name)
    rows = "order_id,line_number,remark,returned_at\n1,1,ok,2026-10-01T08:00:00Z\n1,2,,2026-10-01T09:00:00Z\n"
    s3.put_object(Bucket=name, Key=f"{name}/dt=2026-10-01/a.csv", Body=rows + "2,1,late,2026-10-02T09:00:00Z\n")
    defs = project.load()
    with dg.DagsterInstance.ephemeral() as instance:
        ours = [each for each in defs.assets or () if isinstance(each, dg.AssetsDefinition | dg.SourceAsset)]
        for key in (["core", name], ["marts", f"{name}_per_day"]):
            ran = dg.materialize(
                ours,
                instance=instance,
                resources=defs.resources,
                selection=[dg.AssetKey(key)],
                partition_key="2026-10-01",
            )
            assert ran.success
    prefix = "PYICEBERG_CATALOG__LAKE__"  # pyiceberg reads its variables when it is imported, so they are passed
    of_lake = {key.removeprefix(prefix).lower(): value for key, value in settings.exports().items() if prefix in key}
    lake = load_catalog("lake", **of_lake)
    assert lake.load_table(f"core.{name}").scan().to_arrow().num_rows == 2
    assert lake.load_table(f"marts.{name}_per_day").scan().to_arrow().column("lines").to_pylist() == [2]


# The command `dg`, and what of Dagster is not public


def dg_command(project: AProject, *arguments: str, code: int = 0) -> str:
    """Run `dg` in the project, and return what it prints."""
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONPATH": str(project.root / "src"), "COLUMNS": "200"}
    done = run_script("dg", arguments, cwd=project.root, env=os.environ | quiet)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def test_dg_lists_scaffolds_and_checks_tidemark_components(project: AProject) -> None:
    listed = dg_command(project, "list", "components", "--json")
    assert "dagster_tidemark.FeedComponent" in listed and "dagster_tidemark.TableComponent" in listed
    dg_command(project, "scaffold", "defs", "dagster_tidemark.FeedComponent", "trips")
    dg_command(project, "scaffold", "defs", "dagster_tidemark.TableComponent", "trips_per_day", "--reads", "core/trips")
    folders = ("returns", "returns_per_day", "trips", "trips_per_day")
    dg_command(project, "check", "yaml", *(f"src/acme/defs/{folder}" for folder in folders))
    shown = dg_command(project, "list", "defs", "--json")
    assert all(f'"{key}"' in shown for key in ("raw/trips", "core/trips", "marts/trips_per_day", "core/returns"))
    refused = dg_command(project, "scaffold", "defs", "dagster_tidemark.FeedComponent", "bad-name", code=1)
    assert "Error: 'bad-name' is not a table name; use letters, digits and _" in refused and "Traceback" not in refused
    assert not (project.defs_folder / "bad-name").exists()
    project.change("trips/defs.yaml", "grain: day ", "grain: daay ")
    refused = dg_command(project, "check", "yaml", "src/acme/defs/trips", code=1)
    assert "trips/defs.yaml:5 - dagster_tidemark.FeedComponent attributes.grain 'daay' is not one of" in refused


def test_asset_metadata_contains_its_component(project: AProject) -> None:
    [found] = [
        component
        for asset in loaded_without_call(project).assets or ()
        if isinstance(asset, dg.AssetsDefinition)
        for spec in asset.specs
        if spec.key == dg.AssetKey(["core", "returns"])
        for component in components.components_of(spec.metadata)
    ]
    assert isinstance(found, FeedComponent)


def test_package_import_loads_neither_pyspark_nor_boto3() -> None:
    code = (
        "import sys, dagster_tidemark as t; [getattr(t, name) for name in dir(t)]; "
        "print({'pyspark', 'boto3'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=100)
    assert ran.stdout.strip() == "set()", ran.stderr
