"""Order lines and master data as bytes, in every format that senders use.

Belongs here: CSV, CSV.gz, JSON lines and Parquet, with the variations that `design.md` allows to senders.
Does not belong here: the content of the rows, and the destination of the bytes. The same rows and the same `Random`
give the same bytes at any time of day.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.demo.grocer import Customer, OrderLine
from pipelines.schemas.core import CUSTOMERS_LANDING, ORDERS_LANDING, PRICES_LANDING

Encoder = Callable[[Sequence[OrderLine], Random], bytes]

_PARQUET_SYSTEMS = 8


def orders_csv(lines: Sequence[OrderLine], random: Random) -> bytes:
    """Return CSV with a header, shuffled columns, and times in one of the ISO 8601 formats."""
    columns, spell = _shuffled(ORDERS_LANDING, random), _spelling(random)
    return _csv(columns, (_spelt(line, spell) for line in lines))


def orders_csv_without_prices(lines: Sequence[OrderLine], random: Random) -> bytes:
    """Return CSV of a till without prices: a required column is missing, so no row can be loaded."""
    columns, spell = _shuffled(ORDERS_LANDING, random), _spelling(random)
    columns.remove("unit_price_usd")
    rows = (_spelt(line, spell) for line in lines)
    return _csv(columns, ({name: row[name] for name in columns} for row in rows))


def orders_csv_with_typing_errors(lines: Sequence[OrderLine], random: Random) -> bytes:
    """Return CSV with three bad rows at the end: one violates a rule, two cannot be parsed."""
    columns, spell = _shuffled(ORDERS_LANDING, random), _spelling(random)
    rows = [_spelt(line, spell) for line in lines]
    errors: tuple[dict[str, object], ...] = ({"discount": 25}, {"quantity": "three"}, {"unit_price_usd": "2,49 EUR"})
    first_free = 1 + max(line.line_number for line in lines)
    typed = [{**rows[0], "line_number": first_free + n, **error} for n, error in enumerate(errors)]
    return _csv(columns, [*rows, *typed])


def orders_csv_gz(lines: Sequence[OrderLine], random: Random) -> bytes:
    """Return `orders_csv` as gzip. The gzip header has no time, so that equal rows give equal bytes."""
    return gzip.compress(orders_csv(lines, random), mtime=0)


def orders_jsonl(lines: Sequence[OrderLine], random: Random) -> bytes:
    """Return one JSON object per line, with numbers as numbers in some files and as text in others."""
    columns, spell = _shuffled(ORDERS_LANDING, random), _spelling(random)
    as_text = random.random() < 0.5

    def record(line: OrderLine) -> dict[str, object]:
        values = asdict(line) | {"ordered_at": spell(line.ordered_at)}
        return {name: str(values[name]) if as_text else _json_value(values[name]) for name in columns}

    return "".join(json.dumps(record(line)) + "\n" for line in lines).encode()


def orders_parquet(lines: Sequence[OrderLine], random: Random) -> bytes:
    """Return Parquet of one of eight systems, each with its own integer widths, money types and time precision."""
    types = _parquet_types(Random(random.randrange(_PARQUET_SYSTEMS)))
    nanoseconds = random.randrange(1_000)
    arrays = {}
    for name in _shuffled(ORDERS_LANDING, random):
        values = [getattr(line, name) for line in lines]
        if name == "ordered_at":
            arrays[name] = _timestamps(values, types[name], nanoseconds)
        elif pa.types.is_floating(types[name]):
            arrays[name] = pa.array([float(value) for value in values], types[name])
        else:
            arrays[name] = pa.array(values, types[name])
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink)
    return sink.getvalue()


def customers_csv(customers: Iterable[Customer]) -> bytes:
    """Return the accounts export as CSV."""
    spell = _spelling(Random(0))
    rows = ({**asdict(customer), "signed_up_at": spell(customer.signed_up_at)} for customer in customers)
    return _csv(list(CUSTOMERS_LANDING), rows)


def prices_csv(costs: dict[int, Decimal]) -> bytes:
    """Return a day's purchase costs, USD per unit, as CSV."""
    rows = ({"product_id": product, "cost_usd": cost} for product, cost in costs.items())
    return _csv(list(PRICES_LANDING), rows)


ORDER_FORMATS: tuple[tuple[str, Encoder], ...] = (
    (".csv", orders_csv),
    (".csv.gz", orders_csv_gz),
    (".jsonl", orders_jsonl),
    (".parquet", orders_parquet),
)


def _spelt(line: OrderLine, spell: Callable[[datetime], str]) -> dict[str, object]:
    return {**asdict(line), "ordered_at": spell(line.ordered_at)}


def _csv(columns: list[str], rows: Iterable[dict[str, object]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _shuffled(columns: Iterable[str], random: Random) -> list[str]:
    names = list(columns)
    random.shuffle(names)
    return names


def _spelling(random: Random) -> Callable[[datetime], str]:
    """Return a function that formats times with a random separator, offset (none means UTC) and precision."""
    separator = random.choice("T ")
    precision = random.choice(("milliseconds", "microseconds"))
    offset = random.choice((None, "Z", UTC, timezone(timedelta(hours=1)), timezone(timedelta(hours=-5))))

    def spell(at: datetime) -> str:
        local = at.astimezone(offset) if isinstance(offset, timezone) else at.astimezone(UTC).replace(tzinfo=None)
        return local.isoformat(sep=separator, timespec=precision) + (offset if isinstance(offset, str) else "")

    return spell


def _json_value(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value


def _parquet_types(random: Random) -> dict[str, pa.DataType]:
    money = (pa.decimal128(18, 4), pa.decimal128(12, 6), pa.decimal128(9, 4), pa.float64())
    share = (pa.decimal128(18, 8), pa.decimal128(4, 3), pa.float64())
    small = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    large = (pa.int32(), pa.int64())
    zone = random.choice((None, "UTC"))
    return {
        "order_id": pa.int64(),
        "line_number": random.choice(small),
        "customer_id": random.choice(large),
        "product_id": random.choice((*large, pa.int16(), pa.uint16())),
        "store_id": random.choice(small),
        "quantity": random.choice(small),
        "unit_price_usd": random.choice(money),
        "discount": random.choice(share),
        "ordered_at": pa.timestamp(random.choice(("ms", "us", "ns")), zone),
    }


def _timestamps(values: list[datetime], of_type: pa.TimestampType, nanoseconds: int) -> pa.Array:
    micros = pa.array(values, pa.timestamp("us", "UTC")).cast(pa.int64())
    if of_type.unit == "ns":
        return pa.array([value * 1_000 + nanoseconds for value in micros.to_pylist()]).cast(of_type)
    if of_type.unit == "ms":
        return pa.array([value // 1_000 for value in micros.to_pylist()]).cast(of_type)
    return micros.cast(of_type)
