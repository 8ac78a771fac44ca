"""Spark's workers are sent all code that they run: the project's, and that of a format of a user's own package."""

import gzip
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, Table, shipped
from dagster_tidemark.lakehouse.loading.judged_rows import judge_rows
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.parsing.part_of_file import PartOfFile
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent
from dagster_tidemark.lakehouse.parsing.sources import BucketAddress
from dagster_tidemark.lakehouse.parsing.spark_tasks import Scan
from dagster_tidemark.lakehouse.readers import format_registry, probe, small_files
from dagster_tidemark.lakehouse.readers.batch import reading_of
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.settings import LOCAL_KEY, Settings
from dagster_tidemark.sources import file_endings
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.conftest import Put, renamed

COLUMNS = {"a": "bigint", "b": "string"}
NUMBERS = Load(
    Feed("numbers", "numbers/", Grain.DAY, COLUMNS, required=("a",), rules={"too_large": "a < 100"}),
    Table("core.numbers", {"day": "date"} | COLUMNS | LINEAGE, ("day", "a"), partitioned_by="day"),
    lambda landed: landed,
    code_version="1",
)
DAY = "2026-10-01"

PACKAGE = {
    "acme/__init__.py": "",
    "acme/words.py": "def pair(word):\n    name, _, value = word.partition('=')\n    return name, value\n",
    "acme/feeds/__init__.py": "",
    "acme/feeds/pairs.py": """
import pyarrow as pa

from acme import words
from acme.words import pair
from dagster_tidemark.formats import FileFormat, Rows, Shape, register_format


def shape(feed, source):
    return Shape("pairs")


def rows_of(declared, shape, source, part):
    lines = source.read(0, source.size).decode().splitlines()
    found = [dict(map(pair, line.split(";"))) for line in lines]
    columns = {c: pa.array([row.get(c) for row in found], pa.string()) for c in declared.columns}
    yield Rows(columns, len(lines), pa.array(lines))


def texts_of(declared, shape, record):
    row = dict(map(words.pair, record.split(";")))
    return [row.get(c) for c in declared.columns]


PAIRS = FileFormat(
    name="pairs", endings=(".pairs",), shape=shape, rows_of=rows_of, texts_of=texts_of, has_header=False
)
register_format(PAIRS)
""",
}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A user's package with a format. This process imports it; no worker can."""
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(file_endings, "_NAMES", dict(file_endings._NAMES))
    monkeypatch.setattr(format_registry, "_REGISTERED", dict(format_registry._REGISTERED))
    yield importlib.import_module("acme.feeds.pairs")
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def parquet() -> bytes:
    sink = io.BytesIO()
    # A zone, half of a row group that is odd, and a column of another type.
    pq.write_table(pa.table({"a": [1.0, 2.5], "b": pa.array([0, 1], pa.timestamp("ns", "Europe/Berlin"))}), sink)
    return sink.getvalue()


BODIES = {
    "a.csv": b'a,b\n1,x\n2,"y"\nmany,z\n3,a "b" c\n4\n5,\xff\n',
    "b.csv.gz": gzip.compress(b"a,b\n1,x\n"),
    "c.jsonl": b'{"a": 1, "b": [1.50, "\\u00fc"]}\n{"a": "\\ud83d"}\n[{"a": 2}, {"a": {}}]\nwords\n\xff\n{}\n',
    "d.json": b'[\n{"a": 1,\n"b": "x"},\n{"a": 2}\n]',
    "e.parquet": parquet(),
    "f.pairs": b"a=1;b=x\nb=y\na=500;b=z\n",
}

WORKER = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
import pyarrow as pa
function = pickle.loads(sys.stdin.buffer.read())
batches = list(function(iter([pa.RecordBatch.from_pydict({"id": [0, 1]})])))
strangers = {"dagster_tidemark", "dagster", "tests", "acme", "boto3", "pandas"} & set(sys.modules)
assert not strangers, strangers
with pa.ipc.new_stream(sys.stdout.buffer, batches[0].schema) as sink:
    for batch in batches:
        sink.write_batch(batch)
