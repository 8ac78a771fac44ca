"""Sessions share Python workers, which run the code of now."""

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.session import opened_session
from dagster_tidemark.local.spark import python_daemon
from dagster_tidemark.settings import Settings


def test_user_modules_are_forgotten_and_installed_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("edited_by_user", "kept_by_name"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("edited_by_user", "kept_by_name"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    there = {name for name, module in sys.modules.items() if name != "edited_by_user"}
    calls: list[tuple[object, object]] = []
    main = python_daemon.with_fresh_modules(lambda given, taken: calls.append((given, taken)), there)
    with (tmp_path / "given").open("wb+") as given:
        main(given, given)
    assert calls == [(given, given)]
    assert "edited_by_user" not in sys.modules and "kept_by_name" in sys.modules
    python_daemon.forget_user_modules(there - {"numpy"})
    assert sys.modules["numpy"] is np


def test_sessions_share_workers_that_import_edited_modules_again(spark_server: Settings, tmp_path: Path) -> None:
    folder, module = str(tmp_path), tmp_path / "edited_by_user.py"

    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        sys.path.insert(0, folder)
        value = importlib.import_module("edited_by_user").VALUE
        yield pa.RecordBatch.from_pylist([{"daemon": os.getppid(), "value": value}])

    def probed(spark: SparkSession) -> tuple[int, str]:
        [row] = spark.range(0, 1, 1, 1).mapInArrow(probe, "daemon bigint, value string").collect()
        return row.daemon, row.value

    found = []
    for value in ("first", "the second"):
        module.write_text(f"VALUE = {value!r}\n")
        with opened_session(spark_server) as spark:
            found.append(probed(spark))
    (one, before), (other, after) = found
    assert one == other, "the second session started a daemon of its own"
    assert (before, after) == ("first", "the second")
