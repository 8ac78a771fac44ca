"""Order lines that partners deliver: a folder of files per delivery, and a message when all files are uploaded."""

from dataclasses import replace

from dagster_tidemark import from_env
from dagster_tidemark.streams import Deliveries

from pipelines.feeds.orders import ORDERS
from pipelines.schemas.core import DELIVERIES
from pipelines.transforms.orders import order_lines

# A delivery belongs to no hour.
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
