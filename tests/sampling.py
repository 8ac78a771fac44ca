"""Which examples of a behaviour `make test` runs; `make proof` runs the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def sample(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Return parameters for `pytest.mark.parametrize`, and mark all but the kept ones as proofs.

    Raises:
        ValueError: a value to keep is not one of the values.
    """
    listed = list(values)
    if missing := [value for value in kept if value not in listed]:
        raise ValueError(f"{missing} are not among the examples {listed}; keep some that are")
    return [value if value in kept else _proof(value) for value in listed]


def _proof(value: Any) -> Any:
    several = value if isinstance(value, tuple) else (value,)
    return pytest.param(*several, marks=pytest.mark.proof)
