"""The machinery is tested on a toy code location."""

import pytest


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "tests.toys")
