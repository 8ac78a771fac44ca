"""The last step of every transform: the columns that the table declares.

Belongs here: order and types of columns. Does not belong here: a default for a value that is missing.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def shaped_as(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """One row per row of `frame`, with exactly a table's declared columns in their order and types.

    A value that does not fit its column (a total of 10^14 USD and more) ends the query under Spark's ANSI mode,
    which is its default: no number is cut in silence.
    """
    return frame.select(*[F.col(name).cast(sql_type).alias(name) for name, sql_type in columns.items()])
