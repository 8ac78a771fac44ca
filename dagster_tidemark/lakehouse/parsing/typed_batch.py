"""Rows of a file as they cross into Spark: typed values, and texts only where these are for the exact rule."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_tidemark.lakehouse.parsing import kernels
from dagster_tidemark.lakehouse.parsing.rows import Rows
from dagster_tidemark.lakehouse.readers.values import texts_of

TEXTS, RECORD, WHY = "_texts", "_record", "_why"
"""The columns beside the declared ones. `_texts` are the texts of a row that the exact rule has to judge (one for each
declared column, in their order), `_record` what stands there, `_why` what is wrong with the row as a whole."""

_LIST = pa.list_(pa.string())


def typed_columns(columns: Mapping[str, str], rows: Rows) -> dict[str, pa.Array]:
    """The declared columns in their types, `_texts`, `_record` and `_why`."""
    found: dict[str, pa.Array] = {}
    odd: list[npt.NDArray[np.bool_]] = []
    for name, kind in columns.items():
        column = rows.columns[name]
        if column.type == pa.string():
            found[name], wrong = kernels.typed(column, kind)
            if wrong is not None:
                odd.append(wrong)
        else:
            found[name] = column
    if rows.records is None and any(rows.columns[c].type == pa.string() for c, k in columns.items() if k != "string"):
        odd.append(np.ones(rows.count, np.bool_))  # nothing else tells what stood there
    found[TEXTS] = _texts_of(columns, rows, reduce(np.logical_or, odd)) if odd else pa.nulls(rows.count, _LIST)
    for name, given in ((RECORD, rows.records), (WHY, rows.faults)):
        found[name] = pa.nulls(rows.count, pa.string()) if given is None else given
    return found


def _texts_of(columns: Mapping[str, str], rows: Rows, odd: npt.NDArray[np.bool_]) -> pa.Array:
    """Of odd rows the texts of all columns, as a list."""
    chosen = pa.array(np.flatnonzero(odd))
    texts = [_text(rows.columns[name].take(chosen)) for name in columns]
    few, width = len(chosen), len(texts)
    row_by_row = (np.arange(few)[:, None] + few * np.arange(width)[None, :]).ravel()
    values = pa.concat_arrays(texts).take(pa.array(row_by_row))
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(odd * width, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(~odd))


def _text(column: pa.Array) -> pa.Array:
    return column if column.type == pa.string() else texts_of(column)
