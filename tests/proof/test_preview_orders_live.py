"""Three days of core/orders with another rule and another transform: tried, killed, published.

A whole platform runs all the time, a file lands in between, and a reader polls. DuckDB (`tests.oracle`) is the judge,
with the change made in its own SQL: rows, quarantine, and the marts below. Does not belong here: two tables
at a smaller scale (`tests.tidemark.preview.test_preview_first_layer`).
"""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tests import oracle
from tests.live.platform import _BIN, Platform
from tests.live.test_arrivals import order_file
from tests.live.waiting import all_the_time, eventually
from tests.proof.conftest import Report
from tests.proof.edited_project import computed_since, edit

DAYS = 3
ORDERS = "core.orders"
BELOW = (
    "marts.sales_hourly",
    "marts.sales_daily",
    "marts.order_stats",
    "marts.margin_hourly",
    "marts.executive_rollup",
)
EDITS = {
    "pipelines/feeds/orders.py": [
        ('"discount BETWEEN 0 AND 1"', '"discount BETWEEN 0 AND 0.1"'),
        ("quarantine_share=0.01", "quarantine_share=0.95"),
    ],
    "pipelines/transforms/orders.py": [("F.round(exact, 4)", "F.round(exact, 1)")],
    "pipelines/assets/core/orders.py": [('code_version="1"', 'code_version="2"')],
}
CHANGES = [("discount BETWEEN 0 AND 1", "discount BETWEEN 0 AND 0.1"), ("(9,8), 4)", "(9,8), 1)")]
PREVIEW = ("plan", "--preview", "discounts", "--json", "--select", 'key:"core/orders" or key:"marts/*"')
BOUNDARIES = ("preview_quarantined", "preview_committed")
"""Where a publish is killed here; `tests.proof.test_preview_first_layer` dies at every boundary, twice."""
TURNED_AWAY = """SELECT source_file, count(*) AS rows FROM (
    SELECT source_file, NOT broken AND ({filled}) AND discount BETWEEN 0 AND {most} AND abs(quantity) < 1000000000
    AND date_trunc('hour', ordered_at) = partition_start AS good FROM landed_orders)
    WHERE good IS NOT TRUE GROUP BY 1"""


