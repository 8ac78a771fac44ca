"""Dagster components: a feed or a derived table, declared in `defs.yaml`.

They give the assets that `feed_assets` and `table_asset` give in Python. Does not belong here: how a code location
takes components over (`component_declarations`, `definitions.extend`).

`dg` imports this package in every project of the environment, so it imports neither pyspark nor boto3.
"""

from dagster_tidemark.components.feed_component import FeedComponent
from dagster_tidemark.components.table_component import TableComponent

__all__ = ["FeedComponent", "TableComponent"]
