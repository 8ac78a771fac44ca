"""What commands ask of the webserver is what its schema has."""

import pytest
from dagster_graphql.schema import create_schema
from graphql import parse, validate

from dagster_tidemark.cli import webserver


@pytest.mark.parametrize("query", ["_RELOAD", "_SENSORS", "_STOP", "_START"])
def test_the_queries_fit_dagsters_schema(query: str) -> None:
    assert validate(create_schema().graphql_schema, parse(getattr(webserver, query))) == []


def test_a_webserver_that_does_not_answer_is_named() -> None:
    with pytest.raises(webserver.NoWebserver, match="does not answer"):
        webserver.Webserver("http://127.0.0.1:9/graphql").sensors("catch_up", ())
