"""Kinds of JSON."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from dagster_tidemark.sources.text_formats import Json
from tests.proof.kinds.kind import Kind, Row, packed, text

BASE = {"n": "bigint", "text": "string"}
AT = datetime(2026, 1, 2, 13, 5, tzinfo=UTC)
TIMES = {"n": "bigint", "at": "timestamp", "text": "string"}


def both(n: int, pad: str) -> tuple[int, str]:
    return n, pad


def timed(n: int, pad: str) -> tuple[int, datetime, str]:
    return n, AT, pad


def valued(value: object) -> Row:
    return lambda n, pad: (n, value, pad)


def lines(name: str, of: Callable[[int, str], Any], row: Row = both, columns: Any = BASE, **options: Any) -> Kind:
    """One object per line."""
    return text(name, columns, lambda n, pad: json.dumps(of(n, pad)), row, **{"key": "f.jsonl"} | options)


def written(name: str, of: str, row: Row, kind: str, **options: Any) -> Kind:
    """One object per line, with a value as it is written in JSON."""
    return text(
        name,
        {"n": "bigint", "value": kind, "text": "string"},
        lambda n, pad: f'{{"n": {n}, "value": {of}, "text": "{pad}"}}',
        row,
        **{"key": "f.jsonl"} | options,
    )


def document(
    name: str,
    of: Callable[[list[Any]], Any],
    element: Callable[[int, str], Any],
    row: Row = both,
    *,
    columns: Any = BASE,
    indent: int | None = None,
    pack: Callable[[bytes], bytes] = bytes,
    key: str = "f.json",
    refused: str = "",
    charset: str = "utf-8",
    **options: Any,
) -> Kind:
    """One document."""

    def write(count: int, pad: Callable[[int], str]) -> bytes:
        return pack(json.dumps(of([element(n, pad(n)) for n in range(count)]), indent=indent).encode(charset))

    return Kind(name, columns, write, row, options, key, refused=refused)


def plain(n: int, pad: str) -> dict[str, Any]:
    return {"n": n, "text": pad}


MALFORMED = "the line is no row of this file"
TRAIL = {"format": Json(rows="Records"), "names": {"n": ["eventID"], "text": ["userIdentity.type"]}}


def event(n: int, pad: str) -> dict[str, Any]:
    return {"eventID": n, "userIdentity": {"type": pad, "more": [1, {"type": "x"}]}}


KINDS = [
    lines(
        "lines",
        plain,
        odd=[
            ("{'n': 1}", MALFORMED),
            ('{"n": 1', MALFORMED),
            ('{"n": 1,}', MALFORMED),
            ("// a note", MALFORMED),
            ('{"n": 01}', MALFORMED),
        ],
    ),
    lines("lines in .json, line ends of Windows", plain, key="f.JSON", end="\r\n"),
    lines("lines, gzip", plain, pack=packed, key="f.jsonl.gz"),
    lines("byte order mark", plain, charset="utf-8-sig"),
    lines("UTF-16", plain, charset="utf-16", encoding="utf-16"),
    lines("another ending", plain, key="f.txt", suffixes=(".txt",), format=Json()),
    lines("numbers as texts", lambda n, pad: {"n": str(n), "text": pad}),
    lines(
        "members that lack, and null",
        lambda n, pad: {"n": n, "text": None} if n % 2 else {"n": n, "pad": pad},
        lambda n, pad: (n, None),
    ),
    lines("keys in another order", lambda n, pad: {"text": pad, "x": {"n": 5}, "n": n}),
    lines(
        "renamed members",
        lambda n, pad: {"Nr": n, "text": pad},
        names={"n": ["Nr"]},
        odd=[('{"n": 1, "Nr": 2}', "under 'n' and 'Nr'")],
    ),
    lines("names with points", lambda n, pad: {"user.n": n, "text": pad}, names={"n": ["user.n"]}),
    lines(
        "members of members",
        lambda n, pad: {"user": {"n": n}, "a": {"b": {"c": pad}}},
        names={"n": ["user.n"], "text": ["a.b.c"]},
    ),
    lines(
        "MongoDB: $oid and $date",
        lambda n, pad: {"_id": {"$oid": pad}, "id": {"$numberLong": str(n)}, "when": {"$date": "2026-01-02T13:05:00Z"}},
        timed,
        TIMES,
        names={"n": ["id.$numberLong"], "text": ["_id.$oid"], "at": ["when.$date"]},
    ),
    lines(
        "Logstash: @timestamp",
        lambda n, pad: {"n": n, "@timestamp": "2026-01-02T13:05:00.000Z", "text": pad},
        timed,
        TIMES,
        names={"at": ["@timestamp"]},
    ),
    lines(
        "times of Twitter",
        lambda n, pad: {"n": n, "at": "Fri Jan 02 13:05:00 +0000 2026", "text": pad},
        timed,
        TIMES,
        format=Json(times={"at": "EEE MMM dd HH:mm:ss Z yyyy"}),
    ),
    lines(
        "epoch milliseconds",
        lambda n, pad: {"n": n, "at": 1767359100000, "text": pad},
        timed,
        TIMES,
        format=Json(times={"at": "epoch millis"}),
        odd=[('{"n": -1, "at": "noon"}', "found noon")],
    ),
    lines(
        "epoch seconds with a fraction",
        lambda n, pad: {"n": n, "at": 1767359100, "text": pad},
        timed,
        TIMES,
        format=Json(times={"at": "epoch seconds"}),
    ),
    lines(
        "texts for missing values",
        lambda n, pad: {"n": n, "at": "-", "text": pad},
        lambda n, pad: (n, None, pad),
        TIMES,
        format=Json(nulls=("-",)),
    ),
    lines(
        "escapes of characters",
        lambda n, pad: {"n": n, "text": f'ü 漢 😀 \\ " / {pad}'},
        lambda n, pad: (n, f'ü 漢 😀 \\ " / {pad}'),
        odd=[('{"n": 1, "text": "\\ud83d"}', "not valid Unicode")],
    ),
    lines(
        "line ends inside of texts",
        lambda n, pad: {"n": n, "text": f"a\nb\r\n{pad}"},
        lambda n, pad: (n, f"a\nb\r\n{pad}"),
    ),
    written("20 digits", "12345678901234567890", valued(Decimal("12345678901234567890")), "decimal(38,0)"),
    written(
        "prices stay exact",
        "19.99",
        valued(Decimal("19.99")),
        "decimal(18,2)",
        exact=True,
        odd=[('{"n": -1, "value": 19.990000000000000001}', "19.990000000000000001")],
    ),
    written("whole numbers with a point", "5.0", valued(5), "bigint", odd=[('{"n": -1, "value": 9e99}', "9e99")]),
    written("truth", "true", valued(True), "boolean", odd=[('{"n": -1, "value": {"a": 1}}', '{"a": 1}')]),
    written("lists as texts", '[1, {"a": 1.50}]', valued('[1, {"a": 1.50}]'), "string"),
    written("objects as texts", '{"a": "x\\ny"}', valued('{"a": "x\\ny"}'), "string"),
    written("empty texts", '""', valued(None), "string"),
    written("a name twice in an object", '1, "value": 2', valued(2), "bigint"),
    document("an array in one line", lambda rows: rows, plain),
    Kind(
        "an array as PostgreSQL writes it",
        BASE,
        lambda count, pad: ("[" + ", \n ".join(json.dumps(plain(n, pad(n))) for n in range(count)) + "]\n").encode(),
        both,
        key="f.json",
    ),
    document("an array over lines", lambda rows: rows, plain, indent=2),
    document("an array over lines, gzip", lambda rows: rows, plain, indent=1, pack=packed, key="f.JSON.GZ"),
    document("CloudTrail in one line", lambda rows: {"Records": rows}, event, **TRAIL),
    document(
        "CloudTrail over lines, gzip",
        lambda rows: {"Records": rows},
        event,
        indent=2,
        pack=lambda body: gzip.compress(body, 1),
        key="f.json.gz",
        **TRAIL,
    ),
    document(
        "an array deep inside",
        lambda rows: {"data": {"more": [], "items": rows}},
        plain,
        format=Json(rows="data.items"),
    ),
    document(
        "Elasticsearch: hits in hits",
        lambda rows: {"took": 1, "hits": {"total": 5, "hits": rows}},
        lambda n, pad: {"_id": "x", "_source": {"n": n, "text": pad}},
        format=Json(rows="hits.hits"),
        names={"n": ["_source.n"], "text": ["_source.text"]},
    ),
    document(
        "GeoJSON",
        lambda rows: {"type": "FeatureCollection", "features": rows},
        lambda n, pad: {
            "type": "Feature",
            "properties": {"n": n, "city": pad},
            "geometry": {"type": "Point", "coordinates": [8.5, 47.4]},
        },
        lambda n, pad: (n, pad, '{"type": "Point", "coordinates": [8.5, 47.4]}'),
        columns=BASE | {"geometry": "string"},
        format=Json(rows="features"),
        names={"n": ["properties.n"], "text": ["properties.city"]},
    ),
    document(
        "an object that holds an array, not declared",
        lambda rows: {"meta": 1, "Records": rows},
        event,
        refused="let the feed say format=Json(rows='Records')",
    ),
    document(
        "an array of arrays", lambda rows: rows, lambda n, pad: [n, pad], refused="no line of it is a JSON object"
    ),
    Kind(
        "objects one after another, without line ends (Firehose)",
        BASE,
        lambda count, pad: "".join(json.dumps(plain(n, pad(n))) for n in range(count)).encode(),
        both,
        key="f.jsonl",
        refused="no line of it is a JSON object",
    ),
    Kind(
        "objects one after another over lines",
        BASE,
        lambda count, pad: "".join(json.dumps(plain(n, pad(n)), indent=1) for n in range(count)).encode(),
        both,
        {"multiline": True},
        key="f.json",
        refused="no line of it is a JSON object",
    ),
    Kind(
        "an array that ends early",
        BASE,
        lambda count, pad: json.dumps({"Records": [plain(n, pad(n)) for n in range(count)]})[:-2].encode(),
        both,
        {"format": Json(rows="Records")},
        key="f.json",
        refused="unterminated JSON",
    ),
]
