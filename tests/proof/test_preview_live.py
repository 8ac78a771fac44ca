"""A week of marts/margin_hourly tried on branches and published, on a whole platform whose users go on reading.

The judges are DuckDB, which compares both versions itself, and the oracle of the tables with the change worked out by
hand. Does not belong here: kills and collisions, each on its own (`tests.tidemark.preview.test_preview`).
"""

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tests.live.platform import Platform
from tests.live.test_arrivals import order_file
from tests.live.waiting import all_the_time, eventually
from tests.oracle import assert_same, download, expected_tables
from tests.proof.conftest import Report
from tests.proof.edited_project import computed_since, edit

DAYS = 8  # the last of them is not in the preview
MARGIN, ROLLUP = "marts.margin_hourly", "marts.executive_rollup"
KEYS = {MARGIN: ("hour", "product_id"), ROLLUP: ("day",)}
EDITS = {
    "pipelines/transforms/margin.py": [
        ('F.col("revenue_usd") - F.col("cost_usd"))', 'F.col("revenue_usd") - F.col("cost_usd") * 2)'),
        ("return shaped_as(margins,", 'return shaped_as(margins.where(F.col("revenue_usd") > 20),'),
    ],
    "pipelines/assets/marts/margin.py": [('code_version="1"', 'code_version="2"')],
}
CHANGED = """SELECT hour, product_id, revenue_usd, cost_usd, (revenue_usd - cost_usd * 2)::DECIMAL(18, 4) AS margin_usd
    FROM before WHERE revenue_usd > 20"""


def test_one_week_is_previewed_and_published_while_others_read_it(
    platform: Platform, project: Path, tmp_path: Path, report: Report
) -> None:
    first = datetime.now(UTC).date() - timedelta(days=DAYS + 3)
    platform.pipelines("feed", "--once", "--start", f"{first}T00", "--hours", str(24 * DAYS))
    eventually(lambda: _as_expected(platform, tmp_path / "before", changed=False), seconds=900, every=5)
    eventually(lambda: _has_days(platform, DAYS), seconds=300, every=2)
    platform.quiet(seconds=300)
    edit(project, EDITS)

    week = f"{first}-00:00...{first + timedelta(days=6)}-23:00"
    listed = json.loads(platform.pipelines("plan", "--json", code=2).stdout)
    planned = {each["key"]: len(each["partitions"]) for each in listed["assets"]}
    preview = platform.pipelines("plan", "--preview", "--partitions", week, "--json", code=2, seconds=600)
    previewed = json.loads(preview.stdout)
    _as_expected(platform, tmp_path / "before", changed=False)  # readers see nothing of it
    own = {each["key"].replace("/", "."): each for each in previewed["assets"]}
    assert set(own) == set(KEYS)
    diffs = {name: _duckdbs(platform, name, previewed["branch"], own[name]["partitions"]) for name in KEYS}
    for name, diff in diffs.items():
        assert {figure: own[name][figure] for figure in diff["figures"]} == diff["figures"], name
        assert {column: each["rows"] for column, each in own[name]["columns"].items()} == diff["columns"], name
        totals = {c: (t["before"], t["after"]) for c, t in own[name]["totals"].items() if c in diff["totals"]}
        assert totals == diff["totals"], name

    late = f"{first + timedelta(days=2)}-05:00"
    _send_again(platform, late)
    eventually(lambda: _is_built_again(platform, late), seconds=120, every=1)
    platform.quiet()
    began = datetime.now(UTC).timestamp()
    seen: list[pa.Table] = []
    with all_the_time(lambda: seen.append(platform.table(MARGIN))):
        platform.pipelines("plan", "--publish", seconds=600)
        eventually(lambda: _as_expected(platform, tmp_path / "after", changed=True), seconds=300, every=5)
        platform.quiet()
    hours = [hour for hour in own[MARGIN]["partitions"] if hour != late]
    states = _states(seen, set(hours))
    assert states == ["old", "new"], "readers saw a mixture"
    computed = computed_since(platform, "marts/margin_hourly", began)
    assert not computed & set(hours), "published, and built again"
    assert not json.loads(platform.pipelines("plan", "--json", "--select", "marts/margin_hourly").stdout)["assets"]
    report(
        "preview-live",
        {
            "what": "a week of marts/margin_hourly previewed and published while a pyiceberg reader polls",
            "planned partitions": planned,
            "previewed partitions": {name: len(each["partitions"]) for name, each in own.items()},
            "DuckDB's figures, equal to those shown": {name: diff["figures"] for name, diff in diffs.items()},
            "a load committed in between": late,
            "reads while it was published": len(seen),
            "states of the week that they saw": states,
            "published partitions computed again": len(computed & set(hours)),
            "other partitions computed": len(computed - set(hours)),
        },
    )


