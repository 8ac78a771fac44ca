"""A generated file has the rows that its generator meant, read whole or cut at any byte, with blocks of any size.

The expected rows come from the generator, not from a parser. Files are read in this process, without Spark.
"""

import gzip
import io
import json
from collections.abc import Sequence
from itertools import pairwise, product
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.parsing import csv_rows, json_rows, text_blocks
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, Part, RowsOf
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers import parquet, text
from dagster_tidemark.lakehouse.readers.file_format import Shape
from tests.sampling import sample

COLUMNS = ("a", "b", "c")
DECLARED = DeclaredContent(dict.fromkeys(COLUMNS, "string"))
WORDS = ("", "x", "12", "-0.5", "ü", "漢字", "a b", "\u2028", "\x85", "null", "\\", "\\N", "'", "#", "😀", " ", "\t.")
SPECIAL = ('a,"b"', ",", '"', '""', 'say "x", y', "{", "}", "[1,2]")
ENDS = ("\n", "\r\n", "\r")
MARK = "\ufeff"

Values = tuple[str | None, ...]
"""The values of a row; empty for a faulty row."""


def rows_of(parse: RowsOf, shape: Shape, source: MemoryFile, parts: Sequence[Part]) -> list[Values]:
    found: list[Values] = []
    for part in parts:
        for batch in parse(DECLARED, shape, source, part):
            faults = [None] * batch.count if batch.faults is None else batch.faults.to_pylist()
            values = list(zip(*(batch.columns[c].to_pylist() for c in COLUMNS), strict=True))
            assert len(values) == len(faults) == batch.count
            if batch.records is not None:
                assert len(batch.records) == batch.count
            found += [() if fault else value for value, fault in zip(values, faults, strict=True)]
    return found


def cut(size: int, places: Sequence[int]) -> list[Part]:
    return [Part(begin, end) for begin, end in pairwise([0, *sorted(set(places) - {0}), size + 100])]


def csv_value(random: Random, word: str) -> str:
    if any(c in word for c in ',"') or random.random() < 0.2:
        return '"' + word.replace('"', '""') + '"'
    return word


def csv_file(random: Random, ends: Sequence[str]) -> tuple[bytes, list[Values]]:
    """Return a file with a header, and its rows."""
    order = random.sample(COLUMNS, 3)
    lines, rows = [",".join(order)], list[Values]()
    for _ in range(random.randrange(12)):
        kind = random.random()
        if kind < 0.1:
            lines.append(random.choice(["", "  ", "\t"]))
            continue
        width = 3 if kind < 0.85 else random.choice([2, 4, 5])
        words = [random.choice(SPECIAL if random.random() < 0.2 else WORDS) for _ in range(width)]
        words[0] = words[0] or "y"  # otherwise the line may be blank
        if not words[0].strip() and not any(word.strip() for word in words):
            words[0] = "y"
        lines.append(",".join(csv_value(random, word) for word in words))
        found = dict(zip(order, words, strict=False))
        rows.append(tuple(found[c] or None for c in COLUMNS) if width == 3 else ())
    body = "".join(line + random.choice(ends) for line in lines)
    if random.random() < 0.3:
        body = body.rstrip("\r\n")
    return (MARK * (random.random() < 0.3) + body).encode(), rows


def json_file(random: Random, ends: Sequence[str]) -> tuple[bytes, list[Values]]:
    """Return a file of JSON lines, and its rows."""
    body, rows = "", list[Values]()
    for _ in range(random.randrange(12)):
        if random.random() < 0.1:
            body += random.choice(["", "  ", "\t"]) + random.choice(ends)
            continue
        if random.random() < 0.1:
            body += random.choice(["words", "5", '{"a": 1', "{'a': 1}"]) + random.choice(ends)
            rows.append(())
            continue
        names = random.sample([*COLUMNS, "d", "e"], random.randint(1, 5))
        row = {name: random.choice([*WORDS, *SPECIAL, None]) for name in names}
        separators = random.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
        body += json.dumps(row, ensure_ascii=random.random() < 0.5, separators=separators) + random.choice(ends)
        rows.append(tuple(row.get(c) for c in COLUMNS))
    return (MARK * (random.random() < 0.3) + body).encode(), rows


