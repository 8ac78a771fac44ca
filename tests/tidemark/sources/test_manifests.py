"""A message is a manifest, or says why it is none."""

import json
from typing import Any

import pytest

from dagster_tidemark.sources.manifests import DeliveryManifest, NoManifest, read_manifest

SHA, MD5 = "a" * 64, "b" * 32


def body(*files: Any, delivery_id: Any = "d-1") -> str:
    return json.dumps({"delivery_id": delivery_id, "files": list(files)})


def file(key: Any = "a.csv", **more: Any) -> dict[str, Any]:
    return {"key": key, "sha256": SHA} | more


def read(said: str) -> DeliveryManifest:
    return read_manifest(said, "deliveries/")


def test_manifest_keys_may_be_relative_or_complete() -> None:
    manifest = read(body(file("x/ü +.csv", size=7), file("deliveries/d-1/b.csv", sha256=SHA.upper(), md5=MD5)))
    assert [(f.path, f.size, dict(f.checksums)) for f in manifest.files] == [
        ("x/ü +.csv", 7, {"sha256": SHA}),
        ("b.csv", None, {"sha256": SHA, "md5": MD5}),
    ]
    assert [manifest.key_of(f) for f in manifest.files] == ["deliveries/d-1/x/ü +.csv", "deliveries/d-1/b.csv"]


def test_manifest_digest_ignores_order_and_notation_of_files() -> None:
    said = body(file("a.csv"), file("b.csv", sha256=None, md5=MD5))
    same = body(file("deliveries/d-1/b.csv", sha256=None, md5=MD5.upper()), file("a.csv", comment="x"))
    assert read(said).digest == read(same).digest
    others = [body(file("a.csv")), body(file("a.csv", size=0)), body(file("a.csv", sha256="c" * 64)), said]
    assert len({read(other).digest for other in others}) == len(others)


@pytest.mark.parametrize(
    "key",
    [
        "../d-2/a.csv",
        "x/../../a.csv",
        "/a.csv",
        "deliveries/d-2/a.csv",
        "deliveries/d-1/../a.csv",
        "x//a.csv",
        "a\\b.csv",
        "s3://landing/deliveries/d-1/a.csv",
        "./a.csv",
        "folder/",
        "a\n.csv",
    ],
)
def test_manifest_path_outside_the_delivery_folder_is_marked(key: str) -> None:
    inside, outside = read(body(file(), file(key))).files
    assert (inside.outside, bool(outside.outside)) == ("", True)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("complete!", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        (body(file(), delivery_id=None), "delivery_id"),
        (body(file(), delivery_id="../x"), "delivery_id"),
        (body(file(), delivery_id="a/b"), "delivery_id"),
        (body(file(), delivery_id=""), "delivery_id"),
        (body(), "at least one file"),
        ('{"delivery_id": "d-1", "files": {"key": "a.csv"}}', "at least one file"),
        (body("a.csv"), "expected an object"),
        (body(file(7)), "key"),
        (body(file(sha256=None)), "add sha256"),
        (body(file(sha256="abc")), "64 hexadecimal digits"),
        (body(file(sha256=None, md5=SHA)), "32 hexadecimal digits"),
        (body(file(size=-1)), "size"),
        (body(file(size="7")), "size"),
        (body(file(size=True)), "size"),
        (body(file(size=float("nan"))), "not JSON"),
        (body(file(), file("deliveries/d-1/a.csv")), "2 times"),
        (body(file("\ud800.csv")), "surrogates"),
    ],
)
def test_invalid_manifest_is_refused_with_the_reason(said: str, why: str) -> None:
    with pytest.raises(NoManifest, match=why):
        read(said)