def _as_expected(platform: Platform, folder: Path, *, changed: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    before = expected_tables(download(platform.s3, "landing", folder)).tables[MARGIN]
    assert before.num_rows
    if changed:
        with duckdb.connect() as db:
            before = db.register("before", before).sql(CHANGED).to_arrow_table().cast(before.schema)
    assert_same(MARGIN, before, platform.table(MARGIN))


def _has_days(platform: Platform, count: int) -> None:
    assert platform.table(ROLLUP).num_rows == count


def _duckdbs(platform: Platform, name: str, branch: str, partitions: list[str]) -> dict[str, Any]:
    """The same figures by a full join in DuckDB, over what pyiceberg reads of both versions."""
    table = platform.catalog.load_table(name)
    refs = table.refs()
    key = KEYS[name]
    form = "%Y-%m-%d-%H:00" if key[0] == "hour" else "%Y-%m-%d"
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.register("chosen", pa.table({"partition": partitions}))
    for side, ref in (("b", "main"), ("a", branch)):
        db.register(f"rows_{side}", table.scan(snapshot_id=refs[ref].snapshot_id).to_arrow())
        of_chosen = f"strftime({key[0]}, '{form}') IN (SELECT partition FROM chosen)"
        db.execute(f"CREATE TABLE {side}_rows AS SELECT * FROM rows_{side} WHERE {of_chosen}")
    one, other = (db.sql(f"SELECT * FROM {side}_rows LIMIT 0") for side in "ba")
    assert one.columns == other.columns
    said = [column for column in one.columns if column not in (*key, "loaded_by")]
    decimals = [c for c, kind in zip(one.columns, one.types, strict=True) if str(kind).startswith("DECIMAL")]
    on = " AND ".join(f"b.{column} = a.{column}" for column in key)
    differ = {column: f"b.{column} IS DISTINCT FROM a.{column}" for column in said}
    both = f"b.{key[0]} IS NOT NULL AND a.{key[0]} IS NOT NULL"
    asked = [
        f"count(b.{key[0]})",
        f"count(a.{key[0]})",
        f"count(*) FILTER (b.{key[0]} IS NULL)",
        f"count(*) FILTER (a.{key[0]} IS NULL)",
        f"count(*) FILTER ({both} AND ({' OR '.join(differ.values())}))",
        *(f"count(*) FILTER ({both} AND {condition})" for condition in differ.values()),
        *(f"sum({side}.{column})::VARCHAR" for column in decimals for side in "ba"),
    ]
    found = db.execute(f"SELECT {', '.join(asked)} FROM b_rows b FULL JOIN a_rows a ON {on}").fetchone()
    assert found is not None
    names = ("rows_before", "rows_after", "added", "removed", "changed")
    sums = found[5 + len(said) :]
    return {
        "figures": dict(zip(names, found[:5], strict=True)),
        "columns": {c: n for c, n in zip(said, found[5 : 5 + len(said)], strict=True) if n},
        "totals": {c: tuple(sums[2 * n : 2 * n + 2]) for n, c in enumerate(decimals)},
    }


def _send_again(platform: Platform, hour: str) -> None:
    """One more file of that hour."""
    day, number = date.fromisoformat(hour[:10]), int(hour[11:13])
    platform.put(f"orders/dt={day}/hour={number:02}/late.csv", order_file(day, number, order_id=990_000_003))


def _is_built_again(platform: Platform, hour: str) -> None:
    built = [e for e in platform.ui.materializations("marts/margin_hourly") if e["partition"] == hour]
    assert len(built) > 1, "the late file is not in it yet"


def _states(seen: list[pa.Table], hours: set[str]) -> list[str]:
    """The versions of these hours that the reads saw, in their order: old, new, or a mixture."""
    found: list[str] = []
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.register("chosen", pa.table({"partition": sorted(hours)}))
    for read in seen:
        by_code = (
            db.register("read", read)
            .execute(
                """SELECT hour, bool_and(coalesce(margin_usd = revenue_usd - cost_usd, true)) AS old,
                bool_and(coalesce(margin_usd = revenue_usd - cost_usd * 2, true) AND revenue_usd > 20) AS new
            FROM read WHERE strftime(hour, '%Y-%m-%d-%H:00') IN (SELECT partition FROM chosen) GROUP BY hour"""
            )
            .fetchall()
        )
        assert len(by_code) == len(hours)
        state = "old" if all(old for _, old, _ in by_code) else "new" if all(n for *_, n in by_code) else "a mixture"
        if found[-1:] != [state]:
            found.append(state)
    return found
