"""From a sample to its rows with no file edited by hand, for five kinds of files: in memory, without Spark."""

import gzip
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dagster_tidemark.cli.app import app
from dagster_tidemark.sources.feed import Feed
from tests.tidemark.lakehouse.parsing.declared import rows_of

BANK = """Umsatzanzeige;Datei erstellt am: 01.12.2025

IBAN;DE12 3456
Nr;Buchung;Betrag;Text
7;08.12.25;-5,00;"Miete; Dezember"
8;31.12.25;2.647,00;-
9;13.12.25;12,50;Zoë
"""
TRAIL = """{"Records": [{"eventID": "a1", "user": {"type": "Root"}}, {"eventID": "a2"}]}"""
IMDB = 'tconst\ttitle\tyear\nt1\t"Carmencita\t1894\nt2\t\\N\t\\N\nt3\t"Pauvre" Pierrot\t1892\nt4\t"Fred\t1894\n'
WALKS: dict[str, tuple[str, bytes, list[tuple[Any, ...]]]] = {
    "German bank export": (
        "a.csv",
        BANK.encode("cp1252"),
        [
            (7, date(2025, 12, 8), Decimal("-5.00"), "Miete; Dezember"),
            (8, date(2025, 12, 31), Decimal("2647.00"), "-"),
            (9, date(2025, 12, 13), Decimal("12.50"), "Zoë"),
        ],
    ),
    "CloudTrail": ("a.json", TRAIL.encode(), [("a1", '{"type": "Root"}'), ("a2", None)]),
    "no header, bars": (
        "a.txt",
        b"7|x|1.5\n8|y|\n9||2.5\n",
        [(7, "x", Decimal("1.5")), (8, "y", None), (9, None, Decimal("2.5"))],
    ),
    "IMDb": (
        "a.tsv",
        IMDB.encode(),
        [("t1", '"Carmencita', 1894), ("t2", None, None), ("t3", '"Pauvre" Pierrot', 1892), ("t4", '"Fred', 1894)],
    ),
    "IIS logs": (
        "a.log",
        b"#Software: Microsoft Internet Information Services 10.0\n#Date: 2026-01-02 00:00:00\n"
        b"#Fields: date time cs-method cs(User-Agent) sc-status\n2026-01-02 00:00:01 GET Mozilla/5.0+(X11) 200\n"
        b"#Date: 2026-01-02 01:00:00\n2026-01-02 01:00:02 GET - -\n",
        [
            (date(2026, 1, 2), "00:00:01", "GET", "Mozilla/5.0+(X11)", 200),
            (date(2026, 1, 2), "01:00:02", "GET", "-", None),
        ],
    ),
    "CloudFront logs": (
        "a.log.gz",
        gzip.compress(b"#Version: 1.0\n#Fields: date x-edge-location sc-bytes c.ip\n2026-01-02\tFRA2\t512\t10.0.0.1\n"),
        [(date(2026, 1, 2), "FRA2", 512, "10.0.0.1")],
    ),
    "comments, no header": (
        "a.csv",
        b"# by hand\n1,a,2026-01-02\n# none on the third\n2,b,2026-01-04\n",
        [(1, "a", date(2026, 1, 2)), (2, "b", date(2026, 1, 4))],
    ),
    "comments below the header alone": ("a.csv", b"n;name\n# none\n1;a\n2;b\n", [(1, "a"), (2, "b")]),
    "comments below a title and the header": (
        "a.csv",
        b"Shops; 2026\nn,name\n# a\n1,a\n2,b\n3,c\n",
        [(1, "a"), (2, "b"), (3, "c")],
    ),
    "texts alone": ("a.csv", b"word,other\nalpha,a\nbeta,b\n", [("alpha", "a"), ("beta", "b")]),
    "comments among texts alone": ("a.csv", b"word,other\n# x\nalpha,a\n", [("alpha", "a")]),
    "a heading inside of quotes is no comment": (
        "a.csv",
        b'n,text\n1,"a\n# b\nc"\n2,#d\n',
        [(1, "a\n# b\nc"), (2, "#d")],
    ),
    "UTF-16 from Excel": ("a.csv", "n\tname\r\n7\tZoë\r\n8\t漢\r\n".encode("utf-16"), [(7, "Zoë"), (8, "漢")]),
}


