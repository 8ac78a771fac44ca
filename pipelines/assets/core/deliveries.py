"""core/deliveries: the order lines that partners deliver."""

import dagster as dg

DELIVERIES = dg.AssetSpec(
    key=["core", "deliveries"],
    group_name="core",
    kinds={"iceberg", "pyspark", "sqs"},
    owners=["team:orders"],
    description="One row per order line of a partner's delivery. Files lie below `deliveries/<delivery_id>/` of the "
    "landing bucket; a message with their list and checksums completes them, and then all of them are loaded or none. "
    "The job `shift_deliveries` does it and reports each delivery here. What is refused is in ops.quarantine; every "
    "message is answered.",
)
