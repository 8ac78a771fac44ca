"""The meaning of a body: values as people send them, and values that are refused rather than guessed."""

import itertools
import json
import random
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from dagster_tidemark.lakehouse.append import rows_of
from dagster_tidemark.lakehouse.table import MESSAGE, Table
from dagster_tidemark.sources.received_messages import ReceivedMessage
from dagster_tidemark.streams.decode import DecodedRow, Decoder, Fault, judge_rules, table_rows
from dagster_tidemark.streams.stream_declaration import Stream, StreamRefused
from dagster_tidemark.streams.user_rules import RaisingRules, RuleFails
from tests import pages
from tests.tidemark.streams import avro_registry

KINDS = {
    "a_bigint": ("bigint", pa.int64()),
    "an_int": ("int", pa.int32()),
    "a_double": ("double", pa.float64()),
    "a_float": ("float", pa.float32()),
    "a_decimal": ("decimal(10,2)", pa.decimal128(10, 2)),
    "a_string": ("string", pa.string()),
    "a_boolean": ("boolean", pa.bool_()),
    "a_timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "a_date": ("date", pa.date32()),
}
NUMBERS = ["a_bigint", "an_int", "a_double", "a_float", "a_decimal"]
TIMES = ["a_timestamp", "a_date"]
TABLE = Table("raw.odd", {n: kind for n, (kind, _) in KINDS.items()} | MESSAGE, ("message_id",))
STREAM = Stream("odd", TABLE, queue="odd")
SCHEMA = pa.schema([*((name, kind) for name, (_, kind) in KINDS.items()), ("sent_at", pa.timestamp("us", "UTC"))])
NOW = datetime(2026, 10, 1, tzinfo=UTC)


def read(body: str | bytes, **record: Any) -> DecodedRow | Fault:
    raw = body.encode() if isinstance(body, str) else body
    rows, faults = Decoder(STREAM, date(2020, 1, 1)).read([ReceivedMessage(raw, "m", NOW, "sqs:odd", **record)], NOW)
    (found,) = [*rows, *faults]
    return found


def value(column: str, text: str) -> Any:
    """Return the column's value from a member's JSON, or the reason of its refusal."""
    found = read(f'{{"{column}": {text}}}')
    return found.reason if isinstance(found, Fault) else found.fields[column]


@pytest.mark.parametrize("column", NUMBERS)
@pytest.mark.parametrize(
    "text",
    ["true", "false", '"1_000"', '"9_5"', '"1_0.5"', '"true"', '"٣"', '"９"', '"0x10"', '"nan"', '"inf"', '"1,5"'],
)
def test_booleans_and_odd_number_texts_are_rejected_as_numbers(column: str, text: str) -> None:
    assert value(column, text) == "bad_type"


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        ("a_double", "21.5", 21.5),
        ("a_double", '" 21.5 "', 21.5),
        ("a_double", '"-1e3"', -1000.0),
        ("a_double", '".5"', 0.5),
        ("a_bigint", '"+7"', 7),
        ("a_bigint", '"9223372036854775807"', 2**63 - 1),
        ("a_bigint", '"9223372036854775808"', "bad_type"),
        ("an_int", "7.0", 7),
        ("an_int", "7.5", "bad_type"),
        ("a_decimal", '"12.34"', Decimal("12.34")),
        ("a_decimal", '"12.345"', "bad_type"),
        ("a_double", '""', None),
        ("a_string", "true", "bad_type"),
        ("a_boolean", "true", True),
        ("a_boolean", "7", "bad_type"),
        ("a_float", "3.5e38", "bad_type"),
        ("a_float", '"-1e39"', "bad_type"),
    ],
)
def test_numbers_are_decoded_by_column_type(column: str, text: str, expected: Any) -> None:
    assert value(column, text) == expected


EPOCHS = ["1759312800", "1759312800.5", "-1", "1e9", "1759312800000", "1_759_312_800", "0", "1759312800.", ".5", "inf"]


@pytest.mark.parametrize("column", TIMES)
@pytest.mark.parametrize("epoch", EPOCHS)
def test_epoch_numbers_are_rejected_as_times(column: str, epoch: str) -> None:
    assert value(column, f'"{epoch}"') == "bad_type"
    assert value(column, f'" {epoch} "') == "bad_type"
    if epoch[0] not in "._i" and "_" not in epoch and epoch[-1] != ".":
        assert value(column, epoch) == "bad_type"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00"])