def test_changed_core_table_is_previewed_and_published_after_kills(
    platform: Platform, project: Path, tmp_path: Path, report: Report
) -> None:
    first = datetime.now(UTC).date() - timedelta(days=DAYS + 1)
    platform.pipelines("feed", "--once", "--start", f"{first}T00", "--hours", str(24 * DAYS))
    eventually(lambda: _as_expected(platform, tmp_path / "before", changed=False), seconds=420, every=5)
    platform.quiet(seconds=200)
    edit(project, EDITS)

    began = time.monotonic()
    span = f"{first}-00:00...{first + timedelta(days=DAYS - 1)}-23:00"
    done = platform.pipelines(*PREVIEW, "--partitions", span, code=2, seconds=400)
    preview_seconds, previewed = time.monotonic() - began, json.loads(done.stdout)
    _as_expected(platform, tmp_path / "before", changed=False)  # readers see nothing of it
    own = {each["key"].replace("/", "."): each for each in previewed["assets"]}
    assert set(own) >= {ORDERS, *BELOW}
    expected = _expected(platform, tmp_path / "branch", changed=True)
    refs = platform.catalog.load_table(ORDERS).refs()
    branch = platform.catalog.load_table(ORDERS).scan(snapshot_id=refs[previewed["branch"]].snapshot_id).to_arrow()
    oracle.assert_same(ORDERS, expected[ORDERS], branch)
    assert own[ORDERS]["rows_after"] == expected[ORDERS].num_rows

    middle = first + timedelta(days=DAYS // 2)
    late = f"{middle}-05:00"
    platform.put(f"orders/dt={middle}/hour=05/late.csv", order_file(middle, 5, order_id=990_000_003))
    eventually(lambda: _is_loaded_again(platform, late), seconds=120, every=1)
    platform.quiet()
    began_at, began = datetime.now(UTC).timestamp(), time.monotonic()
    seen: list[pa.Table] = []
    with all_the_time(lambda: seen.append(platform.table(ORDERS).select(["hour", "loaded_by"]))):
        for boundary in BOUNDARIES:
            _killed(platform, boundary)
            said = platform.pipelines("plan", "--previews").stdout
            assert "discounts: " in said and "half published" in said
        assert "preview discounts is half published" in platform.pipelines("plan", code=2).stderr
        published = time.monotonic()
        platform.pipelines("plan", "--publish", "discounts", seconds=400)
        publish_seconds = time.monotonic() - published
        # The rollup of the late file's day has until 9 o'clock, because data came for it as well.
        later = {"marts.executive_rollup": pc.field("day") != middle}
        eventually(lambda: _as_expected(platform, tmp_path / "after", changed=True, only=later), seconds=200, every=5)
    platform.quiet()
    (rollup,) = json.loads(platform.pipelines("status", "--json", "--asset", "marts/executive_rollup").stdout)
    assert f"{middle} not due" in rollup["reason"], rollup
    hours = set(own[ORDERS]["partitions"]) - {late}
    states = _states(seen, hours)
    assert states == ["1", "2"], f"readers saw a mixture: {states}"
    computed = computed_since(platform, "core/orders", began_at)
    assert not computed & hours, "published, and loaded again"
    # Runs import the edited working tree, so the new code has loaded the late file before the publish.
    assert _states([platform.table(ORDERS)], {late}) == ["2"], "the late file's hour is loaded by the new code"
    refs = platform.catalog.load_table(ORDERS).refs()
    assert set(refs) == {"main"} and set(platform.catalog.load_table("ops.quarantine").refs()) == {"main"}
    report(
        "preview-orders-live",
        {
            "what": "three days of core/orders with another rule and transform: previewed, killed twice while it "
            "is published, published, with a file landing in between, while a pyiceberg reader polls; DuckDB judges "
            "core, quarantine and marts",
            "previewed partitions": {name: len(each["partitions"]) for name, each in own.items()},
            "entries in quarantine": own[ORDERS]["quarantine"],
            "seconds of the preview": round(preview_seconds, 1),
            "seconds of the last publish": round(publish_seconds, 1),
            "killed at": BOUNDARIES,
            "seconds with the kills": round(time.monotonic() - began, 1),
            "states of the three days that readers saw": states,
            "reads": len(seen),
            "published hours loaded again": len(computed & hours),
            "other hours loaded": sorted(computed - hours),
        },
    )


def _killed(platform: Platform, boundary: str) -> None:
    """Publish, and die at a boundary."""
    done = subprocess.run(
        [_BIN / "tidemark", "plan", "--publish", "discounts"],
        env={**platform.asked, "TIDEMARK_KILL_AT": f"{boundary}:1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,  # the whole group is killed
    )
    assert done.returncode == -signal.SIGKILL, f"{boundary}: {done.returncode}\n{done.stdout}{done.stderr}"


def _expected(platform: Platform, folder: Path, *, changed: bool) -> Mapping[str, pa.Table]:
    """Return DuckDB's tables from the bucket; if `changed`, with the change made in its SQL."""
    shutil.rmtree(folder, ignore_errors=True)
    before = dict(oracle._SQL)
    filled = " AND ".join(f"{name} IS NOT NULL" for name in oracle._ORDERS)
    oracle._SQL["turned away"] = TURNED_AWAY.format(filled=filled, most="0.1" if changed else "1")
    try:
        for old, new in CHANGES if changed else ():
            assert oracle._SQL[ORDERS].count(old) == 1, old
            oracle._SQL[ORDERS] = oracle._SQL[ORDERS].replace(old, new)
        found = oracle.expected_tables(oracle.download(platform.s3, "landing", folder))
        return found.tables
    finally:
        oracle._SQL.clear()
        oracle._SQL.update(before)


def _as_expected(
    platform: Platform, folder: Path, *, changed: bool, only: Mapping[str, pc.Expression] | None = None
) -> None:
    """Compare the tables with DuckDB's; of a table in `only`, only these rows."""
    expected = _expected(platform, folder, changed=changed)
    for name in (ORDERS, *BELOW):
        chosen = (only or {}).get(name, pc.scalar(True))
        assert expected[name].num_rows
        oracle.assert_same(name, expected[name].filter(chosen), platform.table(name).filter(chosen))
    entries = platform.table("ops.quarantine").filter(pc.field("asset") == "core/orders")
    rows = entries.filter(pc.field("row_number").is_valid())
    db = duckdb.connect()
    found = dict(db.sql("SELECT source_file, count(*) FROM rows GROUP BY 1").fetchall()) if rows.num_rows else {}
    wanted = dict(zip(*expected["turned away"].to_pydict().values(), strict=True))
    assert found == wanted, "the quarantine differs"


def _is_loaded_again(platform: Platform, hour: str) -> None:
    assert "late.csv" in "".join(str(f) for f in platform.table(ORDERS)["source_file"].unique().to_pylist()), hour


def _states(seen: list[pa.Table], hours: set[str]) -> list[str]:
    """Return the code versions that loaded these hours' rows, for each read. Equal neighbours are listed once."""
    states: list[str] = []
    for table in seen:
        keys = pc.strftime(table["hour"], "%Y-%m-%d-%H:00")
        chosen = table.filter(pc.is_in(keys, pa.array(sorted(hours))))
        state = "+".join(sorted(chosen["loaded_by"].unique().to_pylist()))
        if states[-1:] != [state]:
            states.append(state)
    return states
