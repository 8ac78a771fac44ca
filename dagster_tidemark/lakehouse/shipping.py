"""Functions that Spark's Python workers run: sent to them as code.

By itself a function of a module is sent as the name of it, and the worker imports that. A worker of a cluster does not
have the project; one of a laptop has it, but stays from run to run, with the code that it has imported first: after an
edit it would go on with the old one and say nothing. Does not belong here: what the functions do.
"""

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

_cloudpickle: Any = cloudpickle  # whose functions have no types

OfBatches = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def shipped(function: OfBatches, *uses: Callable[..., Any]) -> OfBatches:
    """The function for `DataFrame.mapInArrow`, with all of the project's code that it uses, as it is now.

    The worker needs Python of the same minor version, pyspark and pyarrow, and nothing of the project. Source of the
    method: `cloudpickle.register_pickle_by_value`.

    Args:
        uses: Functions that it calls and that may be of other packages, which are sent as well.
    """
    modules = {getattr(each, "func", each).__module__ for each in (function, *uses)}  # `func`: of a partial
    names = {name.partition(".")[0] for name in (__name__, *modules)}
    packages = [sys.modules[name] for name in names if name in sys.modules]
    for package in packages:
        _cloudpickle.register_pickle_by_value(package)
    try:
        body = _cloudpickle.dumps(function)
    finally:
        for package in packages:
            _cloudpickle.unregister_pickle_by_value(package)

    def call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pickle.loads(body)(batches)

    return call
