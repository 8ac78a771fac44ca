"""What partners deliver to the grocer: order lines as the hourly files have them, of any hour."""

from dataclasses import replace
from decimal import Decimal

from dagster_tidemark import Settings
from pipelines.streams.deliveries import DELIVERED_ORDERS
from tests.tidemark.streams import partner as toys
from tests.tidemark.streams.partner import Partner, csv, line


def test_delivered_order_lines_of_any_hour_are_loaded_with_revenue(cloud: Settings, spark_server: Settings) -> None:
    name = toys.new_name()
    of = replace(
        DELIVERED_ORDERS,
        name=name,
        table=replace(DELIVERED_ORDERS.table, name=f"core.{name}"),
        queue=f"queue-{name}",
        answers=f"answers-{name}",
        prefix=f"{name}/",
    )
    partner = Partner(of, cloud)
    files = [partner.put("d-1", "a.csv", csv(line(1), line(2).replace("07:15", "23:59")))]
    partner.post("d-1", *files)
    assert partner.answer()["status"] == "loaded"
    assert partner.rows(("order_id", "revenue_usd")) == [(1, Decimal("3.3750")), (2, Decimal("3.3750"))]
    partner.post("d-2", partner.put("d-2", "a.csv", csv(line(1).replace(",0.1,", ",1.1,"))))
    assert partner.answer()["reasons"] == {"discount_out_of_range": 1}
