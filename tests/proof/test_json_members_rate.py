"""Rows per second of JSON: members of members beside plain members of the same file."""

import json
import time

from dagster_tidemark.lakehouse.parsing.json_rows import rows_of
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.file_format import Shape
from tests.proof.conftest import Report

COUNT = 100_000
COLUMNS = {"id": "bigint", "city": "string", "population": "bigint", "at": "timestamp"}
PLAIN = {"city": ["type"], "population": ["rank"], "at": ["seen"]}
NESTED = {"city": ["properties.city"], "population": ["properties.rank"], "at": ["properties.seen"]}


def body() -> bytes:
    """GeoJSON lines. Each has the same values as plain members and below `properties`."""
    lines = []
    for n in range(COUNT):
        values = {"rank": n, "seen": "2026-01-02T03:04:05Z"}
        of_point = {"properties": {"city": f"c{n % 97}", **values}, "geometry": {"coordinates": [n / 7, n / 9]}}
        lines.append(json.dumps({"id": n, "type": f"c{n % 97}", **values, **of_point}))
    return "\n".join(lines).encode()


def rate(file: MemoryFile, names: dict[str, list[str]]) -> float:
    declared, best = DeclaredContent(COLUMNS, names=names), 0.0
    for _ in range(3):
        began = time.process_time()
        count = sum(rows.count for rows in rows_of(declared, Shape("json"), file, WHOLE))
        assert count == COUNT
        best = max(best, count / (time.process_time() - began))
    return best


def test_members_of_members_are_read_at_half_the_rate_of_plain_members_at_least(report: Report) -> None:
    file = MemoryFile("a.jsonl", body())
    plain, nested = rate(file, PLAIN), rate(file, NESTED)
    figures = {"plain": round(plain), "members of members": round(nested)}
    report("json-members-rate", {"rows per second and core": figures, "ratio": round(nested / plain, 2)})
    assert nested > plain / 2