def test_time_outside_the_utc_range_rejects_only_its_message(text: str) -> None:
    assert value("a_timestamp", f'"{text}"') == "bad_type"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"a_double": 4, "a_double": 9}', "the body has a_double more than once"),
        ('{"a_double": 4, "a_\\u0064ouble": 9}', "the body has a_double more than once"),
        (
            '{"a_double": 4, "a_double": 4, "an_int": 1, "an_int": null}',
            "the body has a_double, an_int more than once",
        ),
        ('{"a_double": 4, "more": 1, "more": 2, "deep": {"a_double": 1, "a_double": 2}}', None),
    ],
)
def test_message_with_a_repeated_column_is_rejected(body: str, said: str | None) -> None:
    found = read(body)
    assert (found.message if isinstance(found, Fault) else None) == said


@pytest.mark.parametrize(
    ("record", "reason", "message"),
    [
        ({"is_null": True}, "no_value", "the record has no value (a tombstone)"),
        (
            {"is_null": True, "headers": (("trace", b"7"), ("\u00fc", None))},
            "no_value",
            "the record has no value, only the headers trace, \u00fc (a tombstone)",
        ),
        ({"headers": (("trace", b"7"),)}, "empty_value", "the body is empty"),
    ],
)
def test_message_without_a_value_is_rejected_with_the_reason(record: dict[str, Any], reason: str, message: str) -> None:
    found = read(b"", topic_id="t", partition=0, offset=3, **record)
    assert isinstance(found, Fault) and (found.reason, found.message) == (reason, message)


def read_by(stream: Stream, body: bytes, **record: Any) -> DecodedRow | Fault:
    rows, faults = Decoder(stream, date(2020, 1, 1)).read(
        [ReceivedMessage(body, "m", NOW, "kafka:odd/0", **record)], NOW
    )
    (found,) = [*rows, *faults]
    return found


def test_kafka_header_is_read_into_its_column_and_overrides_the_body() -> None:
    stream = Stream("odd", TABLE, topic="odd", headers={"a_string": "trace", "a_bigint": "retries"})
    body = b'{"a_string": "of the body", "a_double": 1}'
    for headers, expected in (
        ((("trace", b"t-1"), ("retries", b"2")), ("t-1", 2)),
        ((("trace", b"t-1"), ("trace", b"t-2"), ("retries", b"")), ("t-2", None)),
        ((("trace", None),), (None, None)),
        ((), (None, None)),
        ((("trace", b"\xff"),), "a_string: the header trace is not UTF-8"),
        ((("retries", b"many"),), "a_bigint: expected a number"),
    ):
        found = read_by(stream, body, headers=headers)
        if isinstance(found, Fault):
            assert (
                found.message.startswith(str(expected)) or "a_bigint: Input should be a valid integer" in found.message
            )
        else:
            assert (found.fields["a_string"], found.fields["a_bigint"]) == expected
    with pytest.raises(StreamRefused, match=r"stream odd: headers has trace, which raw\.odd has no columns for"):
        Stream("odd", TABLE, topic="odd", headers={"trace": "trace"})
    with pytest.raises(StreamRefused, match="stream odd: headers are those of Kafka's records; set topic="):
        Stream("odd", TABLE, queue="odd", headers={"a_string": "trace"})


def test_custom_deserializer_gives_a_row_or_a_fault_and_raises_outages() -> None:
    def of_parts(body: bytes) -> Any:
        if body == b"outage":
            raise ConnectionRefusedError("the registry does not answer")
        if body == b"list":
            return [1]
        name, number = body.split(b"\x00")
        return {"a_string": name.decode(), "a_bigint": int(number), "a_timestamp": NOW, "more": object()}

    stream = Stream("odd", TABLE, queue="odd", deserialize=of_parts)
    found = read_by(stream, b"a\x007")
    assert isinstance(found, DecodedRow)
    assert [found.fields[c] for c in ("a_string", "a_bigint", "a_timestamp", "a_double")] == ["a", 7, NOW, None]
    for body, reason, message, content in (
        (b"\xff\x007", "not_deserialized", "deserialize raises UnicodeDecodeError", "/wA3"),
        (b"list", "not_deserialized", "deserialize raises TypeError: expected the fields by name, found '[1]'", "list"),
        (b"a\x00" + b"9" * 30, "bad_type", "a_bigint", "a\x00999"),
        (b"", "empty_value", "the body is empty", ""),
    ):
        fault = read_by(stream, body)
        assert isinstance(fault, Fault) and fault.reason == reason, body
        assert fault.message.startswith(message) and fault.content.startswith(content)
        assert bool(fault.raised) == (reason == "not_deserialized")
    with pytest.raises(ConnectionRefusedError):
        read_by(stream, b"outage")
    with pytest.raises(StreamRefused, match="deserialize is a function of a body, not 'avro'"):
        Stream("odd", TABLE, queue="odd", deserialize="avro")  # type: ignore[arg-type]


