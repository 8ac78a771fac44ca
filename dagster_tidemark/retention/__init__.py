"""Retention: deletes old runs, events, check results, ticks and notes, without a change of any decision."""
