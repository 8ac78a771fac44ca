"""The store of incidents of a test, on the instance of its module, and the settings."""

import dagster as dg
import pytest

from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.settings import Settings, load_settings


@pytest.fixture
def store(instance: dg.DagsterInstance, request: pytest.FixtureRequest) -> IncidentStore:
    return IncidentStore(instance, request.node.name)


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings()
