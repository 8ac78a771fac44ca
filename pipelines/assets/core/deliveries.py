"""core/deliveries: the order lines that partners deliver."""

import dagster as dg

DELIVERIES = dg.AssetSpec(
    key=["core", "deliveries"],
    group_name="core",
    kinds={"iceberg", "pyspark", "sqs"},
    owners=["team:orders"],
    description="One row per order line of a partner's delivery. A delivery is the files below "
    "`deliveries/<delivery_id>/` of the landing bucket and a message with their list and checksums. The job "
    "`shift_deliveries` loads all files of a delivery or none, and reports each delivery here. Refused deliveries are "
    "in ops.quarantine; every message gets an answer.",
)
