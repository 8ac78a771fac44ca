"""Dagster components: a feed or a derived table, declared in `defs.yaml`.

The components make the same assets as `feed_assets` and `table_asset` in Python. Does not belong here: adding
components to a code location (`component_declarations`, `definitions.extend`).

The command `dg` imports this package in every project of the Python environment, so the package imports neither pyspark
nor boto3.
"""

from dagster_tidemark.components.feed_component import FeedComponent
from dagster_tidemark.components.table_component import TableComponent

__all__ = ["FeedComponent", "TableComponent"]
