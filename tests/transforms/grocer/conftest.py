"""Frames of the grocer's core tables."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.schemas.core import CUSTOMERS, ORDERS, PRICES, READINGS
from pipelines.schemas.raw import READINGS as MESSAGES
from tests.transforms.conftest import MakeFrame, frames_of


@pytest.fixture
def orders(spark: SparkSession) -> MakeFrame:
    """Makes core/orders from rows that name only the columns a test is about."""
    defaults = {
        "order_id": 1,
        "line_number": 1,
        "customer_id": 1,
        "product_id": 1,
        "store_id": 1,
        "quantity": 1,
        "unit_price_usd": Decimal("1"),
        "discount": Decimal("0"),
        "ordered_at": datetime(2026, 11, 20, 7, 30, tzinfo=UTC),
        "hour": datetime(2026, 11, 20, 7, tzinfo=UTC),
        "revenue_usd": Decimal("1"),
    }
    return frames_of(spark, ORDERS, defaults)


@pytest.fixture
def customers(spark: SparkSession) -> MakeFrame:
    """Makes core/customers."""
    return frames_of(spark, CUSTOMERS, {"customer_id": 1, "segment": "household"})


@pytest.fixture
def prices(spark: SparkSession) -> MakeFrame:
    """Makes core/prices."""
    return frames_of(spark, PRICES, {"product_id": 1, "cost_usd": Decimal("0.5")})


@pytest.fixture
def messages(spark: SparkSession) -> MakeFrame:
    """Makes raw/readings."""
    at = datetime(2026, 11, 20, 7, 30, tzinfo=UTC)
    hour = datetime(2026, 11, 20, 7, tzinfo=UTC)
    said = {"hour": hour, "device_id": "a", "store_id": 1, "read_at": at, "temperature_c": 4.0, "door_open": False}
    return frames_of(spark, MESSAGES, {**said, "message_id": "1", "message_source": "sqs:readings", "sent_at": at})


@pytest.fixture
def readings(spark: SparkSession) -> MakeFrame:
    """Makes core/readings from rows that say when each was read: the hour is that of it."""
    defaults = {"device_id": "a", "store_id": 1, "temperature_c": 4.0, "door_open": False}
    make = frames_of(spark, READINGS, defaults)

    def made(*rows: Mapping[str, Any]) -> DataFrame:
        hours = [row["read_at"].replace(minute=0, second=0, microsecond=0) for row in rows]
        return make(*[{"hour": hour, **row} for hour, row in zip(hours, rows, strict=True)])

    return made
