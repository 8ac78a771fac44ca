"""From a sample file to a feed's module: the columns, types and key that are inferred, and that the module loads."""

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.scaffold.feed_module import OFFERED, feed_module
from dagster_tidemark.scaffold.python_text import NoModule
from dagster_tidemark.scaffold.sample import NoSample, Sample, read_sample
from dagster_tidemark.sources.feed import Grain
from tests.checkout import CHECKOUT

ROWS = [
    {
        "trip_id": 1,
        "bike": "a",
        "began": "2026-10-01T07:00:00Z",
        "day": "2026-10-01",
        "fare": 1.25,
        "km": 2,
        "ok": True,
    },
    {
        "trip_id": 2,
        "bike": "a",
        "began": "2026-10-01T08:00:00Z",
        "day": "2026-10-01",
        "fare": 3,
        "km": 1e-9,
        "ok": False,
    },
    {"trip_id": 3, "bike": "b", "began": None, "day": "2026-10-02", "fare": 2.5, "km": 0.5, "ok": True},
]
TYPES = {
    "trip_id": "bigint",
    "bike": "string",
    "began": "timestamp",
    "day": "date",
    "fare": "decimal(18,4)",
    "km": "double",
    "ok": "boolean",
}


def as_csv() -> bytes:
    lines = [",".join("" if v is None else str(v) for v in row.values()) for row in ROWS]
    return "\n".join([",".join(ROWS[0]), *lines, ""]).encode()


