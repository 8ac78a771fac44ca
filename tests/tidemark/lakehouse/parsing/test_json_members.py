"""Members of members of JSON objects, read together, against Python's own reader, object by object."""

import json
import random

import pyarrow as pa
import pytest

from dagster_tidemark.lakehouse.parsing import json_objects
from dagster_tidemark.lakehouse.parsing.json_rows import rows_of as read
from dagster_tidemark.lakehouse.parsing.part_of_file import PartOfFile, read_part
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.batch import unrecognized
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.sources.feed import Feed, Grain
from tests.tidemark.lakehouse.parsing.declared import rows_of

NAMES = ["n", "a.b", "a.b.c", "a.c", "x.y.z", 'é."q']
STEPS = ["a", "b", "c", "x", "y", "z", "é", '"q', "a.b", "a.b.c"]


def random_object(rng: random.Random, depth: int) -> str:
    members = []
    for _ in range(rng.randrange(4)):
        name = json.dumps(rng.choice(STEPS), ensure_ascii=rng.random() < 0.3)
        members.append(f"{name}{rng.choice(['', ' '])}:{rng.choice(['', ' '])}{random_value(rng, depth)}")
    return "{" + rng.choice([",", ", "]).join(members) + "}"


def random_value(rng: random.Random, depth: int) -> str:
    if depth and rng.random() < 0.6:
        return random_object(rng, depth - 1)
    return rng.choice(["1.50", "-0", "1e5", "true", "null", '""', '"{\\"b\\":1}"', '"\\u00e9"', '"x:,}"', "[1, {}]"])


def expected(text: str, name: str) -> str | None:
    """The value by the rule in words: the member of the whole name if there is one, else step by step."""
    row = json.loads(text, parse_int=lambda n: Number(n), parse_float=lambda n: Number(n))
    value = row.get(name)
    if name not in row:
        value = row
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else "nested"


class Number(str):
    """A number as it is written."""


@pytest.mark.parametrize("seed", range(6))
def test_members_of_members_are_those_that_json_loads_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(json_objects, "_WORTH_IT", 0)
    texts = [random_object(rng, 3) for _ in range(300)]
    plain = json_objects.is_plain(pa.array(texts))
    assert 100 < plain.sum() < 300, "both readers take some of them"
    body = "\n".join(texts).encode()
    found = rows_of(body, dict.fromkeys(["n0", *(f"c{i}" for i in range(len(NAMES)))], "string"), key="a.jsonl",
                    names={f"c{i}": [name] for i, name in enumerate(NAMES)})  # fmt: skip
    assert len(found) == len(texts)
    for text, row in zip(texts, found, strict=True):
        for name, value in zip(NAMES, row[1:], strict=False):
            wanted = expected(text, name)
            if wanted == "nested":
                assert value is not None and json.loads(value) is not None and value in text
            else:
                assert value == (wanted or None), (text, name)


def test_objects_with_members_of_members_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact rule, which takes twenty times as long, reads none of them."""
    monkeypatch.setattr(json_objects, "_WORTH_IT", 0)
    monkeypatch.setattr("dagster_tidemark.lakehouse.parsing.json_rows._Exact.take", None)
    body = b'{"id":1,"properties":{"city":"Oslo","at":{"day":"2026-01-02"}}}\n' * 3
    columns = {"id": "bigint", "city": "string", "day": "date"}
    names = {"city": ["properties.city"], "day": ["properties.at.day"]}
    rows = rows_of(body, columns, key="a.jsonl", names=names)
    assert [row[:2] for row in rows] == [(1, "Oslo")] * 3 and str(rows[0][2]) == "2026-01-02"


def test_file_is_recognized_by_a_member_of_a_member_alone() -> None:
    declared = DeclaredContent({"city": "string"}, names={"city": ["properties.city"]})
    (rows,) = read(declared, Shape("json"), MemoryFile("a.jsonl", b'{"properties":{"city":"Oslo"}}'), WHOLE)
    assert rows.others is None
    (rows,) = read(declared, Shape("json"), MemoryFile("a.jsonl", b'{"properties":{"town":"Oslo"}}'), WHOLE)
    assert rows.others == ["properties"]


@pytest.mark.parametrize("is_exact", [False, True])
def test_file_with_ids_as_names_has_a_short_report(is_exact: bool) -> None:
    mark = "\\u00e9\\ud800" if is_exact else ""  # half a character: read object by object
    body = "".join(f'{{"id{n}{"x" * 500}{mark}": {n}}}\n' for n in range(9_000)).encode()
    declared, source = DeclaredContent({"city": "string"}), MemoryFile("a.jsonl", body)
    *_, (_, report) = read_part(declared, PartOfFile(0, "a.jsonl", len(body), "", Shape("json"), read, WHOLE), source)
    assert report.rows == 9_000
    assert len(report.to_json()) < 500_000
    refused = unrecognized(Feed("feed", "feed/", Grain.DAY, {"city": "string"}), [report] * 9, Shape("json"))
    assert refused is not None and "found id0x" in str(refused) and "and at least 980 more" in str(refused)
