"""What the tables must hold, computed a second time: with DuckDB, from files and messages, by design.md alone.

Belongs here: the independent answer, and the comparison with it. Does not belong here: anything imported from
`pipelines`; an oracle that shares code with what it judges repeats its mistakes. Longer than 250 lines, so that all
it claims can be read in one place.

Not judged: `loaded_by` (an asset's, not the data's), and order_stats of days that were computed with an earlier
customers file and are older than the seven days a new one reaches: the expected one always uses the file that lies
there now.
"""

import csv
import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

_ORDERS = {
    "order_id": "BIGINT",
    "line_number": "BIGINT",
    "customer_id": "BIGINT",
    "product_id": "BIGINT",
    "store_id": "BIGINT",
    "quantity": "BIGINT",
    "unit_price_usd": "DECIMAL(18,4)",
    "discount": "DECIMAL(18,8)",
    "ordered_at": "TIMESTAMP",
}
_CUSTOMERS = {
    "customer_id": "BIGINT",
    "name": "VARCHAR",
    "email": "VARCHAR",
    "segment": "VARCHAR",
    "nation": "VARCHAR",
    "signed_up_at": "TIMESTAMP",
}
_PRICES = {"product_id": "BIGINT", "cost_usd": "DECIMAL(18,4)"}

_LAYOUTS = {
    "orders": (re.compile(r"orders/dt=(\d{4}-\d{2}-\d{2})/hour=(\d{2})/[^/]+"), _ORDERS),
    "customers": (re.compile(r"customers/latest\.csv"), _CUSTOMERS),
    "prices": (re.compile(r"prices/dt=(\d{4}-\d{2}-\d{2})/[^/]+\.csv"), _PRICES),
}

_SUFFIXES = (".csv", ".csv.gz", ".jsonl", ".json", ".parquet")
_LINEAGE = "source_file, source_version, arrived_at"

