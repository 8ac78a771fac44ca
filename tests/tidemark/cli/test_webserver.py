"""What commands ask of the webserver is what its schema has."""

import pytest
from dagster_graphql.schema import create_schema
from graphql import parse, validate

from dagster_tidemark.cli import webserver


@pytest.mark.parametrize("query", ["_RELOAD", "_SENSORS", "_STOP", "_START"])
def test_webserver_queries_are_valid_in_the_dagster_schema(query: str) -> None:
    assert validate(create_schema().graphql_schema, parse(getattr(webserver, query))) == []


def test_webserver_that_does_not_answer_is_reported() -> None:
    with pytest.raises(webserver.NoWebserver, match="does not answer"):
        webserver.Webserver("http://127.0.0.1:9/graphql").sensors("catch_up", ())
