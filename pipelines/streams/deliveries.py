"""Order lines that partners deliver: files in a folder of their own, and a message once all are there."""

from dataclasses import replace

from dagster_tidemark import from_env
from dagster_tidemark.streams import Deliveries

from pipelines.feeds.orders import ORDERS
from pipelines.schemas.core import DELIVERIES
from pipelines.transforms.orders import order_lines

# A delivery is of no hour.
_RULES = {reason: rule for reason, rule in ORDERS.rules.items() if reason != "wrong_hour"}

DELIVERED_ORDERS = Deliveries(
    name="deliveries",
    like=replace(ORDERS, rules=_RULES),
    table=DELIVERIES,
    queue=from_env("TIDEMARK_DELIVERIES_QUEUE", default="deliveries"),
    answers=from_env("TIDEMARK_DELIVERY_ANSWERS_QUEUE", default="delivery-answers"),
    code_version="1",
    transform=order_lines,
)
