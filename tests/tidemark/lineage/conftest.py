"""The tests of lineage leave no receiver behind."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _forget_receiver() -> Iterator[None]:
    """Remove variables that OpenLineage's client sets in its process: a location built later would send events too."""
    yield
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        del os.environ[name]