# Rows with a value that is not of its type, or without one that is required, are turned away; so are lines outside
# their partition's hour or with a discount outside 0-1, and quantities of ten digits. Of the rest the last arrival
# wins.
_SQL = {
    "core.orders": f"""
        SELECT {", ".join(_ORDERS)}, date_trunc('hour', ordered_at)::TIMESTAMP AS hour,
            -- DECIMAL(36,12): exact. DuckDB rounds a decimal half away from zero.
            round(quantity::DECIMAL(9,0) * unit_price_usd::DECIMAL(18,4) * (1 - discount)::DECIMAL(9,8), 4)
                ::DECIMAL(18,4) AS revenue_usd,
            {_LINEAGE}
        FROM (FROM landed_orders WHERE NOT broken AND NOT ({" OR ".join(f"{name} IS NULL" for name in _ORDERS)})
              AND discount BETWEEN 0 AND 1 AND abs(quantity) < 1000000000
              AND date_trunc('hour', ordered_at) = partition_start)
        QUALIFY row_number() OVER (
            PARTITION BY date_trunc('hour', ordered_at), order_id, line_number
            ORDER BY arrived_at DESC, source_file DESC, position DESC) = 1""",
    "core.customers": f"""
        SELECT {", ".join(_CUSTOMERS)}, {_LINEAGE} FROM landed_customers
        WHERE NOT broken AND customer_id IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY position DESC) = 1""",
    "core.prices": f"""
        SELECT partition_start::DATE AS day, product_id, cost_usd, {_LINEAGE} FROM landed_prices
        WHERE NOT broken AND product_id IS NOT NULL AND cost_usd IS NOT NULL
        QUALIFY row_number() OVER (
            PARTITION BY partition_start, product_id
            ORDER BY arrived_at DESC, source_file DESC, position DESC) = 1""",
    "marts.sales_hourly": """
        SELECT hour, store_id, count(DISTINCT order_id) AS orders, count(*) AS lines,
            sum(quantity)::BIGINT AS quantity, sum(revenue_usd)::DECIMAL(18,4) AS revenue_usd
        FROM "core.orders" GROUP BY hour, store_id""",
    "marts.sales_daily": """
        SELECT hour::DATE AS day, product_id,
            sum(quantity)::BIGINT AS quantity, sum(revenue_usd)::DECIMAL(18,4) AS revenue_usd
        FROM "core.orders" GROUP BY hour::DATE, product_id""",
    # Needs both inputs: without any customers file there is no such table yet.
    "marts.order_stats": """
        SELECT hour::DATE AS day, coalesce(segment, 'unknown') AS segment,
            count(DISTINCT order_id) AS orders, count(*) AS lines, count(DISTINCT customer_id) AS buyers,
            sum(revenue_usd)::DECIMAL(18,4) AS revenue_usd
        FROM "core.orders" LEFT JOIN "core.customers" USING (customer_id)
        WHERE EXISTS (FROM landed_customers)
        GROUP BY ALL""",
    # A day without any price file blocks the mart; a product that is missing in a present file has no cost.
    "marts.margin_hourly": """
        WITH sold AS (
            SELECT hour, product_id, sum(quantity)::BIGINT AS quantity, sum(revenue_usd)::DECIMAL(18,4) AS revenue_usd
            FROM "core.orders" WHERE hour::DATE IN (SELECT partition_start::DATE FROM landed_prices) GROUP BY ALL),
        costed AS (
            SELECT hour, sold.product_id, revenue_usd,
                (quantity::DECIMAL(19,0) * p.cost_usd::DECIMAL(18,4))::DECIMAL(18,4) AS cost_usd
            FROM sold LEFT JOIN "core.prices" p ON p.product_id = sold.product_id AND p.day = hour::DATE)
        SELECT hour, product_id, revenue_usd, cost_usd, (revenue_usd - cost_usd)::DECIMAL(18,4) AS margin_usd
        FROM costed""",
    # Needs margins of the day: without any price file in it there is no such row yet.
    "marts.executive_rollup": """
        WITH totals AS (
            SELECT hour::DATE AS day, count(DISTINCT order_id) AS orders, sum(revenue_usd)::DECIMAL(18,4) AS revenue_usd
            FROM "core.orders" GROUP BY ALL),
        stores AS (
            SELECT hour::DATE AS day, store_id, sum(revenue_usd) AS earned FROM "core.orders" GROUP BY ALL),
        tops AS (FROM stores QUALIFY row_number() OVER (PARTITION BY day ORDER BY earned DESC, store_id) = 1),
        margins AS (
            SELECT hour::DATE AS day, sum(margin_usd)::DECIMAL(18,4) AS margin_usd
            FROM "marts.margin_hourly" GROUP BY ALL)
        SELECT day, orders, revenue_usd, margin_usd, store_id AS top_store_id
        FROM totals JOIN tops USING (day) JOIN margins USING (day)""",
    # To the week before, as a share; in whole numbers, so that rounding is exact.
    "marts.weekly_review": """
        WITH weeks AS (
            SELECT date_trunc('week', hour)::DATE AS week, store_id, count(DISTINCT order_id) AS orders,
                sum(revenue_usd)::DECIMAL(18,4) AS revenue_usd,
                (sum(revenue_usd)::DECIMAL(18,4) * 10000)::HUGEINT AS units
            FROM "core.orders" GROUP BY ALL),
        compared AS (
            SELECT now.*, earlier.units AS before, (now.units - earlier.units) * 10000 AS change
            FROM weeks now LEFT JOIN weeks earlier
                ON earlier.store_id = now.store_id AND earlier.week = now.week - 7 AND earlier.units > 0)
        SELECT week, store_id, orders, revenue_usd,
            (sign(change) * ((2 * abs(change) + before) // (2 * before)) / 10000::DECIMAL(9,0))::DECIMAL(18,4)
                AS revenue_change
        FROM compared""",
    # Of every day on which, or within 13 days before which, anything was ordered.
    "ml.demand_features": """
        WITH sold AS (
            SELECT hour::DATE AS sold_on, store_id, product_id, sum(greatest(quantity, 0))::BIGINT AS units
            FROM "core.orders" GROUP BY ALL),
        open_days AS (SELECT DISTINCT sold_on FROM sold),
        days AS (SELECT DISTINCT (sold_on + age::INTEGER)::DATE AS day FROM open_days, range(14) ages(age)),
        products AS (
            SELECT DISTINCT day, store_id, product_id FROM days JOIN sold ON sold_on BETWEEN day - 13 AND day),
        filled AS (  -- each product of a day with each of the 14 days that had orders
            SELECT p.*, (p.day - o.sold_on)::INTEGER AS age, coalesce(s.units, 0) AS units
            FROM products p JOIN open_days o ON o.sold_on BETWEEN p.day - 13 AND p.day
            LEFT JOIN sold s ON s.sold_on = o.sold_on AND s.store_id = p.store_id AND s.product_id = p.product_id),
        summed AS (
            SELECT day, store_id, product_id,
                (sum(units) FILTER (age = 0))::BIGINT AS quantity,
                (sum(units) FILTER (age = 6))::BIGINT AS quantity_6_days_before,
                (sum(units) FILTER (age = 13))::BIGINT AS quantity_13_days_before,
                (sum(units) FILTER (age < 7))::DOUBLE / nullif(count(*) FILTER (age < 7), 0) AS mean_of_7_days,
                sum(units)::DOUBLE / count(*) AS mean_of_14_days
            FROM filled GROUP BY ALL)
        SELECT summed.*, unit_price_usd
        FROM summed JOIN "core.orders" o USING (store_id, product_id)
        WHERE o.hour::DATE BETWEEN day - 13 AND day
        QUALIFY row_number() OVER (
            PARTITION BY day, store_id, product_id ORDER BY ordered_at DESC, order_id DESC, line_number DESC) = 1""",
    "marts.offer_reach": """
        SELECT day, coalesce(segment, 'unknown') AS segment, count(DISTINCT customer_id) AS customers,
            count(DISTINCT product_id) AS products
        FROM "core.prices", "core.customers" GROUP BY ALL""",
}


