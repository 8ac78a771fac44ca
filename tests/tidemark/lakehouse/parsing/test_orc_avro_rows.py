"""ORC and Avro: parts of a file, memory, and faults of the reader that are no faults of a file.

The kinds of files with their rows are in `test_kinds_of_files`.
"""

import io
import json
import os
import random
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc

from dagster_tidemark.lakehouse.parsing import avro_blocks
from dagster_tidemark.lakehouse.parsing.avro_types import AvroSchema
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, Part
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers import avro
from dagster_tidemark.lakehouse.readers.files import SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.orc import rows_of as orc_rows_of
from dagster_tidemark.lakehouse.readers.probe import inspect
from dagster_tidemark.sources.feed import Feed, Grain
from tests.proof.kinds import avro_kinds
from tests.sampling import sample
from tests.tidemark.lakehouse.parsing.declared import rows_of
from tests.tidemark.lakehouse.test_inspection import Store
from tests.tidemark.lakehouse.test_verdict import Holding, Refused, damage

COLUMNS = {"n": "bigint", "word": "string"}


def as_orc(count: int, **options: Any) -> bytes:
    sink = io.BytesIO()
    words = [f"{n * 2654435761 % 2**32:08x}" * 4 for n in range(count)]
    orc.write_table(pa.table({"n": range(count), "word": words}), sink, **{"stripe_size": 64 << 10} | options)
    return sink.getvalue()


ROW = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}, {"name": "word", "type": "string"}]}


def as_avro(count: int, **options: Any) -> bytes:
    return avro_kinds.file_of(ROW, [{"n": n, "word": f"w{n}" * 3} for n in range(count)], **options)


def test_each_row_of_an_orc_file_is_in_exactly_one_part() -> None:
    body = as_orc(40_000)
    assert orc.ORCFile(io.BytesIO(body)).nstripes > 3
    whole = rows_of(body, COLUMNS, key="a.orc")
    assert [row[0] for row in whole] == list(range(40_000))
    for about in (1, len(body) // 3, 2 * len(body)):
        assert rows_of(body, COLUMNS, key="a.orc", about=about) == whole


@pytest.mark.parametrize("seed", range(5))
def test_each_row_of_an_avro_file_is_in_exactly_one_part(seed: int) -> None:
    rng = random.Random(seed)
    body = as_avro(200, of_block=rng.choice([1, 7, 50]), codec=rng.choice(list(avro_kinds.CODECS)))
    edges = sorted(rng.sample(range(1, len(body)), 6))
    parts = [Part(a, b) for a, b in zip([0, *edges], [*edges, WHOLE.end], strict=True)]
    found = [
        row
        for part in parts
        for rows in avro.rows_of(DeclaredContent(COLUMNS), None, MemoryFile("a.avro", body), part)
        for row in rows.columns["n"].to_pylist()
    ]
    assert found == list(range(200))


@pytest.mark.parametrize("about", [None, 50])
def test_orc_column_whose_name_could_mean_a_member_is_refused_by_name(about: int | None) -> None:
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": [{"b": 1}, {"b": 2}], "a.b": ["x", None]}), sink)
    with pytest.raises(Unusable, match=r"column a\.b cannot be told from a member of its nested column a; rename"):
        rows_of(sink.getvalue(), {"word": "string"}, key="a.orc", about=about, names={"word": ["a.b"]})
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": [1, 2], "a.b": ["x", None]}), sink)
    found = rows_of(sink.getvalue(), {"word": "string"}, key="a.orc", about=about, names={"word": ["a.b"]})
    assert [row[0] for row in found] == ["x", None]


def test_orc_file_with_one_large_stripe_is_read_in_bounded_memory() -> None:
    sink = io.BytesIO()
    with orc.ORCWriter(sink, compression="zlib", stripe_size=1 << 30) as writer:
        for _ in range(10):
            writer.write(pa.table({"word": pa.array(["y" * 1000] * 10_000)}))
    body = sink.getvalue()
    assert len(body) < 2 << 20 and orc.ORCFile(io.BytesIO(body)).nstripes == 1
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for rows in orc_rows_of(DeclaredContent({"word": "string"}), None, MemoryFile("a.orc", body), WHOLE):
        count += rows.count
        most = max(most, pa.total_allocated_bytes() - before)
    assert count == 100_000
    assert most < 50 << 20, "the stripe has 100 MB"


@pytest.mark.parametrize("codec", [codec for codec in avro_kinds.CODECS if codec != "null"])
def test_avro_block_that_expands_beyond_the_limit_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = avro_kinds.file_of(ROW, [{"n": 1, "word": "y" * 300_000}], codec=codec)
    assert len(rows_of(body, COLUMNS, key="a.avro")) == 1
    monkeypatch.setattr(avro_blocks, "LARGEST_BLOCK", 200_000)
    assert len(body) < 200_000
    with pytest.raises(Unusable, match="a block of more than 200000 bytes"):
        rows_of(body, COLUMNS, key="a.avro")


@pytest.mark.parametrize("seed", sample(range(40), *range(5)))
def test_damaged_avro_file_is_refused_or_gives_rows_and_never_fails_otherwise(seed: int) -> None:
    rng = random.Random(seed)
    body = bytearray(as_avro(100, codec=rng.choice(list(avro_kinds.CODECS))))
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    try:
        rows_of(bytes(body), COLUMNS, key="a.avro", about=rng.choice([None, 300]))
    except Unusable as error:
        assert str(error)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("long", "its rows are no records"),
        ({"type": "array", "items": "null"}, "it has an array of nulls"),
        ({"type": "record", "name": "R", "fields": [{"name": "n", "type": "Other"}]}, "its Avro schema is invalid"),
    ],
)
def test_avro_schema_without_readable_rows_is_refused(schema: Any, said: str) -> None:
    header = {b"avro.schema": json.dumps(schema).encode()}
    number = avro_kinds.number
    body = b"Obj\x01" + number(1) + b"".join(number(len(t)) + t for pair in header.items() for t in pair) + b"\0"
    with pytest.raises(Unusable, match=said):
        rows_of(body + avro_kinds.SYNC, COLUMNS, key="a.avro")


