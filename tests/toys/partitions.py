"""The toy's partitions: one definition per grain, and the mapping between grains."""

import dagster as dg

HOURS = dg.HourlyPartitionsDefinition(start_date="2026-09-28-00:00", end_offset=1)
DAYS = dg.DailyPartitionsDefinition(start_date="2026-09-28", end_offset=1)
WEEKS = dg.WeeklyPartitionsDefinition(start_date="2026-09-28", day_offset=1, end_offset=1)
WITHIN = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
