"""Frames of the grocer's core tables."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from pipelines.schemas.core import CUSTOMERS, ORDERS, PRICES
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
