"""No row of a later file is lost or changed in silence: it is right, or it is named. In memory, without Spark."""

import re
from pathlib import Path
from typing import Any

import pytest

from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.scaffold.sample import NoSample, Sample, read_sample
from tests.tidemark.lakehouse.parsing.declared import rows_of
from tests.tidemark.scaffold.later_files import LATER_FILES, REFUSED, LaterFile, Named, Odd

LARGE = 10_000  # bytes


def seen_rows(seen: Sample, file: str, body: bytes, about: int | None) -> list[tuple[Any, ...] | str]:
    """Return the values of each row, or why it is rejected. A text that is left to Spark is `Odd`."""
    found: list[tuple[Any, ...] | str] = []
    for *values, why, texts in rows_of(
        body, seen.columns, key=file, about=about, recognized=True, exact=True, **seen.settings.options
    ):
        written = texts[: len(values)] if texts else [None] * len(values)
        both = zip(values, written, strict=True)
        found.append(why or tuple(Odd(t) if v is None and t is not None else v for v, t in both))
    return found


def is_as_expected(row: tuple[Any, ...] | str, expected: Any) -> bool:
    if isinstance(expected, Named) or isinstance(row, str):
        return isinstance(expected, Named) and isinstance(row, str) and expected.why in row
    is_negative = [repr(value) == "-0.0" for value in row]  # 0.0 equals -0.0
    return row == tuple(expected) and is_negative == [repr(value) == "-0.0" for value in expected]


@pytest.mark.parametrize("case", LATER_FILES, ids=[case.name for case in LATER_FILES])
def test_each_row_of_a_later_file_is_right_or_named(case: LaterFile, tmp_path: Path) -> None:
    (tmp_path / case.file).write_bytes(case.sample)
    seen = read_sample(tmp_path / case.file, options=case.options)
    assert {name: seen.columns[name] for name in case.types} == case.types
    printed = "\n".join([*seen.form, *seen.left_out, *seen.notes])
    assert [words for words in case.said if words not in printed] == [], printed
    of_sample = seen_rows(seen, case.file, case.sample, None)
    named = sum(int(n) for n in re.findall(r"^(\d+) of \d+ rows left out", printed, re.MULTILINE))
    assert (len(of_sample) - named, sum(isinstance(row, str) for row in of_sample)) == (seen.rows, named)

    # The whole file, as a run's process reads small ones, and parts, as workers read large ones.
    for about in (None, 1 << 16 if len(case.later) > LARGE else 40):
        if case.refused:
            with pytest.raises(Unusable, match=re.escape(case.refused)):
                seen_rows(seen, case.file, case.later, about)
            continue
        rows = seen_rows(seen, case.file, case.later, about)
        assert len(rows) == len(case.rows), rows
        wrong = [pair for pair in zip(rows, case.rows, strict=True) if not is_as_expected(*pair)]
        assert not wrong, str(wrong)[:2000]


@pytest.mark.parametrize("name", REFUSED)
def test_sample_that_two_forms_fit_is_refused_with_the_option_that_decides(name: str, tmp_path: Path) -> None:
    body, said = REFUSED[name]
    (tmp_path / "a.csv").write_bytes(body)
    with pytest.raises(NoSample, match=re.escape(said)):
        read_sample(tmp_path / "a.csv")