def test_documented_avro_deserializer_reads_by_the_registry_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    module: dict[str, Any] = {}
    (code,) = (code for code in pages.blocks(pages.page("streams-reference.md"), "python") if "def from_avro" in code)
    exec(compile(code, "streams-reference.md", "exec", dont_inherit=True), module)
    fastavro = ModuleType("fastavro")
    vars(fastavro)["schemaless_reader"] = avro_registry.schemaless_reader
    monkeypatch.setitem(sys.modules, "fastavro", fastavro)
    with avro_registry.registry() as address:
        monkeypatch.setenv("ACME_SCHEMA_REGISTRY", address)
        found = module["from_avro"](avro_registry.written("ü", NOW, -1.5))
        assert found == {"gadget": "ü", "at": NOW, "strength": -1.5}
        with pytest.raises(ValueError, match="the registry has no schema 8"):
            module["from_avro"](avro_registry.written("ü", NOW, -1.5, schema_id=8))
    module["SCHEMAS"].clear()
    with pytest.raises(OSError):
        module["from_avro"](avro_registry.written("ü", NOW, -1.5))


def test_deserializer_failing_on_every_message_rejects_none() -> None:
    stream = Stream("odd", TABLE, queue="odd", deserialize=lambda body: {"a_bigint": {b"x": "x"}[body]})

    def faults_of(*bodies: bytes) -> list[Fault]:
        records = [ReceivedMessage(body, f"m{n}", NOW, "sqs:odd") for n, body in enumerate(bodies)]
        return Decoder(stream, date(2020, 1, 1)).read(records, NOW)[1]

    with pytest.raises(RuleFails, match="the rule deserialize raises on every message: KeyError: b'a'"):
        judge_rules(stream, RaisingRules("odd"), faults_of(b"a", b"b", b"c", b"d", b""), has_rows=False)
    judge_rules(stream, RaisingRules("odd"), faults_of(b"a", b"b", b"c", b"d", b"x"), has_rows=False)


ODD = [
    *("true", "false", "null", "0", "-0.0", "1e400", "1" * 400, "1e-400", "-1", "3.7", "[]", "{}", "[1]", '{"a": 1}'),
    *(f'"{text}"' for text in ("", " ", "1_0", "1e5", "-", "+", "1e", "e1", "NaN", "null", "true", "x" * 20_000)),
    *(
        f'"{text}"'
        for text in ("2026-10-01", "2026-10-01T10", "2026-13-01", "0000-00-00", "10:00", "1e99999", "\\u0000")
    ),
    *(f'"{text}"' for text in ("9999-12-31T23:59:60Z", "2026-10-01T10:00:00+99:00", "\\ud800", "\\ud83d\\ude00", "é")),
]


def test_odd_values_reject_only_their_message() -> None:
    bodies = [f'{{"{column}": {text}}}' for column, text in itertools.product(KINDS, ODD)]
    die = random.Random(7)
    bodies += [
        '{"a_double": ' + "".join(die.choices('0123456789eE+-._"tfn[]{}, ', k=die.randint(1, 9))) + "}"
        for _ in range(3000)
    ]
    bodies += ["[" * 3000, '{"a":' * 3000, "nul", "\ufeff{}", '{"a_string": "\x01"}']
    for body in bodies:
        found = read(body)
        if isinstance(found, Fault):
            assert found.reason in ("bad_type", "malformed", "not_utf8"), body
            found.message.encode()
            continue
        made = rows_of(SCHEMA, table_rows(STREAM, [found])).to_pylist()[0]
        said = json.loads(body, parse_int=Decimal, parse_float=Decimal)
        for column in NUMBERS:
            given = said.get(column)
            if made[column] is not None:
                assert not isinstance(given, bool) and "_" not in str(given), body
                assert float(made[column]) == pytest.approx(float(given), rel=1e-6), body
