"""Incidents: reports about late and missing data, one for each root cause, sent to the owners of the data.

`causes` finds root causes in the plan and in the doubts of a moment. `lifecycle` opens, grows and closes incidents, and
writes messages to an outbox. `store` keeps both in Dagster's storage. `sender` takes messages from the outbox and hands
them to `channels`. Does not belong here: alerts about readings of a stream (`streams.alerts.worker`).
"""
