"""Order lines as bytes, in each format that lands: columns in any order, times and numbers spelled in several ways."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.toys.schemas import ORDERS_LANDING


@dataclass(frozen=True)
class OrderLine:
    """One line of an order; `ordered_at` in UTC."""

    order_id: int
    line_number: int
    customer_id: int
    product_id: int
    store_id: int
    quantity: int
    unit_price_usd: Decimal
    discount: Decimal
    ordered_at: datetime


Encoder = Callable[[Sequence[OrderLine], Random], bytes]


def as_csv(lines: Sequence[OrderLine], random: Random) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _columns(random), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_as_text(line, random) for line in lines)
    return text.getvalue().encode()


def as_csv_gz(lines: Sequence[OrderLine], random: Random) -> bytes:
    return gzip.compress(as_csv(lines, random), mtime=0)


def as_json_lines(lines: Sequence[OrderLine], random: Random) -> bytes:
    columns = _columns(random)
    rows = ({name: text[name] for name in columns} for text in (_as_text(line, random) for line in lines))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(lines: Sequence[OrderLine], random: Random) -> bytes:
    types = dict.fromkeys(ORDERS_LANDING, random.choice([pa.int32(), pa.int64()])) | {
        "unit_price_usd": pa.decimal128(18, 4),
        "discount": random.choice([pa.decimal128(9, 4), pa.float64()]),
        "ordered_at": pa.timestamp(random.choice(["ms", "us", "ns"]), "UTC"),
    }
    as_types = {"discount": float} if types["discount"] == pa.float64() else {}
    arrays = {
        name: pa.array([as_types.get(name, lambda value: value)(getattr(line, name)) for line in lines], types[name])
        for name in _columns(random)
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink)
    return sink.getvalue()


ORDER_FORMATS: tuple[tuple[str, Encoder], ...] = (
    (".csv", as_csv),
    (".csv.gz", as_csv_gz),
    (".jsonl", as_json_lines),
    (".parquet", as_parquet),
)


def _columns(random: Random) -> list[str]:
    return random.sample(list(ORDERS_LANDING), len(ORDERS_LANDING))


def _as_text(line: OrderLine, random: Random) -> dict[str, str]:
    at = line.ordered_at.replace(tzinfo=None).isoformat(random.choice("T "), "milliseconds")
    return {name: str(value) for name, value in asdict(line).items()} | {"ordered_at": at + random.choice(["", "Z"])}
