"""Access to parts of Dagster that are not public, through plain functions and a few types.

An upgrade of Dagster may break the code here, but no other code. tests/tidemark/dagster_internals has a contract test
for each name, and `make check` refuses imports of Dagster's private modules anywhere else. Belongs here: functions that
Dagster's public API lacks. Does not belong here: decisions. Only the simulator also imports private modules, because it
replaces Dagster's clock, storages and daemon. It never runs in production.
"""