BY_HAND: dict[str, tuple[tuple[str, ...], bytes, list[tuple[Any, ...]]]] = {
    "lines to skip": (("--skip-lines", "3"), b"x,y\n\njunk;1\nn,name\n1,a\n2,b\n", [(1, "a"), (2, "b")]),
    "lines to skip, no header": (("--skip-lines", "1", "--header", "none"), b"x,y,z\n1,a\n2,b\n", [(1, "a"), (2, "b")]),
    "single quotes": (("--quote", "'"), b"n;name\n1;'a;b'\n2;c\n", [(1, "a;b"), (2, "c")]),
    "quotes without a meaning": (("--quote", "none"), b'n;name\n1;"a\n2;"b"\n', [(1, '"a'), (2, '"b"')]),
    "backslashes": (("--escape", "\\"), b'n,name\n1,a\\,b\n2,"x\\"y"\n', [(1, "a,b"), (2, 'x"y')]),
    "other comments": (("--comment", "%"), b"% x\nn,name\n1,#a\n% y\n2,b\n", [(1, "#a"), (2, "b")]),
    "trailing separators": (
        ("--trailing-separator", "--separator", "|"),
        b"n|name|\n1|a|\n2||\n",
        [(1, "a"), (2, None)],
    ),
    "missing numbers": (("--typed-null", "?"), b"n,name\n1,?\n?,b\n", [(1, "?"), (None, "b")]),
    "times of another zone": (
        ("--timezone", "Europe/Berlin"),
        b"n,at\n1,2026-01-02 12:00:00\n2,2026-07-02T12:00:00+00:00\n",
        [(1, datetime(2026, 1, 2, 11, tzinfo=UTC)), (2, datetime(2026, 7, 2, 12, tzinfo=UTC))],
    ),
    "names of a log": (
        ("--separator", " ", "--names", "day,status"),
        b"#Version: 1.0\n#Fields: date sc-status\n2026-01-02 200\n",
        [(date(2026, 1, 2), 200)],
    ),
}


def test_options_of_json_do_not_hide_its_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"Records": [{"n": 1, "at": "2026-01-02 12:00:00"}, {"n": 2, "at": null}]}'
    expected = [(1, datetime(2026, 1, 2, 11, tzinfo=UTC)), (2, None)]
    assert_walked("a.json", body, expected, tmp_path, monkeypatch, ("--timezone", "Europe/Berlin"))


@pytest.mark.parametrize("name", BY_HAND)
def test_new_feed_takes_the_form_of_a_file_by_hand(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, body, expected = BY_HAND[name]
    assert_walked("a.csv", body, expected, tmp_path, monkeypatch, options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--quote", "''"), "expected quote as one ASCII character or None"),
        (("--skip-lines", "-1"), "expected skip_lines as a number of lines, found -1"),
        (("--skip-lines", "1", "--header", "n"), "skip_lines=1 and header='n' both say where the table begins"),
        (("--skip-lines", "9"), "it has 3 lines"),
        (("--comment", ",", "--separator", ","), "separator and comment are both ','"),
        (("--timezone", "Europe/Atlantis"), "Europe/Atlantis"),
        (("--timezone", "Europe/Berlin"), "timezone 'Europe/Berlin' has no effect: no column is a timestamp"),
    ],
)
def test_new_feed_refuses_options_that_contradict_each_other_or_the_sample(
    options: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = new_feed("a.csv", b"n,name\n1,a\n", tmp_path, monkeypatch, options)
    assert refused.exit_code == 2 and said in refused.output


def test_new_feed_refuses_a_log_whose_fields_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"#Fields: date n\n2026-01-02 1\n#Fields: n date\n1 2026-01-02\n"
    refused = new_feed("a.log", body, tmp_path, monkeypatch)
    assert refused.exit_code == 2 and "it has 2 lines #Fields: with different names" in refused.output


@pytest.mark.parametrize("name", WALKS)
def test_new_feed_reads_its_own_sample_without_edits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, body, expected = WALKS[name]
    assert_walked(key, body, expected, tmp_path, monkeypatch)


def new_feed(
    key: str, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...] = ()
) -> Result:
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "pipelines")
    monkeypatch.setenv("TIDEMARK_PROJECT", str(tmp_path))
    (tmp_path / key).write_bytes(body)
    return CliRunner().invoke(app, ["new", "feed", "walked", "--sample", str(tmp_path / key), "--no-key", *options])


def assert_walked(
    key: str,
    body: bytes,
    expected: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...] = (),
) -> None:
    """Assert that the feed that is written for a sample reads all of its rows."""
    said = new_feed(key, body, tmp_path, monkeypatch, options)
    assert said.exit_code == 0, said.output
    module = tmp_path / "pipelines" / "feeds" / "walked.py"
    found = SimpleNamespace()
    exec(compile(module.read_text(), str(module), "exec"), vars(found))
    feed: Feed = found.FEED
    settings = ("format", "names", "exact", "encoding", "multiline", "suffixes")
    form = {name: getattr(feed, name) for name in settings}

    rows = rows_of(body, feed.columns, key=key, recognized=True, **form)
    assert [row[: len(feed.columns)] for row in rows] == expected, said.output
    assert not any(row[len(feed.columns)] for row in rows)
