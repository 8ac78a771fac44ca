"""Order lines: columns computed from a single line.

Belongs here: columns of core/orders that are computed from the landing columns of the same row. Does not
belong here: validation (`lakehouse/loading/load.py`), and computations over several rows (`sales.py` and others).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def order_lines(rows: DataFrame) -> DataFrame:
    """Return `rows` with the added columns `hour` and `revenue_usd`.

    `hour` is the UTC hour of `ordered_at`. `revenue_usd` is quantity x unit_price_usd x (1 - discount), rounded
    half up (away from zero) to 4 places, once. It is null where a factor is null, the quantity has more than nine
    digits, the discount is far outside 0-1, or the amount reaches 10^14 USD: a load rejects such rows.

    Args:
        rows: Rows with the landing columns of orders; other columns pass through.
    """
    # 9 + 18 + 9 digits plus one for each multiplication are 38, the maximum of a decimal: the product is exact with
    # 12 places, and is rounded only once, below. With wider factors Spark would round the product first.
    quantity = F.col("quantity").try_cast("decimal(9,0)")
    share_paid = (F.lit(1) - F.col("discount")).try_cast("decimal(9,8)")
    exact = quantity * F.col("unit_price_usd") * share_paid
    return rows.withColumns(
        {
            "hour": F.date_trunc("hour", F.col("ordered_at")),
            "revenue_usd": F.round(exact, 4).try_cast("decimal(18,4)"),
        }
    )
