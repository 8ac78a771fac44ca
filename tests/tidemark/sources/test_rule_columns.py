"""The columns of rules: found without Spark as Spark finds them, and an unknown one is refused by name."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dagster_tidemark import Feed, Grain, NewColumns
from dagster_tidemark.feed_partitions import _WITHOUT_BRACKETS, columns_of, require_known_columns
from tests.toys.feeds import ORDERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = Feed("rides", "rides/", Grain.DAY, {"id": "bigint", "fare": "decimal(9,2)", "ended at": "timestamp"})


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("a > 1 AND `b c` IN ('x', \"y\") OR not d", "a|b c|d"),
        ("exists(items, x -> x.price > limit)", "items|limit"),
        ("aggregate(items, 0, (total, x) -> total + x) < 9", "items"),
        ("timestampdiff(DAY, a, b) > extract(YEAR FROM c) + INTERVAL 1 DAY", "a|b|c"),
        ("a < current_date AND b < current_timestamp() AND c < localtimestamp", "a|b|c|localtimestamp"),
        ("s.member.deeper = m['key'] AND many[0] = 1L", "m|many|s"),
        ("CASE WHEN try_cast(a AS int) IS NULL THEN true ELSE b::date > DATE '2026-01-01' END", "a|b"),
        ("trim(BOTH 'x' FROM a) RLIKE '^[a-z]' AND b <=> c AND d DIV 2 = 1", "a|b|c|d"),
    ],
)
def test_rule_columns_are_distinguished_from_functions_units_and_texts(condition: str, columns: str) -> None:
    assert "|".join(columns_of(condition) or ()) == columns


@pytest.mark.parametrize("columns", [NewColumns.IGNORE, NewColumns.ADD])
def test_rule_that_cannot_be_parsed_is_logged(columns: NewColumns, caplog: pytest.LogCaptureFixture) -> None:
    feed = replace(FEED, rules={"odd": "id >> > 0", "dear": "fare < 100"}, new_columns=columns)
    require_known_columns(feed, ["day"])
    assert caplog.messages == [
        "feed rides: rule 'odd' cannot be parsed, so only a load shows if it is valid: id >> > 0"
    ]


def test_rule_with_an_unknown_column_is_refused_and_the_known_are_listed() -> None:
    wrong = replace(FEED, rules={"dear": "fare < 100 AND FARE > 0", "long": "endet_at - started_at < id"})
    said = (
        r"feed rides: rule 'long' reads 'endet_at', 'started_at', which is not declared; "
        r"read one of the columns id, fare, ended at, day, or"
    )
    with pytest.raises(ValueError, match=said):
        require_known_columns(wrong, ["day"])
    require_known_columns(replace(wrong, new_columns=NewColumns.ADD), ["day"])
    require_known_columns(
        replace(FEED, rules={"own": "source_file LIKE '%x' AND `Ended At` > day AND _x > 1"}), ["day"]
    )
    require_known_columns(ORDERS, ["hour"])


def test_rule_column_parser_finds_no_columns_in_spark_function_examples(spark: "SparkSession") -> None:
    # Examples of functions read no table: so they name no column. A sixth of all, as Spark takes half a minute for all.
    names = _functions(spark)
    names = [name for n, name in enumerate(names) if n % 6 == 0 or re.match("current_|local|session_|user", name)]
    examples = [example for name in names for example in _examples(spark, name)]
    assert len(examples) > 100
    wrong = {text: found for text in examples if (found := set(columns_of(text) or ()) - _WITHOUT_BRACKETS)}
    assert not wrong


def _functions(spark: "SparkSession") -> list[str]:
    names = [row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    return [name for name in names if re.fullmatch(r"\w+", name)]


def _examples(spark: "SparkSession", name: str) -> list[str]:
    said = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED {name}").collect())
    found = re.findall(r"> SELECT (.+?);$", said, re.MULTILINE)
    return [text for text in found if not re.search(r"\bFROM\b|\bAS\b|LATERAL|\bOVER\b", text)]
