"""A format of a user's own: the module that docs/feeds.md shows, registered here only, loads small and large files."""

import hashlib
import io
import re
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from openpyxl import Workbook
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from dagster_tidemark import LINEAGE, Table
from dagster_tidemark.cli.app import app
from dagster_tidemark.formats import DeclaredContent, FileFormat, Shape, Unusable, register_format, rows_of_table
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.parsing.rows import WHOLE
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers import format_registry as registered
from dagster_tidemark.lakehouse.readers import probe, small_files
from dagster_tidemark.lakehouse.readers.csv_text import CSV
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.lakehouse.readers.json_text import JSON
from dagster_tidemark.scaffold.sample import NoSample, read_sample
from dagster_tidemark.sources import file_endings
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.listing import BucketUnavailable, ObjectVersion
from tests.checkout import CHECKOUT
from tests.tidemark.lakehouse.conftest import Loading, Put, quarantined, renamed, rows
from tests.tidemark.lakehouse.parsing.declared import rows_of
from tests.tidemark.lakehouse.test_verdict import Holding, Refused, damage

COLUMNS = {"trip_id": "bigint", "rider": "string", "fare": "decimal(18,4)", "km": "string", "began_at": "timestamp"}
TRIPS = Load(
    Feed("trips", "trips/", Grain.DAY, COLUMNS, required=("trip_id",)),
    Table("core.trips", {"day": "date"} | COLUMNS | LINEAGE, ("day", "trip_id"), partitioned_by="day"),
    lambda landed: landed,
    code_version="1",
)
DAY = "2026-10-01"
BEGAN = datetime(2026, 10, 1, 7, 30, 0, 250_000)


