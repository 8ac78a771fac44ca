"""The request of commands to the webserver is valid in its schema."""

import pytest
from dagster_graphql.schema import create_schema
from graphql import parse, validate

from dagster_tidemark.cli import plan_apply
from dagster_tidemark.settings import Settings


def test_request_to_reload_is_valid_in_the_dagster_schema() -> None:
    assert validate(create_schema().graphql_schema, parse(plan_apply._RELOAD)) == []


def test_webserver_that_does_not_answer_is_reported() -> None:
    with pytest.raises(plan_apply.NoWebserver, match=r"does not answer.*deploy it in your usual way"):
        plan_apply.reload_code(Settings(port_ui=9))
