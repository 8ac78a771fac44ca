"""Each kind of file that people have, small: its rows, or its refusal, without Spark. The docs list every kind.

Large files and Spark's verdicts are the proof `tests/proof/test_kinds_of_files.py`.
"""

import pytest

from dagster_tidemark.lakehouse.readers.files import Unusable
from tests.checkout import CHECKOUT
from tests.proof.kinds.corpus import KINDS, table
from tests.proof.kinds.kind import Kind
from tests.tidemark.lakehouse.parsing.declared import Row, rows_of


def assert_right(kind: Kind, size: str, about: int | None = None) -> None:
    """Fail unless the good rows are right and every other row is marked, or the file is refused by name."""
    try:
        found = rows_of(kind.file(size), kind.columns, key=kind.key, about=about, recognized=True, **kind.options)
    except Unusable as error:
        assert kind.is_refused_with(str(error)), str(error)
        return
    assert not kind.refused, f"{len(found)} rows"
    width = len(kind.columns)

    def is_equal(row: Row, expected: tuple[object, ...]) -> bool:
        # Python's kernels leave some values to Spark's casts, with their texts.
        values = zip(row[:width], expected, strict=True)
        return all(found == value or (found is None and row[width + 1] is not None) for found, value in values)

    good: list[Row] = [row for row in found if row[width] is None and row[0] is not None and row[0] >= 0]
    odd = [row for row in found if row[width] is not None or row[0] is None or row[0] < 0]
    expected = kind.rows(size)
    assert len(good) == len(expected), found[:5]
    assert not [pair for pair in zip(good, expected, strict=True) if not is_equal(*pair)][:3]
    # The verdict with its message is Spark's: here a row is marked by a fault or by its texts.
    assert len(odd) == len(kind.odd) and all(row[width] or row[width + 1] for row in odd), odd


@pytest.mark.parametrize("name", KINDS)
def test_small_file_of_each_kind_gives_its_expected_rows(name: str) -> None:
    assert_right(KINDS[name], "small")


@pytest.mark.proof
@pytest.mark.parametrize("name", KINDS)
def test_large_file_of_each_kind_read_in_parts_gives_its_expected_rows(name: str) -> None:
    kind = KINDS[name]
    assert len(kind.file("large")) > 1 << 20
    assert_right(kind, "large", about=300_000)


def test_the_docs_list_every_kind() -> None:
    assert table() in (CHECKOUT / "docs" / "kinds-of-files.md").read_text(), "python -m tests.proof.kinds.corpus"
