"""Sending of functions to Spark's Python workers as code.

By default, a function is sent as its module and name, and the worker imports it. But workers of a cluster do not have
the project. Workers of a laptop have the project, but they outlive a run: after an edit they would silently continue
with the code that they imported first. Does not belong here: the functions themselves.
"""

import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

_cloudpickle: Any = cloudpickle  # cloudpickle has no type annotations

_registering = threading.Lock()  # cloudpickle has one list of packages for all threads

OfBatches = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def shipped(function: OfBatches, *uses: Callable[..., Any]) -> OfBatches:
    """Return a function for `DataFrame.mapInArrow` that includes the current code of the project.

    The worker needs Python of the same minor version, pyspark and pyarrow, but not the project. Source of the method:
    `cloudpickle.register_pickle_by_value`.

    Args:
        uses: Functions from other packages that `function` calls. The code of these packages is sent too.

    Raises:
        TypeError: the code uses an object that cannot be sent, such as a lock, or a whole package.
    """
    modules = {getattr(each, "func", each).__module__ for each in (function, *uses)}  # `func` of a partial
    names = {name.partition(".")[0] for name in (__name__, *modules)}
    packages = [sys.modules[name] for name in names if name in sys.modules]
    with _registering:
        for package in packages:
            _cloudpickle.register_pickle_by_value(package)
        try:
            body = _cloudpickle.dumps(function)
        except (TypeError, pickle.PicklingError) as error:
            raise TypeError(
                f"the code of {', '.join(sorted(names))} cannot be sent to Spark's workers: {error}. Expected code "
                "that uses functions and plain values; import each name, as in `from dagster_tidemark.formats import "
                "Rows`, not a whole package"
            ) from error
        finally:
            for package in packages:
                _cloudpickle.unregister_pickle_by_value(package)

    def call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pickle.loads(body)(batches)

    return call