TABLES = (
    "core.customers",
    "core.orders",
    "core.prices",
    "marts.margin_hourly",
    "marts.order_stats",
    "marts.sales_daily",
    "marts.sales_hourly",
)
"""Tables that are built soon after the first files, on any day of the week."""

_SQL_OF_MESSAGES = {
    # Of several messages about one reading the last that was sent.
    "core.readings": """
        SELECT date_trunc('hour', read_at) AS hour, device_id, store_id, read_at, temperature_c, door_open, sent_at
        FROM (SELECT * REPLACE (read_at AT TIME ZONE 'UTC' AS read_at, sent_at AT TIME ZONE 'UTC' AS sent_at)
              FROM messages)
        QUALIFY row_number() OVER (PARTITION BY device_id, read_at ORDER BY sent_at DESC, message_id DESC) = 1""",
    # Every reading against every hour: the part of the hour in which it is the last one, and not older than 15 minutes.
    "marts.hot_spots": """
        WITH hours AS (
            SELECT DISTINCT hour + later * INTERVAL 1 HOUR AS hour FROM "core.readings", range(2) other(later)),
        lasting AS (
            SELECT *, least(read_at + INTERVAL 15 MINUTE, (
                SELECT min(read_at) FROM "core.readings" n WHERE n.device_id = r.device_id AND n.read_at > r.read_at
            )) AS until FROM "core.readings" r),
        parts AS (
            SELECT h.hour, device_id, store_id, read_at, temperature_c,
                epoch_us(least(until, h.hour + INTERVAL 1 HOUR)) - epoch_us(greatest(read_at, h.hour)) AS lasted
            FROM lasting JOIN hours h ON read_at < h.hour + INTERVAL 1 HOUR AND until > h.hour)
        SELECT hour, device_id, arg_max(store_id, read_at) AS store_id,
            coalesce(sum(lasted) FILTER (temperature_c > 8), 0)::BIGINT / 1e6::DOUBLE AS seconds_above_limit,
            max(temperature_c) AS max_temperature_c
        FROM parts GROUP BY hour, device_id""",
}


@dataclass(frozen=True)
class Landed:
    """An object of the landing bucket and its local copy."""

    key: str
    path: Path
    last_modified: datetime
    etag: str = ""
    version_id: str | None = None

    @property
    def source_version(self) -> str:
        """As design.md defines it: the version id if there is one, else ETag, size and time in epoch ms."""
        return self.version_id or f"{self.etag}-{self.path.stat().st_size}-{int(self.last_modified.timestamp() * 1000)}"


