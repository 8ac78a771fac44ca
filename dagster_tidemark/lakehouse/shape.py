"""Last step of every transform: selection of the columns that the table declares.

Belongs here: order and types of columns. Does not belong here: defaults for missing values.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def shaped_as(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return one row per row of `frame`, with exactly a table's declared columns in their order and types.

    A value that does not fit its column (a total of 10^14 USD and more) fails the query under Spark's ANSI mode, which
    is its default: no number is truncated silently.
    """
    return frame.select(*[F.col(name).cast(sql_type).alias(name) for name, sql_type in columns.items()])