@pytest.fixture
def own_format(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the page, imported as a user's would be; afterwards nobody knows of Excel."""
    monkeypatch.setattr(file_endings, "_NAMES", dict(file_endings._NAMES))
    monkeypatch.setattr(registered, "_REGISTERED", dict(registered._REGISTERED))
    return imported("Excel")


def imported(begin: str) -> ModuleType:
    """Return the module of the page whose docstring begins so."""
    (snippet,) = re.findall(rf'```python\n("""{begin}.*?)```', (CHECKOUT / "docs" / "feeds.md").read_text(), re.S)
    module = ModuleType("own_format")
    exec(compile(snippet, "docs/feeds.md", "exec"), vars(module))
    return module


@pytest.mark.usefixtures("own_format")
def test_typed_columns_of_a_custom_format_are_read_and_its_damage_is_reported() -> None:
    imported("Arrow files")
    sink = io.BytesIO()
    table = pa.table({"n": [1, 2], "at": pa.array([BEGAN, None], pa.timestamp("us")), "tags": [["a"], None]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    columns = {"n": "bigint", "at": "timestamp", "tags": "string"}
    found = rows_of(sink.getvalue(), columns, key="a.FEATHER")
    assert [row[:3] for row in found] == [(1, BEGAN.replace(tzinfo=UTC), '["a"]'), (2, None, None)]
    with pytest.raises(Unusable, match="not a valid Arrow file, or damaged"):
        rows_of(sink.getvalue()[:-20], columns, key="a.arrow")


def as_excel(first: int, count: int) -> bytes:
    ids = range(first, first + count)
    found = {
        "trip_id": list(ids),
        # Different texts, so that a large file is large.
        "rider": [None if n % 7 == 0 else f"Zoë {hashlib.sha512(str(n).encode()).hexdigest()}" for n in ids],
        "fare": [n / 8 for n in ids],
        "km": [1e-9 * n for n in ids],
        "began_at": [BEGAN] * count,
        "not declared": ["x"] * count,
    }
    return as_excel_of(found)


def as_excel_of(columns: dict[str, list[Any]]) -> bytes:
    book = Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(list(columns))
    for row in zip(*columns.values(), strict=True):
        sheet.append(row)
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def with_cached(body: bytes, value: str) -> bytes:
    """Return a workbook with this value for each formula, as Excel stores it."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as packed, zipfile.ZipFile(sink, "w") as found:
        for name in packed.namelist():
            text = packed.read(name)
            found.writestr(name, re.sub(rb"</f><v ?/?>(</v>)?", f"</f><v>{value}</v>".encode(), text))
    return sink.getvalue()


def test_excel_cells_are_loaded_with_the_values_that_excel_shows(own_format: ModuleType) -> None:
    body = as_excel_of(
        {
            "id": [1, None, 2, 3],
            "sum": ["=1+1", None, "#DIV/0!", 1.5],
            "day": [datetime(2026, 1, 2), None, None, None],
            "at": [None, None, None, datetime(2026, 1, 2, 13, 5)],
            "open": [True, None, False, None],
            "note": ["a, b", None, "", "001"],
        }
    )
    columns = {"id": "bigint", "sum": "double", "day": "date", "at": "timestamp", "open": "boolean", "note": "string"}
    found = rows_of(with_cached(body, "2"), columns, key="a.XLSX")
    assert [row[:6] for row in found] == [
        (1, 2.0, date(2026, 1, 2), None, True, "a, b"),
        (2, None, None, None, False, None),
        (3, 1.5, None, datetime(2026, 1, 2, 13, 5, tzinfo=UTC), None, "001"),
    ]
    assert found[1][-1] == ["2", "#DIV/0!", None, None, "false", None], "the exact rule rejects it as bad_type"
    with_no_values = rows_of(body, columns, key="a.xlsx")
    assert with_no_values[0][1] is None, "openpyxl computes no formulas"


def test_small_and_large_files_of_a_custom_format_are_loaded(
    spark: SparkSession, put: Put, loading: Loading, own_format: ModuleType
) -> None:
    load, count = renamed(TRIPS), 15_000
    small, large = as_excel(1, 50), as_excel(51, count)
    assert len(small) < small_files.SMALL < len(large)
    put(load.feed.prefix_of(DAY) + "small.xlsx", small)
    put(load.feed.prefix_of(DAY) + "large.xlsx", large)
    put(load.feed.prefix_of(DAY) + "a.csv", "trip_id,rider,fare,km,began_at\n0,Ada,1.5,2,2026-10-01T07:00:00Z\n")
    put(load.feed.prefix_of(DAY) + "bad.xlsx", small[: len(small) // 2])
    put(load.feed.prefix_of(DAY) + "lacking.xlsx", as_excel_of({"rider": ["x"]}))
    loading(load, DAY)
    assert quarantined(spark, load) == [("bad.xlsx", 0, "unreadable"), ("lacking.xlsx", 0, "missing_column")]
    table = spark.table(load.table.identifier)
    assert table.count() == 1 + 50 + count
    assert table.where("began_at = timestamp'2026-10-01 07:30:00.25'").count() == 50 + count
    named = table.groupBy(F.substring_index("source_file", "/", -1)).agg(F.count("trip_id"), F.count("rider")).collect()
    riders = [sum(n % 7 != 0 for n in ids) for ids in (range(1, 51), range(51, 51 + count))]
    assert {n: found for n, *found in named} == {
        "a.csv": [1, 1],
        "small.xlsx": [50, riders[0]],
        "large.xlsx": [count, riders[1]],
    }


def test_custom_format_gives_the_same_values_in_small_and_large_files(
    spark: SparkSession, put: Put, loading: Loading, own_format: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for size in (small_files.SMALL, 0):
        monkeypatch.setattr(small_files, "SMALL", size)
        load = renamed(TRIPS)
        put(load.feed.prefix_of(DAY) + "a.xlsx", as_excel(1, 20))
        loading(load, DAY)
        found.append(rows(spark, load))
    assert found[0] == found[1] and len(found[0]) == 20


def test_custom_format_of_the_docs_parses_a_row_and_reports_its_fault() -> None:
    (snippet,) = re.findall(
        r"```python\n(from collections.abc import Iterator\n\nimport pyarrow.*?def pairs.*?)```",
        (CHECKOUT / "docs" / "feeds.md").read_text(),
        re.S,
    )
    shown: dict[str, Any] = {}
    exec(compile(snippet, "docs/feeds.md", "exec"), shown)
    declared, shape = DeclaredContent({"a": "bigint", "b": "string"}), Shape("pairs")
    (found,) = shown["rows_of"](declared, shape, MemoryFile("x.pairs", b"b=x\na=1\nc=2\n"), WHOLE)
    assert (found.count, {c: column.to_pylist() for c, column in found.columns.items()}) == (
        1,
        {"a": ["1"], "b": ["x"]},
    )
    with pytest.raises(Unusable, match="a line without =: words") as raised:
        list(shown["rows_of"](declared, shape, MemoryFile("x.pairs", b"words"), WHOLE))
    assert raised.value.reason == "no_pair"


def test_rows_without_declared_columns_are_counted_by_a_custom_format() -> None:
    found = rows_of_table(DeclaredContent(COLUMNS), pa.table({"other": [1, 2, 3]}))
    assert found.count == 3
    assert {name: column.null_count for name, column in found.columns.items()} == dict.fromkeys(COLUMNS, 3)


@pytest.mark.usefixtures("own_format")
@pytest.mark.parametrize(
    ("begin", "end", "said"), [(0, 0, None), (500, 2_500, "damaged"), (-40, -1, "not an Excel workbook")]
)
def test_damage_in_a_file_of_a_custom_format_is_detected(begin: int, end: int, said: str | None) -> None:
    body = bytearray(as_excel(1, 5_000))
    body[begin:end] = b"\xff" * len(body[begin:end])
    found = damage("a.xlsx", Holding(bytes(body)), COLUMNS)
    assert found is None if said is None else found and said in found


class Refusing:
    """The landing bucket with one object, which is refused from some byte on."""

    name = "landing"

    def __init__(self, body: bytes, refused_from: int) -> None:
        self._body, self._refused_from = body, refused_from

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        if begin + length > self._refused_from:
            raise BucketUnavailable("ExpiredToken")
        return self._body[begin : begin + length]

    def read(self, of: ObjectVersion) -> bytes:
        raise NotImplementedError

    def check(self, of: ObjectVersion) -> None:
        raise NotImplementedError


@pytest.mark.usefixtures("own_format")
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_unavailable_bytes_of_a_custom_format_are_not_reported_as_damage(share: float) -> None:
    """Though the library that reads them calls it a fault of the file."""
    body = as_excel(1, 5_000)
    refused_from = int(len(body) * share)
    with pytest.raises(Refused):
        damage("a.xlsx", Holding(body, refused_from), COLUMNS)
    large = SourceFile("a.xlsx", "v", datetime(2026, 10, 1, tzinfo=UTC), DAY, small_files.SMALL + len(body))
    with pytest.raises(BucketUnavailable):
        probe.inspect(Refusing(body, refused_from), TRIPS.feed, [large])


def test_sample_may_be_in_a_custom_format(tmp_path: Path, own_format: ModuleType) -> None:
    path = tmp_path / "trips.xlsx"
    path.write_bytes(as_excel(1, 30))
    seen = read_sample(path)
    assert (seen.suffix, seen.key, seen.columns["fare"]) == (".xlsx", ("trip_id",), "decimal(18,4)")


def with_feeds(monkeypatch: pytest.MonkeyPatch, register: Callable[[], Any]) -> None:
    """Have a code location without feeds, whose package of feeds registers a format when it is first read."""
    left = [register]

    def feeds(_: Any) -> list[Feed]:
        while left:
            left.pop()()
        return []

    monkeypatch.setattr("dagster_tidemark.location.feeds", feeds)


def test_feed_is_scaffolded_from_a_sample_in_a_format_the_project_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    with_feeds(monkeypatch, lambda: request.getfixturevalue("own_format"))
    monkeypatch.setenv("TIDEMARK_PROJECT", str(tmp_path))
    path = tmp_path / "trips.xlsx"
    path.write_bytes(as_excel(1, 30))
    said = CliRunner().invoke(app, ["new", "feed", "trips", "--sample", str(path)])
    assert said.exit_code == 0 and "6 columns from 30 rows" in said.output, said.output


def test_sample_with_two_suffixes_is_read_by_the_longest_registered_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_format: ModuleType
) -> None:
    own = a_format(
        endings=(".own.csv",),
        shape=CSV.shape,
        rows_of=CSV.rows_of,
        sample=lambda body, limit: [{"own": 1}],
        is_text=True,
    )
    with_feeds(monkeypatch, lambda: register_format(own))
    monkeypatch.setenv("TIDEMARK_PROJECT", str(tmp_path))
    path = tmp_path / "trips.own.csv"
    path.write_text("own\n1\n")
    said = CliRunner().invoke(app, ["new", "feed", "trips", "--sample", str(path), "--key", "own"])
    assert said.exit_code == 0 and "1 columns from 1 rows" in said.output, said.output


def test_feed_accepts_formats_registered_after_its_declaration(own_format: ModuleType) -> None:
    assert TRIPS.feed.is_named_like_data("a.xlsx")
    assert not Feed("x", "x.csv", Grain.NONE, {}, suffixes=(".csv",)).is_named_like_data("a.xlsx")


def test_file_of_an_unregistered_format_is_no_data_and_no_sample(tmp_path: Path) -> None:
    assert not TRIPS.feed.is_named_like_data("a.xlsx")
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04\x01")
    with pytest.raises(NoSample, match=r"it ends in \.xlsx and is a ZIP archive \(or a spreadsheet\)"):
        read_sample(tmp_path / "a.xlsx")


def a_format(**changed: Any) -> FileFormat[Shape]:
    operations = {name: getattr(JSON, name) for name in ("shape", "rows_of")}
    return FileFormat(**({"name": "own", "endings": (".own",)} | operations | changed))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"endings": (".own", ".csv.gz")}, "format own: the ending .csv.gz already belongs to format csv"),
        ({"endings": (".own", ".own")}, "format own: the ending .own is listed twice"),
        ({"endings": ("own",)}, "format own: expected an ending such as '.own', found 'own'"),
        ({"endings": ".own"}, "format own: expected a tuple of endings"),
        ({"endings": ()}, "format own: expected a tuple of endings"),
        ({"name": "json"}, "format json: there is a format of this name already"),
    ],
)
def test_format_with_an_invalid_or_taken_suffix_or_name_is_refused(
    own_format: ModuleType, changed: dict[str, Any], said: str
) -> None:
    known = file_endings.every_ending()
    with pytest.raises(ValueError, match=re.escape(said)):
        register_format(a_format(**changed))
    assert file_endings.every_ending() == known, "nothing of it was registered"


def test_format_without_a_required_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="format own: it lacks shape, rows_of"):
        FileFormat(name="own", endings=(".own",))
    with pytest.raises(ValueError, match="format without a name: it lacks name"):
        FileFormat(endings=(".own",))


def test_format_is_chosen_by_the_longest_known_suffix(own_format: ModuleType) -> None:
    register_format(a_format(endings=(".v2.xlsx",)))
    assert (file_endings.format_of("a.v2.xlsx"), file_endings.format_of("a.xlsx")) == ("own", "excel")
