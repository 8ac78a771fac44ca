"""The parts of Dagster that are not annotated as public, behind plain functions and a few types.

An upgrade of Dagster may break everything here, and nothing elsewhere. tests/tidemark/dagster_internals has a contract
test of each name, and `make check` refuses imports of Dagster's private modules anywhere else. Belongs here: what
Dagster has no public API for. Does not belong here: any decision. The simulator stays outside, because it replaces
Dagster's clock, storages and daemon, so that it consists of private parts only and runs in no production.
"""
