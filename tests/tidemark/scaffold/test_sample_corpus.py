"""From many samples to a feed and to rows: each row of a sample lands to the letter, or is named."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from dagster_tidemark.cli.app import app
from dagster_tidemark.lakehouse.loading.judged_rows import judge_rows
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.validation import deduplicate
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.lakehouse.readers.batch import reading_of
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.lakehouse.readers.probe import inspect
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import *  # noqa: F403
from tests.tidemark.lakehouse.conftest import Loading, Put, renamed
from tests.tidemark.lakehouse.test_inspection import Store
from tests.tidemark.scaffold.sample_corpus import LATER, REFUSED, TAKEN, Refused, Taken, as_csv, as_parquet, column

DAY = "2026-10-01"
READ_LIKE_OTHERS = (
    "meters keep their zero",
    "19 digits are kept",
    "40 digits are a text",
    "a plus sign is kept",
    "much money is exact",
    "a number that no double holds is no double",
    "places beyond a decimal's usual ones",
    "a code with an exponent in it",
    "chess squares are no exponents",
    "a day that is not there",
    "days of other forms",
    "times with nanoseconds are kept as text",
    "a time that is not there",
    "other truth values",
    "numbers among texts",
    "a version is no number",
    "an id with a point is a text",
    "a postal code without zeros in the sample",
    "account numbers of one length may begin with a zero",
    "postcodes",
    "five trips have five durations",
    "two trips last as long",
    "the feed's own id",
    "two ids, and either may be it",
    "uuid",
    "an id that is there twice",
    "latin-1",
    "UTF-16",
    "comments above the header",
    "no header, and names by hand",
    "days that may be either are texts",
    "an ending in capitals",
    "JSON texts of digits stay texts",
    "Parquet's doubles that are whole",
    "a total below numbers",
    "apostrophes of typesetters between groups",
    "points beside decimal commas may be either",
    "a line above the header that begins like it",
    "a line with separators that begins like the header",
    "a header with years, by hand",
    "points between semicolons may be either",
    "points between semicolons, by hand",
    "carets",
    "JSON lines of another ending",
)
"""Samples that differ from another one in what is declared. Spark reads them like the other one: a proof."""
LOADED = [case for case in TAKEN if case.name not in READ_LIKE_OTHERS]


@pytest.fixture
def new_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Taken | Refused], tuple[Result, Path]]:
    """The command for a case, in an empty checkout; and the module that it may have written."""
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "pipelines")
    monkeypatch.setenv("TIDEMARK_PROJECT", str(tmp_path))

    def _new(case: Taken | Refused) -> tuple[Result, Path]:
        sample = tmp_path / case.file
        sample.write_bytes(case.body)
        said = CliRunner().invoke(app, ["new", "feed", "trips", "--sample", str(sample), *case.options])
        return said, tmp_path / "pipelines" / "feeds" / "trips.py"

    return _new


@pytest.mark.parametrize("case", REFUSED, ids=[case.name for case in REFUSED])
def test_new_feed_refuses_an_unusable_sample_in_one_line_and_writes_nothing(
    case: Refused, new_feed: Callable[[Refused], tuple[Result, Path]]
) -> None:
    said, module = new_feed(case)
    assert (said.exit_code, module.exists()) == (2, False), said.output
    (line,) = said.output.splitlines()
    assert case.said in line and line.startswith("tidemark: ")


@pytest.mark.parametrize(
    "keys", ["a,b,a,a", "1.10,2,1.1,1.1000", "2026-10-01T07:00Z,2026-10-02,2026-10-01T09:00+02:00,2026-10-01 07:00"]
)
def test_new_feed_counts_sample_rows_that_repeat_a_given_key(
    keys: str, new_feed: Callable[[Taken], tuple[Result, Path]]
) -> None:
    body = "".join(["bike,fare\n", *(f"{key},{n}\n" for n, key in enumerate(keys.split(",")))]).encode()
    said, _ = new_feed(Taken("", "a.csv", body, (), options=("--key", "bike")))
    assert said.exit_code == 0
    assert "row key: bike; 2 rows of the sample repeat the key of an earlier row and replace it" in said.output


@pytest.mark.parametrize("case", sample(TAKEN, *LOADED), ids=[case.name for case in TAKEN])
def test_every_row_of_a_sample_is_loaded_exactly_or_reported(
    case: Taken, new_feed: Callable[[Taken], tuple[Result, Path]], spark: SparkSession
) -> None:
    load = declared_by(case, new_feed)
    assert_equal(rows_of(spark, load, case), case, load)


@pytest.mark.parametrize("name", READ_LIKE_OTHERS)
def test_types_and_key_of_a_sample_are_declared(name: str, new_feed: Callable[[Taken], tuple[Result, Path]]) -> None:
    (case,) = (case for case in TAKEN if case.name == name)
    load = declared_by(case, new_feed)
    assert load.feed.columns.keys() == case.rows[0].keys()


def declared_by(case: Taken, new_feed: Callable[[Taken], tuple[Result, Path]]) -> Load:
    """Return the load that the command declares for a sample. Check its types, its key, and what the command says."""
    said, module = new_feed(case)
    assert said.exit_code == 0, said.output
    load = loaded_by(module)
    for name, kind in case.types.items():
        assert load.feed.columns[name] == kind
    if case.key:
        assert load.table.row_key[1:] == case.key and load.feed.required == case.key
        assert "guessed: " in said.output and "# Guessed: " in module.read_text()
    elif "--no-key" in case.options:
        assert load.table.row_key[1:] == ("source_file", "source_row") and not load.feed.required
    told = sum(int(n) for n in re.findall(r": (\d+) of \d+ rows left out \(row", said.output))
    assert told == case.named
    return load


@pytest.mark.parametrize(("sample", "kept", "named"), [case[1:] for case in LATER], ids=[case[0] for case in LATER])
def test_later_file_loads_matching_values_exactly_and_rejects_the_others(
    sample: list[str],
    kept: list[str],
    named: list[str],
    new_feed: Callable[[Taken], tuple[Result, Path]],
    spark: SparkSession,
) -> None:
    load = loaded_by(new_feed(Taken("", "a.csv", as_csv(column("value", *sample)), ()))[1])
    later = Taken("", "a.csv", as_csv(column("value", *kept, *named)), column("value", *kept))
    assert_equal(rows_of(spark, load, later), later, load)


def test_exact_feed_rejects_keys_that_differ_from_another_only_in_notation(
    new_feed: Callable[[Taken], tuple[Result, Path]], spark: SparkSession
) -> None:
    load = loaded_by(new_feed(Taken("", "a.csv", b"id,n\n1,a\n2,b\n", (), options=()))[1])
    case = Taken("", "a.csv", b"id,n\n1,a\n01,b\n001,c\n+1,d\n7,e\n", ())
    assert sorted(row["n"] for row in rows_of(spark, load, case)) == ["a", "e"]
    by_number = dataclasses.replace(load, feed=dataclasses.replace(load.feed, exact=False))
    assert len(rows_of(spark, by_number, case)) == 2, "a feed that is not exact says that 01 is 1"


def test_exact_feed_rejects_later_times_with_nanoseconds_in_parquet(
    new_feed: Callable[[Taken], tuple[Result, Path]], spark: SparkSession
) -> None:
    def of(*nanoseconds: int) -> bytes:
        return as_parquet({"trip_id": list(range(len(nanoseconds))), "at": pa.array(nanoseconds, pa.timestamp("ns"))})

    load = loaded_by(new_feed(Taken("", "a.parquet", of(1_000), ()))[1])
    assert load.feed.columns["at"] == "timestamp"
    later = Taken("", "a.parquet", of(2_000, 2_001, -1, -1_000), ())
    assert sorted(row["trip_id"] for row in rows_of(spark, load, later)) == [0, 3]


@pytest.mark.parametrize(
    ("file", "body", "options", "said"),
    [
        ("a.csv", "what\nZürich\nBern\n".encode(), ("--encoding", "latin-1"), "is --encoding right?"),
        ("a.csv", b"# by hand, 2026\na,b\n", (), "'# by hand', '2026' look like others"),
        ("a.csv", b"a,b\n1,2\na,b\n", (), "row 2 repeats the names"),
        ("a.csv", b"a,b\n1,2\n\xef\xbb\xbfa,b\n", (), "row 2 begins with a byte order mark"),
        ("a.csv", b"a,b\n1,2\n,\n", (), "row 2 has no value"),
        ("a.csv", b"shop,n\na,1\nTotal,1\n", (), "the last row looks like a total of the others"),
        ("a.csv", b"w;p;q\na;1.234;1,50\n", (), "p stays text: '1.234' has a group of digits or decimal places"),
        ("a.json", b'{"a": [{"n": 1}, {"n": 2}], "b": [{"n": 3}, {"n": 4}]}', (), "give --rows a or --rows b"),
        ("a.json", b'{"n": [1, 2], "m": [3, 4]}', (), "it is one row of arrays"),
        ("a.parquet", as_parquet({"at": pa.array([1], pa.timestamp("ns"))}), (), "have nanoseconds"),
    ],
)
def test_new_feed_prints_warnings_about_a_doubtful_sample(
    file: str, body: bytes, options: tuple[str, ...], said: str, new_feed: Callable[[Taken], tuple[Result, Path]]
) -> None:
    assert said in new_feed(Taken("", file, body, (), options=("--no-key", *options)))[0].output


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.proof)], ids=["in memory", "by Spark"])
@pytest.mark.parametrize(
    "name",
    [
        "two trips last as long",
        "JSON numbers of 20 digits",
        "Parquet's decimals and times",
        "a record over two lines is found",
    ],
)
def test_sample_loads_into_a_table_in_memory_and_by_spark(
    name: str,
    small: bool,
    new_feed: Callable[[Taken], tuple[Result, Path]],
    spark: SparkSession,
    put: Put,
    loading: Loading,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (case,) = (case for case in TAKEN if case.name == name)
    load = renamed(loaded_by(new_feed(case)[1]))
    monkeypatch.setattr(small_files, "SMALL", small_files.SMALL if small else 0)
    put(load.feed.prefix_of(DAY) + case.file, case.body)
    for _ in range(2):  # the second time nothing is new
        done = loading(load, DAY)
        assert_equal([row.asDict() for row in spark.table(load.table.identifier).collect()], case, load)
    assert not any(account.unaccounted for account in done.accounts)
    put(load.feed.prefix_of(DAY) + f"again-{case.file}", case.body)
    loading(load, DAY)
    assert spark.table(load.table.identifier).count() == 2 * len(case.rows), (
        "without a key a file that lands twice is there twice"
    )


def loaded_by(module: Path) -> Load:
    """Return the load that a written module declares."""
    found = SimpleNamespace()
    exec(compile(module.read_text(), str(module), "exec"), vars(found))
    return Load(found.FEED, found.TABLE, lambda rows: rows, "1")


def rows_of(spark: SparkSession, load: Load, case: Taken) -> list[dict[str, Any]]:
    """Return the rows that a load of the sample would write."""
    key = load.feed.prefix_of(DAY) + case.file
    file = SourceFile(key, "v", datetime(2026, 10, 1, tzinfo=UTC), DAY, len(case.body))
    store = Store({key: case.body})
    inspected = inspect(store, load.feed, [file])
    assert not inspected.faults
    reading = reading_of(
        spark,
        store,
        load.feed,
        inspected,
        code_version="1",
        partition_values=load.table.partition_values_sql("_partition"),
        numbered=load.numbers_rows,
    )
    _, judged = judge_rows(load, reading)
    good = deduplicate(judged.good, load.table, load.transform)
    return [row.asDict() for row in good.select(*load.table.columns).collect()]


def assert_equal(landed: list[dict[str, Any]], case: Taken, load: Load) -> None:
    expected = Counter(tuple(meaning(row.get(c), load.feed.columns[c]) for c in load.feed.columns) for row in case.rows)
    assert Counter(tuple(value(row[c]) for c in load.feed.columns) for row in landed) == expected


def value(of: Any) -> Any:
    """Return a value of a table in a form that can be compared."""
    return of.replace(tzinfo=UTC) if isinstance(of, datetime) else of


def meaning(seen: Any, kind: str) -> Any:
    """Return the value that a text, or a Python value, means to a reader in a column of a type."""
    if seen is None:
        return None
    if kind == "string":
        return str(seen)
    text = str(seen).lower() if isinstance(seen, bool) else str(seen)
    if kind == "boolean":
        return {"true": True, "false": False}[text]
    if kind == "double":
        assert Decimal(repr(float(text))) == Decimal(text), "no digit is lost"
        return float(text)
    if kind == "date":
        return date.fromisoformat(text)
    if kind == "timestamp":
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(text) if kind == "bigint" else Decimal(text)
