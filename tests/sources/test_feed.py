"""Keys to partitions and back."""

import pytest

from pipelines.feeds import CUSTOMERS, ORDERS, PRICES
from pipelines.sources.feed import OutsideLayout


def test_an_order_file_belongs_to_its_hour() -> None:
    key = "orders/dt=2026-10-01/hour=07/a b+ü.csv"
    assert ORDERS.partition_of(key) == "2026-10-01-07:00"
    assert key.startswith(ORDERS.prefix_of("2026-10-01-07:00"))


def test_a_price_file_belongs_to_its_day() -> None:
    assert PRICES.partition_of("prices/dt=2026-10-01/p.csv") == "2026-10-01"
    assert PRICES.prefix_of("2026-10-01") == "prices/dt=2026-10-01/"


def test_the_customers_file_is_not_partitioned() -> None:
    assert CUSTOMERS.partition_of("customers/latest.csv") is None


@pytest.mark.parametrize(
    "key",
    [
        "orders/a.csv",
        "orders/dt=2026-13-01/hour=07/a.csv",
        "orders/dt=2026-10-01/hour=24/a.csv",
        "orders/dt=2026-10-01/hour=07/deeper/a.csv",
        "prices/dt=2026-10-01/a.csv",
        "customers/latest.csv",
    ],
)
def test_a_key_outside_the_layout_is_refused_by_name(key: str) -> None:
    with pytest.raises(OutsideLayout, match="orders"):
        ORDERS.partition_of(key)
