"""The code of docs/ works: what a page defines is defined, its tests are green, and its model is fitted.

Does not belong here: pages that are followed as a whole (`test_tutorial`, `test_own_domain`, `test_add_a_stream`,
`test_add_a_feed`), and what holds for every page (`test_docs`).
"""

import re
import tomllib
from datetime import timedelta
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import AssetEvents, ContractLog, build_definitions, extend, listener, load_settings
from dagster_tidemark.lakehouse.session import server_conf
from dagster_tidemark.local.spark.jars import COORDINATES
from dagster_tidemark.settings import Settings
from tests import pages
from tests.checkout import CHECKOUT

FOLLOWED = {"streams.md", "testing.md", "tutorial.md", "your-own-domain.md"}
WHOLE = {"existing-location.md", "models.md", "production.md", "simulator.md"}
"""Pages whose code is one module. Of the others each snippet counts that begins with its imports."""


_ANY = {"shift_clicks": "<stream>", "tidemark_listener_x": "<name>"}


@dg.asset
def orders() -> list[tuple[int, int]]:
    return [(1, 2)]


def executed(name: str) -> dict[str, Any]:
    """Execute the snippets of a page in order, and return what they define."""
    module = ModuleType(name.partition(".")[0])
    if name == "existing-location.md":
        vars(module).update(defs=dg.Definitions(assets=[orders]), theirs=[orders])
    for code in pages.blocks(pages.page(name), "python"):
        if name in WHOLE or code.startswith(("import ", "from ")):
            pages.execute(code, name, vars(module))
    return vars(module)


@pytest.mark.parametrize("name", sorted({path.name for path in pages.DOCS.glob("*.md")} - FOLLOWED))
def test_docs_page_snippets_can_be_executed(name: str) -> None:
    executed(name)


@pytest.mark.parametrize("name", ["models.md", "simulator.md"])
def test_tests_shown_on_a_docs_page_pass(name: str, tmp_path: Path) -> None:
    tests = {key: value for key, value in executed(name).items() if key.startswith("test_")}
    assert tests
    for test in tests.values():
        test(**({"tmp_path": tmp_path} if "tmp_path" in signature(test).parameters else {}))


def test_existing_location_page_lists_everything_that_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    page = executed("existing-location.md")
    rates = dg.AssetSpec("rates")
    defs = extend(
        dg.Definitions(assets=[orders, rates]),
        load_settings(),
        assets=[page["sales"], *page["refunds"], page["clicks"]],
        tables=[page["SALES"], page["REFUNDS"], page["CLICKS"]],
        feeds=[page["REFUNDS_FEED"]],
        streams=[page["CLICKS_STREAM"]],
        notify=[ContractLog()],
        asset_events=AssetEvents(queue="rates", assets=["rates"]),
        listeners=[listener(assets=["marts/*"], name="x")(lambda event: None)],
        retention=timedelta(days=30),
        freshness_report=True,
    )
    repository = defs.get_repository_def()
    jobs = {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")}
    parts = [*repository.sensor_defs, *repository.schedule_defs]
    added = {part.name for part in parts if part.name != "default_automation_condition_sensor"}
    added |= jobs | {name for name in defs.resources or () if name != "io_manager"}
    text = pages.page("existing-location.md").partition("\n## What is added\n")[2].partition("\nThe assets ")[0]
    listed = set(re.findall(r"`((?:tidemark|shift)_[\w<>]*)`", text))
    assert listed == {re.sub(r"(shift_|listener_).*", r"\1", name) + _ANY.get(name, "") for name in added}


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")  # Dagster of its own nested resources
def test_models_page_example_is_fitted_once_and_forecasts(
    spark_server: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in spark_server.exports().items():
        monkeypatch.setenv(variable, value)
    page = executed("models.md")
    days = pd.date_range("2026-10-05", periods=14).date
    rows = pd.DataFrame({"day": days, "shop_id": 1, "visits": [10, 20, 30, 40, 50, 60, 70] * 2})

    @dg.asset(key=["core", "visits"], partitions_def=page["DAYS"], backfill_policy=dg.BackfillPolicy.single_run())
    def visits(spark: dg.ResourceParam[Any]) -> Any:
        return spark.session.createDataFrame(rows, "day date, shop_id bigint, visits bigint")

    tables = [page[name] for name in ("VISITS", "VISITS_MODEL", "VISITS_FORECAST")]
    defs = build_definitions(load_settings(), [visits, page["visits_model"], page["visits_forecast"]], [], tables)
    assets = [each for each in defs.assets or () if isinstance(each, dg.AssetsDefinition)]
    window = dict(zip(("start", "end"), (f"{days[0]}", f"{days[-1]}"), strict=True))
    tags = {f"dagster/asset_partition_range_{end}": day for end, day in window.items()}
    with dg.DagsterInstance.ephemeral() as instance:
        for key in (["core", "visits"], ["ml", "visits_model"], ["ml", "visits_model"], ["ml", "visits_forecast"]):
            chosen = dg.AssetSelection.assets(key)
            of_days = {} if key[-1] == "visits_model" else tags
            done = dg.materialize(
                assets, selection=chosen, tags=of_days, resources=dict(defs.resources or {}), instance=instance
            )
            assert done.success, key
    versions = spark.table("lake.ml.visits_model").collect()
    assert len(versions) == 2 and len({row["version"] for row in versions}) == 1, "equal features, an equal name"
    assert [row["mean_absolute_error"] for row in versions] == [0.0, 0.0]
    told = {row["day"]: row["visits"] for row in spark.table("lake.ml.visits_forecast").collect()}
    assert len(told) == 14 and told[days[0]] == 10.0 and told[days[6]] == 70.0


def test_production_page_names_the_complete_spark_configuration(tmp_path: Path) -> None:
    said = pages.page("production.md")
    settings = Settings(
        environment="production",
        state_dir=tmp_path,
        catalog_uri="jdbc:postgresql://db:5432/lake?user=tidemark&password=secret",
        warehouse="s3://acme-lake/warehouse",
        spark_remote="sc://spark:15002",
    )
    conf = server_conf(settings)
    assert [name for name in conf if f"`{name}`" not in said] == []
    assert [value for value in conf.values() if value.startswith("org.apache.iceberg") and value not in said] == []
    assert [each for each in COORDINATES if f"`{each}`" not in said] == []


def test_production_page_names_the_pinned_spark_version() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    (pyspark,) = (each.partition("==")[2] for each in project["dependencies"] if each.startswith("pyspark"))
    assert f"Spark {pyspark.split()[0]}" in pages.page("production.md")
