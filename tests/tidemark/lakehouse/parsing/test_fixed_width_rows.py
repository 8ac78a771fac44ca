"""Text of fixed width against slices of Python's strings, line by line, whole and in parts."""

import random
import re
from typing import Any

import pytest

from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, Part
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.fixed_width import rows_of, texts_of
from dagster_tidemark.sources.text_formats import FixedWidth
from tests.sampling import sample

LETTERS = ["a", "7", " ", " ", "é", "漢", "😀", '"', ",", "\t", "\u00a0", "\u2028"]
ENDS = ["\n", "\r\n", "\n\n", "\n  \n"]


def random_format(rng: random.Random) -> FixedWidth:
    columns: dict[str, Any] = {}
    at = 1
    for n in range(rng.randrange(1, 5)):
        at += rng.choice([0, 0, 2])
        width = rng.randrange(1, 6)
        columns[f"c{n}"] = (at, width)
        at += width
    if rng.random() < 0.3:
        columns["rest"] = (at, None)
    return FixedWidth(columns=columns, is_trimmed=rng.random() < 0.4, skip_lines=rng.choice([0, 0, 2]))


def expected(text: str, format: FixedWidth, wanted: list[str]) -> list[tuple[Any, ...]]:
    """The values of each line, and whether it is sound."""
    places: dict[str, Any] = dict(format.columns)
    ends = [first - 1 + (width or 0) for first, width in places.values()]
    has_rest = any(width is None for _, width in places.values())
    found = []
    for line in re.split("\r\n|\r|\n", text)[format.skip_lines :]:
        if not line.strip(" \t"):
            continue
        is_short = len(line) < max(ends) and not format.is_trimmed
        is_long = not has_rest and line[max(ends) :].strip(" \t") != ""
        values = []
        for name in wanted:
            first, width = places.get(name, (1, 0))
            value = line[first - 1 : None if width is None else first - 1 + width].strip(" ")
            values.append(value or None)
        is_sound = not is_short and not is_long
        found.append((*(values if is_sound else [None] * len(wanted)), is_sound, line))
    return found


@pytest.mark.parametrize("seed", sample(range(30), *range(5)))
def test_values_are_the_slices_of_each_line(seed: int) -> None:
    rng = random.Random(seed)
    format = random_format(rng)
    longest = max(first + (width or 3) for first, width in format.columns.values())  # type: ignore[misc]
    lines = ["".join(rng.choices(LETTERS, k=max(0, longest - rng.choice([1, 1, 1, 0, 2, 5])))) for _ in range(60)]
    text = "".join(line + rng.choice(ENDS) for line in lines)
    charset = rng.choice(["utf-8", "utf-8", "utf-16-le"])
    body = text.encode(charset)
    wanted = ["missing", *rng.sample(list(format.columns), rng.randrange(1, len(format.columns) + 1))]
    declared = DeclaredContent(dict.fromkeys(wanted, "string"), charset, format=format)
    shape = Shape("fixed_width", charset=charset)
    edges = [0]
    if charset == "utf-8" and not format.skip_lines:
        edges += sorted(rng.sample(range(1, len(body)), 3))
    found = []
    for begin, end in zip(edges, [*edges[1:], 1 << 62], strict=True):
        for rows in rows_of(declared, shape, MemoryFile("a.fwf", body), Part(begin, end)):
            faults = [None] * rows.count if rows.faults is None else rows.faults.to_pylist()
            assert rows.records is not None
            columns = [column.to_pylist() for column in rows.columns.values()]
            rest = zip(faults, rows.records.to_pylist(), strict=True)
            found += [(*row, fault is None, line) for *row, (fault, line) in zip(*columns, rest, strict=True)]
    assert found == expected(text, format, wanted)
    for *values, is_sound, line in found:
        if is_sound:
            assert texts_of(declared, shape, line) == values
