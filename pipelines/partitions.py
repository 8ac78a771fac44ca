"""The time partitions of the lake, one definition per grain.

Assets with different partitions definitions cannot share a run, so no other module of the project builds one.
`end_offset=1` includes the current, unfinished window, so that its table does not start an hour (a day, a
week) late.
"""

import dagster as dg
from dagster_tidemark import load_settings

# An exception to the rule that modules read nothing at import: a partitions definition is an argument of the asset
# decorators, which run at import.
START = load_settings().start_date

QUARTER_HOURS = dg.TimeWindowPartitionsDefinition(
    cron_schedule="*/15 * * * *", fmt="%Y-%m-%d-%H:%M", start=START.strftime("%Y-%m-%d-00:00"), end_offset=1
)
HOURS = dg.HourlyPartitionsDefinition(start_date=START.strftime("%Y-%m-%d-00:00"), end_offset=1)
DAYS = dg.DailyPartitionsDefinition(start_date=START.isoformat(), end_offset=1)
MONTHS = dg.MonthlyPartitionsDefinition(start_date=START.replace(day=1).isoformat(), end_offset=1)
WEEKS = dg.WeeklyPartitionsDefinition(start_date=START.isoformat(), day_offset=1, end_offset=1)

# All upstream partitions that a window overlaps. Some hours of the current day do not exist yet, which Dagster reports
# as an error unless they are allowed.
WITHIN = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)

# An hour and the one before it.
WITH_HOUR_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, allow_nonexistent_upstream_partitions=True)

# The hours of a week and of the week before it. The offset counts downstream partitions.
WITHIN_AND_WEEK_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, allow_nonexistent_upstream_partitions=True)

# The hours of a day and of the 13 days before it.
WITHIN_AND_13_DAYS_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-13, allow_nonexistent_upstream_partitions=True)