def test_block_that_claims_more_rows_than_bytes_is_refused() -> None:
    nothing = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}
    body = (
        avro_kinds.file_of(nothing, [], codec="null")
        + avro_kinds.number(1 << 40)
        + avro_kinds.number(0)
        + avro_kinds.SYNC
    )
    with pytest.raises(Unusable, match="rows in"):
        rows_of(body, COLUMNS, key="a.avro")


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_block_that_claims_fewer_rows_than_it_holds_is_refused(rows: int) -> None:
    held = as_avro(3, codec="null")
    empty = as_avro(0, codec="null")
    assert held.startswith(empty) and held[len(empty)] == avro_kinds.number(3)[0]
    body = empty + avro_kinds.number(rows) + held[len(empty) + 1 :]
    for later in (b"", held[len(empty) :]):
        with pytest.raises(Unusable, match=rf"not a valid Avro file, .*a block has more bytes than its {rows} rows"):
            rows_of(body + later, COLUMNS, key="a.avro")


def test_avro_schema_that_doubles_with_each_level_is_refused_quickly() -> None:
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "n", "type": "long"}]}
    for level in range(1, 40):
        twice = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": twice}
    with pytest.raises(Unusable, match="its Avro schema has more than 100000 types, counted at each use"):
        AvroSchema.of(json.dumps(schema).encode())


def test_avro_file_without_rows_has_none_and_fastavro_writes_what_is_read() -> None:
    assert rows_of(as_avro(0), COLUMNS, key="a.avro") == []
    sink = io.BytesIO()
    fastavro.writer(sink, ROW, [{"n": 1, "word": "a"}], codec="deflate", metadata={"writer": "x" * 100_000})
    assert [row[:2] for row in rows_of(sink.getvalue(), COLUMNS, key="a.avro")] == [(1, "a")]


def test_undeclared_avro_members_of_any_type_do_not_matter() -> None:
    odd = {**ROW, "fields": [*ROW["fields"], {"name": "odd", "type": ["long", "bytes", avro_kinds.NODE]}]}
    body = avro_kinds.file_of(odd, [{"n": 1, "word": "a", "odd": {"id": 1, "next": None}}])
    assert [row[:2] for row in rows_of(body, COLUMNS, key="a.avro")] == [(1, "a")]


def test_missing_library_is_not_reported_as_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    body = as_avro(3)
    assert damage("a.avro", Holding(body), COLUMNS) is None
    monkeypatch.setitem(sys.modules, "fastavro", None)
    said = r"reading Avro needs the library fastavro: pip install 'dagster-tidemark\[avro\]'"
    with pytest.raises(Refused, match=said):
        damage("a.avro", Holding(body), COLUMNS)
    feed = Feed("trips", "trips/", Grain.DAY, COLUMNS)
    bodies = {"a.avro": body, "b.csv": b"n,word\n1,a\n"}
    now = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(key, "v", now, "2026-10-01", len(content)) for key, content in bodies.items()]
    found = inspect(Store(bodies), feed, files)
    assert [file.key for file in found.readable] == ["b.csv"], "the load goes on, and its run fails over the other file"
    ((file, error),) = found.unavailable.items()
    assert file.key == "a.avro" and re.search(said, str(error)) and not found.faults


def test_missing_time_zone_database_is_not_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"at": pa.array([1], pa.timestamp("us"))}), path)
    program = """
import sys
from dagster_tidemark.lakehouse.parsing.avro_types import AvroSchema
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile, ReaderMissing
from dagster_tidemark.lakehouse.readers.orc import rows_of
from tests.sampling import sample
try:
    list(rows_of(DeclaredContent({"at": "timestamp"}), None, MemoryFile("a.orc", open(sys.argv[1], "rb").read())))
except ReaderMissing as error:
    print(error)
"""
    command = [sys.executable, "-W", "ignore", "-c", program, str(path)]
    without = {**os.environ, "TZDIR": str(tmp_path / "none")}
    done = subprocess.run(command, capture_output=True, text=True, env=without, timeout=100, check=False)
    assert "reading ORC needs the time zone database of the system: install tzdata there" in done.stdout, done.stderr
