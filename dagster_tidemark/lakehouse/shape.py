"""Last step of every transform: selection of the columns that the table declares.

Belongs here: the order and types of columns. Does not belong here: defaults for missing values.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def shaped_as(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return one row per row of `frame`, with exactly the given columns, in their order and types.

    In ANSI mode, which is Spark's default, a value that does not fit its column (a total of 10^14 USD or more) fails
    the query. So numbers are never truncated silently.
    """
    return frame.select(*[F.col(name).cast(sql_type).alias(name) for name, sql_type in columns.items()])
