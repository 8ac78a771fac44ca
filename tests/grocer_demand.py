"""Features of the sample feed's demand, without Spark; and core/orders of the same days, for tests with it."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pandas as pd

from pipelines.demo import grocer
from pipelines.demo.plan import FILES_AN_HOUR, HOUR

FIRST_DAY = date(2026, 9, 28)


def order_lines(days: int, seed: int = 0) -> Iterator[tuple[datetime, grocer.OrderLine]]:
    """Every order line of so many days, with its hour; corrections left out."""
    first = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC)
    for hour in (first + n * HOUR for n in range(24 * days)):
        for index in range(FILES_AN_HOUR):
            window = (hour + index * HOUR / FILES_AN_HOUR, hour + (index + 1) * HOUR / FILES_AN_HOUR)
            for line in grocer.order_lines(seed, hour, index, window, 100):
                yield hour, line


def features(days: int, seed: int = 0) -> pd.DataFrame:
    """ml/demand_features of the sample feed's first days, whole windows only where there are."""
    units: dict[tuple[date, int, int], int] = defaultdict(int)
    prices: dict[int, float] = {}
    for hour, line in order_lines(days, seed):
        units[hour.date(), line.store_id, line.product_id] += max(line.quantity, 0)
        prices[line.product_id] = float(line.unit_price_usd)
    sold = pd.Series(units).unstack([1, 2]).reindex([FIRST_DAY + timedelta(days=n) for n in range(days)]).fillna(0)
    columns = {
        "quantity": sold,
        "quantity_6_days_before": sold.shift(6),
        "quantity_13_days_before": sold.shift(13),
        "mean_of_7_days": sold.rolling(7, min_periods=1).mean(),
        "mean_of_14_days": sold.rolling(14, min_periods=1).mean(),
    }
    frame = pd.DataFrame({name: values.stack([0, 1], future_stack=True) for name, values in columns.items()})
    frame = frame.rename_axis(["day", "store_id", "product_id"]).reset_index()
    return frame.assign(unit_price_usd=frame["product_id"].map(prices))