"""


@pytest.fixture
def worker(tmp_path: Path) -> list[str]:
    """The command of a Python that has pyspark, pyarrow and numpy, and nothing else."""
    library = tmp_path / "library"
    library.mkdir()
    there = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "pyspark", "py4j"):
        if (there / name).exists():
            (library / name).symlink_to(there / name)
    return [sys.executable, "-I", "-S", "-c", WORKER, str(library)]


def test_functions_sent_from_several_threads_include_their_code() -> None:
    scan = Scan(DeclaredContent(COLUMNS), BucketAddress("b", "r"), [])
    with ThreadPoolExecutor(4) as pool:
        sizes = list(pool.map(lambda _: len(cloudpickle.dumps(shipped(scan.run))), range(12)))
    assert min(sizes) > 20_000


def test_code_that_cannot_be_sent_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole_package.py").write_text(
        "import dagster_tidemark as tm\n\n\ndef rows_of(*given):\n    return tm.formats.Rows({}, 0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rows_of = importlib.import_module("whole_package").rows_of
    with pytest.raises(TypeError, match=r"code of dagster_tidemark, whole_package cannot be sent.*import each name"):
        shipped(rows_of, rows_of)
    monkeypatch.delitem(sys.modules, "whole_package")


@pytest.mark.usefixtures("acme")
def test_worker_reads_files_without_the_project_installed(
    cloud: Settings, landing: S3Bucket, put: Put, worker: list[str]
) -> None:
    load = renamed(NUMBERS)
    for name, body in BODIES.items():
        put(load.feed.prefix + name, body)
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(o.key, "v", at, DAY, o.size, o.etag) for o in landing.list(load.feed.prefix).objects]
    inspected = probe.inspect(landing, load.feed, files)
    assert not inspected.faults
    parts = [
        PartOfFile(n, f.key, f.size, f.etag, inspected.shapes[f], format_registry.format_of(f.key).rows_of, WHOLE)
        for n, f in enumerate(files)
    ]
    store = BucketAddress(landing.name, cloud.aws_region, cloud.aws_endpoint_url, LOCAL_KEY)
    scan = Scan(DeclaredContent(COLUMNS), store, [parts[:2], parts[2:]])
    body = cloudpickle.dumps(shipped(scan.run, *{part.rows_of for part in parts}))
    done = subprocess.run(worker, input=body, capture_output=True, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr.decode()
    found = pa.ipc.open_stream(done.stdout).read_all()
    here = pa.Table.from_batches(list(scan.run([pa.RecordBatch.from_pydict({"id": [0, 1]})])))
    assert found.equals(here)
    assert found.num_rows == 6 + 1 + 7 + 2 + 2 + 3 + len(BODIES)


@pytest.mark.usefixtures("acme")
def test_custom_format_is_sent_to_workers_with_its_whole_package(
    spark: SparkSession, landing: S3Bucket, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = renamed(NUMBERS)
    for name in ("c.jsonl", "f.pairs"):
        put(load.feed.prefix_of(DAY) + name, BODIES[name])
    monkeypatch.setattr(small_files, "SMALL", 0)
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(o.key, "v", at, DAY, o.size, o.etag) for o in landing.list(load.feed.prefix).objects]
    inspected = probe.inspect(landing, load.feed, files)
    values = load.table.partition_values_sql("_partition")
    reading = reading_of(spark, landing, load.feed, inspected, code_version="1", partition_values=values)
    reading, judged = judge_rows(load, reading)
    try:
        assert not reading.faults
        pairs = "source_file LIKE '%.pairs'"
        good = [(row.a, row.b) for row in judged.good.where(pairs).collect()]
        rejected = [(row["_reason"], row["_content"]) for row in judged.rejected_frame.where(pairs).collect()]
    finally:
        judged.forget()
    assert good == [(1, "x")]
    assert sorted(rejected) == [("null_value", '{"b":"y"}'), ("too_large", '{"a":"500","b":"z"}')]
