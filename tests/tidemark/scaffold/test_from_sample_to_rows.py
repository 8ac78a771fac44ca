"""From a sample to its rows with no file edited by hand, for five kinds of files: in memory, without Spark."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

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
    "UTF-16 from Excel": ("a.csv", "n\tname\r\n7\tZoë\r\n8\t漢\r\n".encode("utf-16"), [(7, "Zoë"), (8, "漢")]),
}


@pytest.mark.parametrize("name", WALKS)
def test_new_feed_reads_its_own_sample_without_edits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, body, expected = WALKS[name]
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "pipelines")
    monkeypatch.setenv("TIDEMARK_PROJECT", str(tmp_path))
    (tmp_path / key).write_bytes(body)

    said = CliRunner().invoke(app, ["new", "feed", "walked", "--sample", str(tmp_path / key), "--no-key"])
    assert said.exit_code == 0, said.output
    module = tmp_path / "pipelines" / "feeds" / "walked.py"
    found = SimpleNamespace()
    exec(compile(module.read_text(), str(module), "exec"), vars(found))
    feed: Feed = found.FEED
    settings = ("format", "names", "exact", "encoding", "multiline", "suffixes")
    options = {name: getattr(feed, name) for name in settings}

    rows = rows_of(body, feed.columns, key=key, recognized=True, **options)
    assert [row[: len(feed.columns)] for row in rows] == expected, said.output
    assert not any(row[len(feed.columns)] for row in rows)
