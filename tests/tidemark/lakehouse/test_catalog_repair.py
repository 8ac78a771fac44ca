"""A catalog that was lost, or restored from another moment than the warehouse, is compared and registered again."""

import shutil
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from dagster_tidemark.cli import restore_catalog, storage
from dagster_tidemark.cli.app import app
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.catalog_repair import CatalogState, NotRepaired, compared, forget, repair
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.local.platform import instance_lock
from dagster_tidemark.settings import Settings
from tests.conftest import make_settings

SALES = Table("core.sales", {"id": "bigint"}, ("id",))
PINGS = Table("raw.pings", {"id": "bigint"}, ("id",))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path)
    Path(made.warehouse).mkdir()
    return made


def append(settings: Settings, table: Table, *ids: int) -> None:
    for number in ids:
        writer = Appendable(open_lake(settings), table)
        writer.commit(TableCommit(rows_of(writer.schema, [{"id": number}])))


def ids(settings: Settings, name: str) -> list[int]:
    found: pa.Table = open_lake(settings).load_table(name).scan().to_arrow()
    return sorted(found["id"].to_pylist())


def states(settings: Settings) -> dict[str, CatalogState]:
    return {each.name: each.state for each in compared(open_lake(settings), settings.warehouse)}


def repaired(settings: Settings) -> Catalog:
    lake = open_lake(settings)
    for each in compared(lake, settings.warehouse):
        if each.state is not CatalogState.OK:
            repair(lake, each)
    return lake


def catalog_file(settings: Settings) -> Path:
    return Path(settings.catalog_shown.removeprefix("jdbc:sqlite:"))


def folder(settings: Settings, table: Table) -> Path:
    return Path(settings.warehouse) / table.name.replace(".", "/")


def test_lost_catalog_is_registered_from_the_newest_metadata_files(settings: Settings) -> None:
    append(settings, SALES, *range(8))  # Iceberg keeps the last six metadata files only
    append(settings, PINGS, 1)
    assert states(settings) == {"core.sales": CatalogState.OK, "raw.pings": CatalogState.OK}
    catalog_file(settings).unlink()
    assert states(settings) == {"core.sales": CatalogState.UNREGISTERED, "raw.pings": CatalogState.UNREGISTERED}
    repaired(settings)
    assert (ids(settings, "core.sales"), ids(settings, "raw.pings")) == ([*range(8)], [1])
    append(settings, SALES, 8)
    assert ids(settings, "core.sales") == [*range(9)]
    assert set(states(settings).values()) == {CatalogState.OK}


@pytest.mark.parametrize(("later", "state"), [(2, CatalogState.BEHIND), (9, CatalogState.UNREADABLE)])
def test_catalog_of_an_earlier_moment_gets_the_commits_of_the_warehouse(
    settings: Settings, tmp_path: Path, later: int, state: CatalogState
) -> None:
    append(settings, SALES, 0)
    shutil.copy(catalog_file(settings), tmp_path / "dump.db")
    append(settings, SALES, *range(1, later))
    append(settings, PINGS, 1)
    shutil.copy(tmp_path / "dump.db", catalog_file(settings))
    assert states(settings) == {"core.sales": state, "raw.pings": CatalogState.UNREGISTERED}
    repaired(settings)
    assert (ids(settings, "core.sales"), ids(settings, "raw.pings")) == ([*range(later)], [1])


def test_warehouse_of_an_earlier_moment_is_registered_as_it_is(settings: Settings, tmp_path: Path) -> None:
    append(settings, SALES, 0)
    shutil.copytree(settings.warehouse, tmp_path / "earlier")
    append(settings, SALES, 1)
    append(settings, PINGS, 1)
    shutil.rmtree(settings.warehouse)
    shutil.copytree(tmp_path / "earlier", settings.warehouse)
    assert states(settings) == {"core.sales": CatalogState.UNREADABLE, "raw.pings": CatalogState.LOST}
    lake = open_lake(settings)
    sales, pings = compared(lake, settings.warehouse)
    repair(lake, sales)
    with pytest.raises(NotRepaired, match=r"raw\.pings.*no metadata file is left"):
        repair(lake, pings)
    forget(lake, "raw.pings")
    assert states(settings) == {"core.sales": CatalogState.OK} and ids(settings, "core.sales") == [0]


def test_deleted_data_files_are_named_and_never_registered(settings: Settings) -> None:
    append(settings, SALES, 0, 1)
    data = next((folder(settings, SALES) / "data").rglob("*.parquet"))
    data.unlink()
    (found,) = compared(open_lake(settings), settings.warehouse)
    assert found.state is CatalogState.DAMAGED and data.name in found.said and found.said.startswith("1 files")
    catalog_file(settings).unlink()
    assert states(settings) == {"core.sales": CatalogState.DAMAGED}
    manifest = next((folder(settings, SALES) / "metadata").glob("snap-*.avro"))
    manifest.unlink()
    assert states(settings) == {"core.sales": CatalogState.DAMAGED}