def shape_of(body: bytes) -> Shape:
    header = body.decode("utf-8-sig").replace("\r", "\n").partition("\n")[0]
    return Shape("csv", tuple((name, "string") for name in header.split(",")))


@pytest.mark.parametrize(
    ("blocks_of", "ends", "seeds"),
    sample(
        [(40, ENDS, 4), *((size, ends, 40) for size in (7, 40, 1 << 20) for ends in (("\n",), ("\r\n",), ENDS))],
        (40, ENDS, 4),
    ),
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_file_cut_at_every_byte_has_the_rows_of_its_generator(
    monkeypatch: pytest.MonkeyPatch, form: str, blocks_of: int, ends: Sequence[str], seeds: int
) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK", blocks_of)
    monkeypatch.setattr(text_blocks, "_LOOK", blocks_of)
    for seed in range(seeds):
        random = Random(seed)
        body, rows = (csv_file if form == "csv" else json_file)(random, ends)
        parse = csv_rows.rows_of if form == "csv" else json_rows.rows_of
        shape = shape_of(body) if form == "csv" else Shape("json")
        # A header is in the first part, because parts have megabytes and heads of files are inspected.
        least = 1 + max(body.find(b"\n"), body.find(b"\r")) if form == "csv" else 1
        source = MemoryFile(f"x.{form}", body)
        cuts: list[list[int]] = [[], *([at] for at in range(least, len(body)))]
        cuts += [random.sample(range(least, len(body)), min(5, len(body) - least)) for _ in range(5) if len(body) > 9]
        for places in cuts:
            found = rows_of(parse, shape, source, cut(len(body), places))
            assert found == rows, (seed, places, body)


@pytest.mark.parametrize("piece", sample([3, 100, 1 << 20], 3))
def test_gzip_file_of_several_members_has_the_rows_of_its_generator(
    monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(text, "_PIECE", piece)
    for seed in range(60):
        random = Random(seed)
        body, rows = csv_file(random, ENDS)
        places = [0, *sorted(random.choices(range(len(body) + 1), k=random.randrange(4))), len(body)]
        zipped = b"".join(gzip.compress(body[a:b]) + b"\0" * random.choice([0, 0, 5]) for a, b in pairwise(places))
        monkeypatch.setattr(text_blocks, "BLOCK", random.choice([5, 50, 4 << 20]))
        found = rows_of(csv_rows.rows_of, shape_of(body), MemoryFile("x.csv.gz", zipped), [Part()])
        assert found == rows, (seed, body)


# Each row group is cut around and read each time: twice the rows take four times as long.
@pytest.mark.parametrize(("version", "most"), sample(product(["1.0", "2.0"], [18, 60]), ("2.0", 18)))
def test_parquet_file_cut_around_row_groups_has_its_rows_once(version: str, most: int) -> None:
    for seed in range(15):
        random = Random(seed)
        count = random.randrange(most)
        columns = {c: [random.choice([*WORDS, *SPECIAL, None]) for _ in range(count)] for c in COLUMNS}
        sink = io.BytesIO()
        pq.write_table(
            pa.table({c: pa.array(values, pa.string()) for c, values in columns.items()}),
            sink,
            row_group_size=random.choice([1, 7, 1000]),
            use_dictionary=random.random() < 0.5,
            data_page_version=version,
        )
        body = sink.getvalue()
        footer = pq.read_metadata(io.BytesIO(body))
        firsts = [footer.row_group(n).column(0) for n in range(footer.num_row_groups)]
        offsets = {at for c in firsts for at in (c.data_page_offset, c.dictionary_page_offset) if at}
        places = {at + step for at in offsets for step in (-1, 0, 1)}
        expected = [tuple(values[n] or None for values in columns.values()) for n in range(count)]
        source, shape = MemoryFile("x.parquet", body), Shape("parquet")
        cuts: list[list[int]] = [[], sorted(places), *([at] for at in places)]
        for some in cuts:
            assert rows_of(parquet.rows_of, shape, source, cut(len(body), some)) == expected, (seed, some)
