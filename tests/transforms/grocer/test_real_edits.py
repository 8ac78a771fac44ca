"""50 edits of one operator or literal each, of which Spark computes something else: the fingerprint tells each.

An edit counts as real when the edited transform fails or returns other rows or another schema on the same frames. The
hash has no part in that.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date
from decimal import Decimal
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipelines.schemas.marts import MARGIN_HOURLY
from tests.code_edits import Sources, real_edits
from tests.grocer_code import digests, grocer_sources
from tests.transforms.conftest import MakeFrame, frames_of
from tests.transforms.grocer.expect import at, rows_of

EDITS = 50
ONE_PLACE = ("operator", "comparison", "text", "number")
WEEK = date(2026, 11, 16)
Run = Callable[[ModuleType], DataFrame]


@pytest.fixture
def runs(
    spark: SparkSession,
    orders: MakeFrame,
    customers: MakeFrame,
    prices: MakeFrame,
    messages: MakeFrame,
    readings: MakeFrame,
) -> Mapping[str, Run]:
    """Each transform on frames in which every column matters, by module and name."""
    lines = orders(
        {"order_id": 1, "hour": at(7), "ordered_at": at(7, 30), "quantity": 2, "unit_price_usd": Decimal("1.5")},
        {"order_id": 1, "line_number": 2, "hour": at(7), "product_id": 2, "quantity": 3, "revenue_usd": Decimal("7")},
        {"order_id": 2, "hour": at(23), "customer_id": 2, "quantity": -1, "revenue_usd": Decimal("-4")},
        {"order_id": 3, "hour": at(8, day=21), "store_id": 2, "discount": Decimal("0.33333333")},
        {"order_id": 4, "hour": at(8, day=12), "revenue_usd": Decimal("3")},
        {"order_id": 5, "hour": at(9, day=12), "store_id": 2, "customer_id": 3, "revenue_usd": Decimal("-3")},
    )
    buyers = customers({"customer_id": 1}, {"customer_id": 2, "segment": None})
    costs = prices({"day": date(2026, 11, 20)}, {"day": date(2026, 11, 21), "cost_usd": Decimal("0.25")})
    margins = frames_of(spark, MARGIN_HOURLY, {"product_id": 1})(
        {"hour": at(7), "margin_usd": Decimal("1")}, {"hour": at(8), "margin_usd": None}
    )
    landed = lines.drop("hour", "revenue_usd")
    sent = messages(
        {"message_id": "1", "temperature_c": 9.0},
        {"message_id": "2", "sent_at": at(7, 31), "store_id": 2},
        {"message_id": "3", "device_id": "b", "sent_at": at(7, 31)},
        {"message_id": "4", "device_id": "b", "sent_at": at(7, 31), "door_open": True},
    )
    read = readings(
        {"read_at": at(7, 55), "temperature_c": 8.0, "store_id": 2},
        {"read_at": at(8, 10), "temperature_c": 8.5},
        {"read_at": at(8, 12), "temperature_c": 3.0},
        {"read_at": at(8, 50), "temperature_c": 9.0, "device_id": "b"},
    )
    hours = [at(hour).replace(tzinfo=UTC) for hour in (7, 8, 9)]
    return {
        "readings.readings": lambda module: module.readings(sent),
        "hot_spots.hot_spots": lambda module: module.hot_spots(read, hours=hours),
        "orders.order_lines": lambda module: module.order_lines(landed),
        "sales.sales_hourly": lambda module: module.sales_hourly(lines),
        "sales.sales_daily": lambda module: module.sales_daily(lines),
        "margin.margin_hourly": lambda module: module.margin_hourly(lines, costs),
        "offers.offer_reach": lambda module: module.offer_reach(costs, buyers),
        "order_stats.order_stats": lambda module: module.order_stats(lines, buyers),
        "reviews.executive_rollup": lambda module: module.executive_rollup(lines, margins),
        "reviews.weekly_review": lambda module: module.weekly_review(lines, weeks=[WEEK]),
    }


def outcome(run: Run, text: str) -> object:
    """The schema and the rows of a transform by a module's text; the kind of error where it fails."""
    module = ModuleType("edited")
    try:
        exec(compile(text, "edited", "exec"), vars(module))
        frame = run(module)
        return [(field.name, field.dataType.simpleString()) for field in frame.schema], rows_of(frame)
    except (PySparkException, AttributeError, TypeError, ValueError) as error:
        return type(error).__name__


def edits(sources: Sources, runs: Mapping[str, Run]) -> Iterator[tuple[str, str, str, str]]:
    """Every edit of one operator or literal of a transform, in any order: module and name, path, what, new text."""
    found = []
    for name in runs:
        module, _, function = name.partition(".")
        path = f"pipelines/transforms/{module}.py"
        for what, edited, text in real_edits(sources[path]):
            if edited == function and what.startswith(ONE_PLACE):
                found.append((name, path, what, text))
    yield from Random(16).sample(found, len(found))


@pytest.mark.proof
@pytest.mark.timeout(900)  # about a hundred runs of Spark
def test_50_edits_that_change_spark_results_change_the_fingerprint(
    runs: Mapping[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = grocer_sources()
    before = digests(sources, tmp_path / "before")
    original = {
        name: outcome(run, sources[f"pipelines/transforms/{name.partition('.')[0]}.py"]) for name, run in runs.items()
    }
    assert not [name for name, result in original.items() if isinstance(result, str)]

    returning, failing = [], []
    for name, path, what, text in edits(sources, runs):
        result = outcome(runs[name], text)
        if result != original[name]:
            (failing if isinstance(result, str) else returning).append((name, path, what, text))
    real = [*returning, *failing][:EDITS]  # those that fail are mostly misspelled columns
    missed = [
        f"{name}: {what}"
        for number, (name, path, what, text) in enumerate(real)
        if digests({**sources, path: text}, tmp_path / str(number)) == before
    ]
    with capsys.disabled():
        print(f"\n{len(real)} real edits, {len(returning)} of them without an error: {len(real) - len(missed)} caught")

    assert missed == []
    assert len(real) == EDITS