def test_truncated_metadata_file_is_named_and_others_are_compared(settings: Settings) -> None:
    append(settings, SALES, 0)
    append(settings, PINGS, 0)
    catalog_file(settings).unlink()
    newest = max((folder(settings, SALES) / "metadata").glob("*.metadata.json"))
    newest.write_text(newest.read_text()[:100])
    sales, pings = compared(open_lake(settings), settings.warehouse)
    assert (sales.name, sales.state) == ("core.sales", CatalogState.DAMAGED) and "cannot be read" in sales.said
    assert pings.state is CatalogState.UNREGISTERED


def test_two_newest_metadata_files_are_left_to_a_person(settings: Settings) -> None:
    append(settings, SALES, 0)
    (newest,) = [each.newest for each in compared(open_lake(settings), settings.warehouse)]
    path = Path(newest.removeprefix("file://"))
    version, _, _ = path.name.partition("-")
    shutil.copy(path, path.with_name(f"{version}-another.metadata.json"))
    assert states(settings) == {"core.sales": CatalogState.OK}, "the catalog knows which of them was committed"
    catalog_file(settings).unlink()
    (found,) = compared(open_lake(settings), settings.warehouse)
    assert found.state is CatalogState.AMBIGUOUS and found.newest.count(", ") == 1


def test_table_that_was_built_again_is_not_mistaken_for_its_predecessor(settings: Settings) -> None:
    append(settings, SALES, *range(4))
    forget(open_lake(settings), "core.sales")
    append(settings, SALES, 7)
    assert states(settings) == {"core.sales": CatalogState.OK}, "files of the former table have higher versions"
    catalog_file(settings).unlink()
    repaired(settings)
    assert ids(settings, "core.sales") == [7]


def test_generations_get_the_names_that_they_had(settings: Settings) -> None:
    append(settings, SALES, 1)
    append(settings, Table("core.sales", {"id": "bigint"}, ("id",), generation=2), 2)
    before = states(settings)
    assert set(before) == {"core.sales", "core.sales_generation_1"}
    catalog_file(settings).unlink()
    repaired(settings)
    assert (ids(settings, "core.sales"), ids(settings, "core.sales_generation_1")) == ([2], [1])


@pytest.mark.parametrize(
    ("age", "beats_again", "runs"), [(10, False, True), (90, True, True), (90, False, False), (-70, False, True)]
)
def test_a_daemon_with_another_clock_is_noticed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, age: float, beats_again: bool, runs: bool
) -> None:
    last = [time.time() - age]
    monkeypatch.setattr(instance_lock, "take_environment", lambda settings: settings)
    monkeypatch.setattr(storage, "opened_instance", lambda: nullcontext(None))
    monkeypatch.setattr(instance_store, "heartbeats", lambda instance: {"SENSOR": last[-1]})
    monkeypatch.setattr(restore_catalog.time, "sleep", lambda seconds: last.append(last[0] + 30 * beats_again))
    expected: AbstractContextManager[object] = pytest.raises(typer.Exit) if runs else nullcontext()
    with expected:
        restore_catalog._require_no_daemon(settings)


def test_the_command_changes_nothing_without_apply_and_fails_while_a_table_differs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(settings, SALES, 0)
    append(settings, PINGS, 1)
    shutil.rmtree(folder(settings, PINGS))
    row = open_lake(settings).load_table("core.sales").metadata_location
    forget(open_lake(settings), "core.sales")
    for name, value in settings.exports().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.delenv("SPARK_REMOTE")  # a stopped laptop has neither

    def call(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["restore-catalog", *options])
        return done.exit_code, done.output

    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.internal")
    code, said = call("--apply")
    assert code == 1 and "it is not known whether a daemon runs" in said
    monkeypatch.delenv("SPARK_REMOTE")
    code, said = call()
    assert code == 1 and f"--apply registers {row}" in said and "--apply --drop raw.pings" in said
    assert states(settings)["core.sales"] is CatalogState.UNREGISTERED
    assert call("--apply")[0] == 1 and ids(settings, "core.sales") == [0]
    code, said = call("--apply", "--drop", "core.sales")
    assert code == 2 and "expected a table whose files are gone" in said
    code, said = call("--apply", "--drop", "raw.pings")
    assert code == 0 and "1 of 1 tables are ok" in said
    assert states(settings) == {"core.sales": CatalogState.OK}