@dataclass(frozen=True)
class Expected:
    """The expected tables by name, and the files that could not be taken, with the reason."""

    tables: dict[str, pa.Table]
    rejected_files: dict[str, str]


def download(s3: Any, bucket: str, folder: Path) -> list[Landed]:
    """Copy all objects of a bucket into a folder, where earlier copies stay.

    The copies get digests as names: a key may hold anything.
    """
    folder.mkdir(parents=True, exist_ok=True)
    landed: list[Landed] = []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", []):
            suffix = next((suffix for suffix in _SUFFIXES if entry["Key"].endswith(suffix)), "")
            found = entry["Key"], entry["ETag"].strip('"'), entry["LastModified"].astimezone(UTC)
            path = folder / f"{hashlib.sha256(repr(found).encode()).hexdigest()}{suffix}"
            if not path.exists():
                s3.download_file(bucket, entry["Key"], str(path))
            landed.append(Landed(found[0], path, found[2], found[1]))
    return landed


def expected_tables(landed: Iterable[Landed], *, start_date: date | None = None) -> Expected:
    """The core and mart tables that these objects must become.

    Args:
        landed: What lies in the bucket.
        start_date: Objects of partitions before it are turned away.
    """
    rejected: dict[str, str] = {}
    with duckdb.connect() as db:
        # One thread: a file's rows are numbered in the order in which they are read.
        db.execute("SET threads = 1; SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
        for feed, (_, columns) in _LAYOUTS.items():
            typed = ", ".join(f"{name} {sql_type}" for name, sql_type in columns.items())
            db.execute(
                f"CREATE TABLE landed_{feed} ({typed}, broken BOOLEAN, position BIGINT, partition_start TIMESTAMP, "
                "source_file VARCHAR, source_version VARCHAR, arrived_at TIMESTAMP)"
            )
        for file in landed:
            reason = _take(db, file, start_date)
            if reason:
                rejected[file.key] = reason
        for name, query in _SQL.items():
            db.execute(f'CREATE TABLE "{name}" AS {query}')
        return Expected({name: db.sql(f'FROM "{name}"').to_arrow_table() for name in _SQL}, rejected)


def expected_of_messages(messages: pa.Table) -> dict[str, pa.Table]:
    """The tables that the messages of sensors must become, by name.

    Args:
        messages: device_id, store_id, read_at, temperature_c, door_open, message_id, sent_at; more does no harm.
    """
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("messages", messages)
        for name, query in _SQL_OF_MESSAGES.items():
            db.execute(f'CREATE TABLE "{name}" AS {query}')
        return {name: db.sql(f'FROM "{name}"').to_arrow_table() for name in _SQL_OF_MESSAGES}


def assert_same(table_name: str, expected: pa.Table, actual: pa.Table, *, shown: int = 10) -> None:
    """Fail with a readable difference unless both hold the same rows, in any order, with the same types.

    `actual` may have `loaded_by` beside the expected columns, and nothing else. Times may carry UTC or no zone.
    """
    names = expected.column_names
    found = [name for name in actual.column_names if name != "loaded_by"]
    assert found == names, f"{table_name}: columns are {found}, expected {names}"
    types = {name: (_plain(actual.field(name).type), _plain(expected.field(name).type)) for name in names}
    wrong = {name: f"{is_} instead of {should}" for name, (is_, should) in types.items() if is_ != should}
    assert not wrong, f"{table_name}: types differ: {wrong}"
    expected_rows, actual_rows = _counted(expected, names), _counted(actual, names)
    missing, surplus = expected_rows - actual_rows, actual_rows - expected_rows
    if not missing and not surplus:
        return
    lines = [f"{table_name}: {actual.num_rows} rows, expected {expected.num_rows}; columns {names}"]
    for title, rows in (("missing", missing), ("not expected", surplus)):
        lines.append(f"{rows.total()} {title}")
        lines += [f"  {_readable(row)} x{times}" for row, times in sorted(rows.items(), key=repr)[:shown]]
    raise AssertionError("\n".join(lines))


def _take(db: duckdb.DuckDBPyConnection, file: Landed, start_date: date | None) -> str | None:
    """Put a file's typed rows into its feed's table, or say why it cannot be taken."""
    matches = {feed: layout.fullmatch(file.key) for feed, (layout, _) in _LAYOUTS.items()}
    feed, match = next(((feed, match) for feed, match in matches.items() if match), ("", None))
    if match is None:
        return "outside the layout"
    columns = _LAYOUTS[feed][1]
    try:
        start = datetime.fromisoformat("T".join(match.groups())) if match.groups() else None
    except ValueError:
        return "outside the layout"
    if start and start_date and start.date() < start_date:
        return "before the start date"
    try:
        scan, physical = _scan(db, file.path)
    except (duckdb.Error, OSError, UnicodeDecodeError, EOFError, StopIteration) as error:
        return f"cannot be read: {error}"
    absent = [name for name in columns if name not in physical]
    if absent:
        return f"without the columns {absent}"
    casts = {name: _cast(name, physical[name], sql_type) for name, sql_type in columns.items()}
    broken = " OR ".join(f"({name} IS NOT NULL AND {cast} IS NULL)" for name, cast in casts.items())
    try:
        db.execute(
            f"INSERT INTO landed_{feed} SELECT {', '.join(casts.values())}, {broken}, row_number() OVER (), "
            f"?, ?, ?, ? FROM {scan}",
            [start, file.key, file.source_version, file.last_modified.astimezone(UTC).replace(tzinfo=None)],
        )
    except duckdb.Error as error:
        return f"cannot be read: {error}"
    return None


def _scan(db: duckdb.DuckDBPyConnection, path: Path) -> tuple[str, dict[str, str]]:
    """SQL that reads a file, and the types its columns have there; everything but Parquet is text."""
    if path.name.endswith(".parquet"):
        scan = f"read_parquet('{path}')"
        return scan, {row[0]: row[1] for row in db.execute(f"DESCRIBE FROM {scan}").fetchall()}
    if path.name.endswith((".jsonl", ".json")):
        names = sorted({name for _, columns in _LAYOUTS.values() for name in columns})
        given = ", ".join(f"{name}: 'VARCHAR'" for name in names)
        return (
            f"read_json('{path}', format = 'newline_delimited', columns = {{{given}}})",
            dict.fromkeys(names, "VARCHAR"),
        )
    with gzip.open(path, "rt", newline="") if path.name.endswith(".gz") else path.open(newline="") as text:
        header = next(csv.reader(text))
    given = ", ".join(f"'{name}': 'VARCHAR'" for name in header)
    return (
        f"read_csv('{path}', auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', "
        f"nullstr = '', allow_quoted_nulls = false, columns = {{{given}}})",
        dict.fromkeys(header, "VARCHAR"),
    )


def _cast(name: str, physical: str, wanted: str) -> str:
    """SQL for a column in its wanted type; null where the value is not of it."""
    text = f"trim({name}::VARCHAR)"
    if wanted == "VARCHAR":
        return f"{name}::VARCHAR"
    if wanted == "TIMESTAMP":
        if "NS" in physical:
            return f"make_timestamp(epoch_ns({name}) // 1000)"  # cut, not rounded: an hour does not end early
        if physical == "TIMESTAMP WITH TIME ZONE":
            return f"{name} AT TIME ZONE 'UTC'"
        if physical.startswith("TIMESTAMP"):
            return f"{name}::TIMESTAMP"
        # The session's zone is UTC: that is what a text without an offset means.
        return f"try_cast({text} AS TIMESTAMPTZ) AT TIME ZONE 'UTC'"
    if wanted == "BIGINT":
        return f"CASE WHEN regexp_full_match({text}, '[+-]?[0-9]+') THEN try_cast({text} AS BIGINT) END"
    # Through text also from a double: its shortest spelling is the number that its sender meant.
    return f"try_cast({text} AS {wanted})"


def _plain(of_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(of_type):
        return pa.timestamp("us")
    return pa.string() if pa.types.is_large_string(of_type) else of_type


def _counted(table: pa.Table, names: Sequence[str]) -> Counter[tuple[object, ...]]:
    columns = [table.column(name).cast(_plain(table.field(name).type)).to_pylist() for name in names]
    return Counter(zip(*columns, strict=True))


def _readable(row: tuple[object, ...]) -> str:
    return "(" + ", ".join(str(value) for value in row) + ")"
