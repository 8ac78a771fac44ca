"""The time partitions of the lake, one definition per grain.

Two definitions that differ in anything cannot share a run, so nothing else in the project builds one.
`end_offset=1` makes the window that is being filled exist: its table does not start an hour (a day, a
week) late.
"""

import dagster as dg
from dagster_tidemark import load_settings

# Read at import, against the rule that nothing is: a partitions definition is an argument of the asset
# decorators, and an import is when those run.
START = load_settings().start_date

HOURS = dg.HourlyPartitionsDefinition(start_date=START.strftime("%Y-%m-%d-00:00"), end_offset=1)
DAYS = dg.DailyPartitionsDefinition(start_date=START.isoformat(), end_offset=1)
MONTHS = dg.MonthlyPartitionsDefinition(start_date=START.replace(day=1).isoformat(), end_offset=1)
WEEKS = dg.WeeklyPartitionsDefinition(start_date=START.isoformat(), day_offset=1, end_offset=1)

# Every partition of another grain that a window overlaps. The current day's hours do not all exist yet, which
# Dagster takes for an error unless told.
WITHIN = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)

# An hour and the one before it.
WITH_HOUR_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, allow_nonexistent_upstream_partitions=True)

# The hours of a week and of the week before it. The offset counts in partitions of the reader.
WITHIN_AND_WEEK_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, allow_nonexistent_upstream_partitions=True)

# The hours of a day and of the 13 days before it.
WITHIN_AND_13_DAYS_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-13, allow_nonexistent_upstream_partitions=True)
