"""Records and branches of expired previews are dropped, and those of other previews stay."""

import time
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.preview import expired
from dagster_tidemark.preview.manifest import PreviewManifest, Store, TablePreview
from tests.conftest import make_settings

ORDERS = Table("core.orders", {"id": "bigint"}, ("id",))
DAY = 86_400.0


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    made = open_lake(settings)
    table = Appendable(made, ORDERS)
    table.commit(TableCommit(rows_of(table.schema, [{"id": 1}])))
    return made


def recorded(folder: Path, lake: Catalog, name: str, *, days: float, half_published: bool = False) -> PreviewManifest:
    manifest = PreviewManifest.begun({}, {})
    manifest.created = time.time() - days * DAY
    manifest.tables = [TablePreview("core/orders"), TablePreview("core/never")]
    manifest.tables[0].decided = [] if half_published else None
    table = lake.load_table(ORDERS.name)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, manifest.branch).commit()
    Store(folder, name).write(manifest)
    return manifest


def branches(lake: Catalog) -> set[str]:
    return set(lake.load_table(ORDERS.name).refs()) - {"main"}


def test_only_previews_that_expired_long_ago_are_dropped(tmp_path: Path, lake: Catalog) -> None:
    before = time.time() - 30 * DAY
    old = recorded(tmp_path, lake, "old", days=33)
    others = [
        recorded(tmp_path, lake, "expired-later", days=31),
        recorded(tmp_path, lake, "ready", days=1),
        recorded(tmp_path, lake, "half", days=40, half_published=True),
        recorded(tmp_path, lake, "in-use", days=40),
    ]
    (tmp_path / "previews" / "damaged.json").write_text("{")
    found = expired.find(tmp_path, before)
    assert [store.name for store in found.stores] == ["in-use", "old"] and found.size > 0
    assert "damaged.json contains no preview" in found.kept[0]
    assert found.kept[1] == "preview half is half published: `tidemark plan --publish half` completes it"
    assert old.branch in branches(lake), "finding changes nothing"
    with Store(tmp_path, "in-use").used_for("being published"):
        dropped, in_use = expired.drop(lake, found, before)
    assert dropped == 1 and "preview in-use is in use: being published" in in_use[0]
    assert branches(lake) == {each.branch for each in others}
    assert set(Store.names(tmp_path)) == {"damaged", "expired-later", "half", "in-use", "ready"}
    assert lake.load_table(ORDERS.name).scan().to_arrow().num_rows == 1


def test_preview_that_was_built_again_meanwhile_stays(tmp_path: Path, lake: Catalog) -> None:
    before = time.time() - 5 * DAY
    recorded(tmp_path, lake, "again", days=20)
    found = expired.find(tmp_path, before)
    again = recorded(tmp_path, lake, "again", days=0)
    assert expired.drop(lake, found, before) == (0, ())
    assert again.branch in branches(lake) and Store(tmp_path, "again").read() is not None


def test_records_are_deleted_without_a_catalog(tmp_path: Path, lake: Catalog) -> None:
    recorded(tmp_path, lake, "old", days=20)
    assert expired.drop(None, expired.find(tmp_path, time.time()), time.time()) == (1, ())
    assert Store.names(tmp_path) == []