def as_parquet() -> bytes:
    rows = [
        {
            **row,
            "began": row["began"] and datetime.fromisoformat(str(row["began"])),
            "day": date.fromisoformat(str(row["day"])),
            "fare": Decimal(str(row["fare"])),
        }
        for row in ROWS
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("trips.csv", as_csv().replace(b"True", b"true").replace(b"False", b"false")),
        ("trips.csv.gz", gzip.compress(as_csv().replace(b"True", b"true").replace(b"False", b"false"))),
        ("trips.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS).encode()),
        ("trips.json", json.dumps(ROWS, indent=1).encode()),
        ("trips.json", "\n".join(json.dumps(row, indent=1) for row in ROWS).encode()),
        ("trips.parquet", as_parquet()),
    ],
)
def test_columns_types_and_key_are_inferred_from_a_sample(tmp_path: Path, name: str, body: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(body)
    seen = read_sample(path)
    assert dict(seen.columns) == TYPES
    assert (seen.key, seen.rows, seen.suffix) == (("trip_id",), 3, name.removeprefix("trips"))


def test_key_of_two_columns_is_inferred_and_columns_with_nulls_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("order_id,line_number,remark\n1,1,a\n1,2,\n2,1,b\n")
    assert read_sample(path).key == ("order_id", "line_number")


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.xlsx", b"x", "it holds no row"),
        ("a.xlsx", b"PK\x03\x04", "a spreadsheet"),
        ("a.csv.xz", b"\xfd7zXZ\x00", "ends in .xz and is xz: .* convert it to CSV, JSON or Parquet"),
        ("noending", b"x", "a sample ends in"),
        ("a.csv", b"", "a.csv"),
        ("a.csv", b"x,y\n", "it holds no row"),
        ("a.jsonl", b"[1, 2]", "no line of it is a JSON object"),
        ("a.json", b'[\n{"a": 1},\n{"a": 2}', "does not end"),
        ("a.jsonl", b'[\n{"a": 1}\n]', "call it .json"),
        ("a.json.gz", b"not gzip", "a.json.gz"),
        ("a.parquet", b"PAR1", "a.parquet"),
    ],
)
def test_unusable_sample_is_refused_with_the_reason(tmp_path: Path, name: str, body: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(body)
    with pytest.raises(NoSample, match=said):
        read_sample(path)


@pytest.mark.parametrize(
    ("body", "separator", "types"),
    [
        (b'h 2026-10-05T08:12:00Z 0.5 "GET /a b"\nh 2026-10-05T08:13:00Z 1.5 "-"\n', " ",
         ["string", "timestamp", "decimal(18,4)", "string"]),
        (b"alpha|beta\ngamma|delta\n", "", ["string", "string"]),
        (b"region,2023\n1,2\n", "", ["string", "bigint"]),
        (b"alpha\nbeta\n", "", ["string"]),
    ],
)  # fmt: skip
def test_sample_said_to_have_no_header_gets_numbered_columns(
    tmp_path: Path, body: bytes, separator: str, types: list[str]
) -> None:
    (tmp_path / "a.log").write_bytes(body)
    options = {"header": False, **({"separator": separator} if separator else {})}
    sample = read_sample(tmp_path / "a.log", options=options)
    assert sample.columns == {f"column_{n}": kind for n, kind in enumerate(types, 1)}
    assert (sample.rows, sample.left_out) == (2, [])


@pytest.mark.parametrize(
    ("third", "form"), [("13/02/2026", "dd/MM/yyyy"), ("02/13/2026", "MM/dd/yyyy"), ("05/06/2026", "")]
)
def test_days_that_two_patterns_fit_stay_text_and_the_command_asks(tmp_path: Path, third: str, form: str) -> None:
    (tmp_path / "a.csv").write_text(f"id,booked\n1,01/02/2026\n2,03/04/2026\n3,{third}\n")
    sample = read_sample(tmp_path / "a.csv")
    assert sample.columns["booked"] == ("date" if form else "string")
    said = f"times of booked: {form}" if form else "booked stays text: dd/MM/yyyy and MM/dd/yyyy both fit '01/02/2026'"
    assert said in "\n".join(sample.form)


def is_tidy(texts: Iterable[str], folder: Path) -> None:
    """See modules pass `make check` as they were written."""
    for number, text in enumerate(texts):
        (folder / f"module_{number}.py").write_text(text)
    rules = ["--config", str(CHECKOUT / "pipelines" / "ruff.toml")]
    for command in (["check"], ["format", "--diff"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *rules, str(folder)],
            cwd=folder,  # what lies beside it would count as the project's own
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("grain", OFFERED)
@pytest.mark.parametrize("wide", [False, True])
def test_new_feed_module_passes_ruff_unchanged(grain: Grain, wide: bool, tmp_path: Path) -> None:
    columns = {f"column_with_a_name_that_is_long_{n}" if wide else f"c{n}": "bigint" for n in range(6)}
    for key in ((), tuple(columns)[:1], tuple(columns)):
        text = feed_module("trips", grain, Sample(".json", columns, key, 3), package="pipelines")
        is_tidy([text], tmp_path)


@pytest.mark.parametrize("name", ["day", "Day"])
def test_feed_column_named_like_the_partition_keeps_its_name_and_loads(name: str) -> None:
    sample = Sample(".csv", {"meter_id": "bigint", name: "date"}, ("meter_id",), 3)
    module = SimpleNamespace()
    exec(feed_module("meters", Grain.DAY, sample, package="pipelines"), vars(module))
    assert list(module.TABLE.columns)[:3] == ["file_day", "meter_id", name]
    assert module.TABLE.row_key == ("file_day", "meter_id")
    assert Load(module.FEED, module.TABLE, lambda rows: rows, "1").asset == "core/meters"


@pytest.mark.parametrize("grain", OFFERED)
def test_new_feed_module_loads_unchanged(grain: Grain) -> None:
    sample = Sample(".csv", {k: v for k, v in TYPES.items() if k != "day"}, ("trip_id",), 3)
    text = feed_module("trips", grain, sample, package="pipelines")
    module = SimpleNamespace()
    exec(compile(text, "trips.py", "exec"), vars(module))
    raw, core = module.ASSETS
    assert (raw.key.path, core.key.path) == (["raw", "trips"], ["core", "trips"])
    assert core.descriptions_by_key[core.key].startswith("One row is a record of trips, from trips/")
    assert str(module.__doc__).startswith(
        "Trips: the object trips/latest.csv" if grain is Grain.NONE else "Trips: the files below"
    )
    assert module.FEED.columns == dict(sample.columns) and module.FEED.required == ("trip_id",)
    by = () if grain is Grain.NONE else (str(grain),)
    assert module.TABLE.row_key == (*by, "trip_id") and module.TABLE.columns.keys() >= {*by, *sample.columns}
    assert {key.name for key in core.check_keys} == {"quarantine", "removals", "accounting"}


def test_invalid_feed_name_and_unknown_key_column_are_refused() -> None:
    sample = Sample(".csv", {"a": "bigint"}, (), 1)
    with pytest.raises(NoModule, match="a-z, 0-9 and _"):
        feed_module("My Trips", Grain.DAY, sample, package="pipelines")
    with pytest.raises(NoModule, match="has no column b; it has a"):
        feed_module("trips", Grain.DAY, sample, key=("b",), package="pipelines")
    assert "name them here" in feed_module("trips", Grain.DAY, sample, package="pipelines")
