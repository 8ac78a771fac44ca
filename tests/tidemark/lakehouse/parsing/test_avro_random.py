"""Avro files of random schemas, written by fastavro, against the values that were written."""

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.proof.kinds import avro_kinds
from tests.sampling import sample
from tests.tidemark.lakehouse.parsing.declared import rows_of

Typed = tuple[Any, str, Any]
"""A type of Avro, the declared type, and a function `(rng)` that returns a value and what is read."""


def same(value: Any) -> tuple[Any, Any]:
    return value, value


def moment(rng: random.Random) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(-(10**9), 10**10))


class Schemas:
    """Random types, each with a name of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"T{self.count}"

    def plain(self) -> Typed:
        rng = self.rng
        logical = avro_kinds.logical
        return rng.choice(
            [
                ("long", "bigint", lambda: same(rng.randrange(-(2**63), 2**63))),
                ("int", "bigint", lambda: same(rng.randrange(-(2**31), 2**31))),
                ("double", "double", lambda: same(rng.uniform(-1e9, 1e9))),
                ("boolean", "boolean", lambda: same(rng.random() < 0.5)),
                ("string", "string", lambda: same(rng.choice(["a", "é漢", '"x"\\', "1"]))),
                (logical("int", "date"), "date", lambda: same(moment(rng).date())),
                (logical("long", "timestamp-millis"), "timestamp", lambda: same(moment(rng))),
                (logical("long", "timestamp-micros"), "timestamp", lambda: same(moment(rng))),
                (
                    logical("bytes", "decimal", precision=12, scale=2),
                    "decimal(18,2)",
                    lambda: same(Decimal(rng.randrange(-(10**12) + 1, 10**12)).scaleb(-2)),
                ),
                ({"type": "enum", "name": self.name(), "symbols": ["A"]}, "string", lambda: same("A")),
            ]
        )  # fmt: skip

    def nested(self, depth: int, *, is_column: bool = False) -> Typed:
        rng = self.rng
        if not depth or (not is_column and rng.random() < 0.3):
            of, _, value = self.plain()
            return of, "string", lambda: in_json(value()[0])
        of, _, inner = self.nested(depth - 1)
        if rng.random() < 0.3:

            def maybe() -> tuple[Any, Any]:
                return inner() if rng.random() < 0.7 else (None, "null")

            of, inner = ["null", of] if not isinstance(of, list) else of, maybe
        kind = rng.choice(["array", "map", "record"])
        if kind == "record":
            members = {f"m{n}": self.nested(depth - 1) for n in range(rng.randrange(1, 3))} | {"x": (of, "", inner)}
            fields = [{"name": name, "type": each[0]} for name, each in members.items()]

            def record() -> tuple[Any, Any]:
                values = {name: each[2]() for name, each in members.items()}
                written = ",".join(f'"{name}":{text}' for name, (_, text) in values.items())
                return {name: value for name, (value, _) in values.items()}, f"{{{written}}}"

            return {"type": "record", "name": self.name(), "fields": fields}, "string", record
        if kind == "array":

            def array() -> tuple[Any, Any]:
                values = [inner() for _ in range(rng.randrange(3))]
                return [value for value, _ in values], f"[{','.join(text for _, text in values)}]"

            return {"type": "array", "items": of}, "string", array

        def mapping() -> tuple[Any, Any]:
            values = {f"k{n}": inner() for n in range(rng.randrange(3))}
            written = ",".join(f'"{name}":{text}' for name, (_, text) in values.items())
            return {name: value for name, (value, _) in values.items()}, f"{{{written}}}"

        return {"type": "map", "values": of}, "string", mapping


def in_json(value: Any) -> tuple[Any, str]:
    """A value, and how Spark writes it in JSON."""
    if isinstance(value, datetime):
        return value, f'"{value:%Y-%m-%d %H:%M:%S.%f}"'
    if isinstance(value, date):
        return value, f'"{value}"'
    if isinstance(value, Decimal):
        return value, format(value, "f")
    if isinstance(value, float):
        return value, "number"
    return value, json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("seed", sample(range(60), *range(10)))
def test_values_of_random_schemas_are_read_as_they_were_written(seed: int) -> None:
    rng = random.Random(seed)
    schemas = Schemas(rng)
    columns: dict[str, Typed] = {f"p{n}": schemas.plain() for n in range(3)}
    columns |= {f"n{n}": schemas.nested(3, is_column=True) for n in range(2)}
    nullable = {name for name in columns if rng.random() < 0.5 and not isinstance(columns[name][0], list)}
    fields = [
        {"name": name, "type": [*rng.sample(["null", of], 2)] if name in nullable else of}
        for name, (of, _, _) in columns.items()
    ]
    rows, wanted = [], []
    for _ in range(50):
        both = {
            name: (None, None) if name in nullable and rng.random() < 0.3 else value()
            for name, (_, _, value) in columns.items()
        }
        rows.append({name: value for name, (value, _) in both.items()})
        wanted.append(tuple(read for _, read in both.values()))
    schema = {"type": "record", "name": "Row", "fields": fields}
    body = avro_kinds.file_of(schema, rows, codec=rng.choice(list(avro_kinds.CODECS)), of_block=7)
    declared = {name: kind for name, (_, kind, _) in columns.items()}
    found = rows_of(body, declared, key="a.avro", about=rng.choice([None, len(body) // 3 + 1]))
    assert len(found) == 50
    for row, expected in zip(found, wanted, strict=True):
        for value, read in zip(row[: len(columns)], expected, strict=True):
            if not (isinstance(read, str) and "number" in read):
                assert value == read, (row, expected)
