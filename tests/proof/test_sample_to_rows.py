"""From a sample to its rows in a new project, with no file edited by hand: five kinds of files, on the real platform.

Belongs here: `tidemark init`, `new feed`, the deploy and the file on the bucket, with the seconds of each feed. Does
not belong here: other kinds of files (`tests.proof.test_kinds_of_files`), the installation (`tests.proof.test_init`).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.conftest import JARS
from tests.live.platform import Platform
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.test_own_domain import tidemark

MOST_SECONDS = 180


@dataclass(frozen=True)
class Walk:
    """A sample file and the rows expected from it.

    Args:
        options: Options of `tidemark new feed`.
        columns: The compared columns of the table.
    """

    name: str
    file: str
    body: bytes
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    options: tuple[str, ...] = ()


BANK = """Kontoumsätze Girokonto;;;;;;
Kontonummer;DE02 1203 0000;;;;;
Zeitraum;01.11.2025 - 30.11.2025;;;;;

Buchungstag;Wertstellung;Empfänger;Verwendungszweck;Betrag;Währung;Saldo
28.11.2025;30.11.2025;"Stadtwerke; Köln";Abschlag 11/25;-1.204,50;EUR;3.795,50
03.11.2025;03.11.2025;Müller & Söhne;Gehalt;5.000,00;EUR;5.000,00
12.11.2025;12.11.2025;Bäckerei Groß;"Kauf ""Brezel"" klein";-0,85;EUR;4.999,15
"""
TRAIL = """{"Records":[
{"eventVersion":"1.08","userIdentity":{"type":"IAMUser","userName":"ann"},"eventTime":"2026-10-05T08:12:00Z",
 "eventName":"PutObject","sourceIPAddress":"192.0.2.7","requestParameters":{"bucketName":"landing"},"readOnly":false,
 "eventID":"0c1a7e2e-0001-4a51-9d0e-000000000001"},
{"eventVersion":"1.08","userIdentity":{"type":"AWSService"},"eventTime":"2026-10-05T08:13:30Z",
 "eventName":"GetObject","sourceIPAddress":"config.amazonaws.com","requestParameters":null,"readOnly":true,
 "eventID":"0c1a7e2e-0001-4a51-9d0e-000000000002"}]}
"""
PIPES = b'1007|Ann O\'Hara|2026-10-05|19.90|\n1008|Bo "the" Li||0.05|late\n1009||2026-10-06||\n'
TITLES = (
    "tconst\ttitleType\tprimaryTitle\tisAdult\tstartYear\tendYear\truntimeMinutes\tgenres\n"
    'tt0000009\tmovie\tMiss "Jerry"\t0\t1894\t\\N\t45\tRomance\n'
    'tt0000502\tmovie\t"Bohemios\t0\t1905\t\\N\t100\t\\N\n'
    "tt0035599\ttvSeries\tVoice, & \\of Firestone\t0\t1943\t1947\t\\N\tDrama,Music\n"
)
EXCEL = "Artikel-Nr\tBezeichnung\tPreis\r\n4711\tÄpfel 漢字\t1,99\r\n4712\t\t12,50\r\n"
WALKS = (
    Walk(
        "bank",
        "umsaetze.csv",
        BANK.encode("cp1252"),
        ("Buchungstag", "Wertstellung", "Empfänger", "Verwendungszweck", "Betrag", "Währung", "Saldo"),
        [
            (date(2025, 11, 3), date(2025, 11, 3), "Müller & Söhne", "Gehalt", Decimal(5000), "EUR", Decimal(5000)),
            (
                date(2025, 11, 12),
                date(2025, 11, 12),
                "Bäckerei Groß",
                'Kauf "Brezel" klein',
                Decimal("-0.85"),
                "EUR",
                Decimal("4999.15"),
            ),
            (
                date(2025, 11, 28),
                date(2025, 11, 30),
                "Stadtwerke; Köln",
                "Abschlag 11/25",
                Decimal("-1204.50"),
                "EUR",
                Decimal("3795.50"),
            ),
        ],
        ("--no-key",),
    ),
    Walk(
        "trail",
        "trail.json",
        TRAIL.encode(),
        ("eventID", "eventName", "eventTime", "sourceIPAddress", "readOnly"),
        [
            (
                "0c1a7e2e-0001-4a51-9d0e-000000000001",
                "PutObject",
                datetime(2026, 10, 5, 8, 12, tzinfo=UTC),
                "192.0.2.7",
                False,
            ),
            (
                "0c1a7e2e-0001-4a51-9d0e-000000000002",
                "GetObject",
                datetime(2026, 10, 5, 8, 13, 30, tzinfo=UTC),
                "config.amazonaws.com",
                True,
            ),
        ],
        ("--no-key",),
    ),
    Walk(
        "pipes",
        "customers.txt",
        PIPES,
        ("column_1", "column_2", "column_3", "column_4", "column_5"),
        [
            (1007, "Ann O'Hara", date(2026, 10, 5), Decimal("19.90"), None),
            (1008, 'Bo "the" Li', None, Decimal("0.05"), "late"),
            (1009, None, date(2026, 10, 6), None, None),
        ],
        ("--no-key",),
    ),
    Walk(
        "titles",
        "title.basics.tsv",
        TITLES.encode(),
        ("tconst", "primaryTitle", "isAdult", "startYear", "endYear", "runtimeMinutes", "genres"),
        [
            ("tt0000009", 'Miss "Jerry"', 0, 1894, None, 45, "Romance"),
            ("tt0000502", '"Bohemios', 0, 1905, None, 100, None),
            ("tt0035599", "Voice, & \\of Firestone", 0, 1943, 1947, None, "Drama,Music"),
        ],
        ("--key", "tconst"),
    ),
    Walk(
        "articles",
        "artikel.txt",
        EXCEL.encode("utf-16"),
        ("Artikel-Nr", "Bezeichnung", "Preis"),
        [("4711", "Äpfel 漢字", Decimal("1.99")), ("4712", None, Decimal("12.50"))],
        ("--no-key",),
    ),
)


@pytest.fixture(name="project")
def new_project(tmp_path: Path) -> Path:
    """A new project, run by this checkout's Python."""
    tidemark(tmp_path, "tidemark init acme")
    return tmp_path / "acme"


@pytest.fixture(name="platform")
def platform_of_project(project: Path, tmp_path: Path) -> Iterator[Platform]:
    """Its platform at the pace that a user gets, not started yet."""
    made = Platform(tmp_path / "state", JARS, tmp_path / "up.log")
    del made.asked["TIDEMARK_CONTRACT_SCALE"]
    made.asked |= {"PYTHONPATH": str(project), "TIDEMARK_PROJECT": str(project)}
    yield made
    made.end()


def test_five_samples_become_rows_without_an_edit(
    project: Path, platform: Platform, tmp_path: Path, report: Report
) -> None:
    figures: dict[str, Any] = {"platform ready, seconds": round(platform.start(), 1), "feeds": {}}
    try:
        for walk in WALKS:
            figures["feeds"][walk.name] = _walk(walk, project, platform, tmp_path)
    finally:
        report("sample-to-rows", figures)
    wrong = {name: found["wrong"] for name, found in figures["feeds"].items() if found["wrong"]}
    assert not wrong
    slow = {name: found["seconds"] for name, found in figures["feeds"].items() if found["seconds"] > MOST_SECONDS}
    assert not slow


def _walk(walk: Walk, project: Path, platform: Platform, folder: Path) -> dict[str, Any]:
    """Go from the sample to its rows, and return the seconds and the wrong rows."""
    sample = folder / walk.file
    sample.write_bytes(walk.body)
    begun = time.monotonic()
    written = platform.pipelines("new", "feed", walk.name, "--sample", str(sample), *walk.options).stdout
    at_written = time.monotonic()
    platform.pipelines("plan", "--apply", "--yes", seconds=MOST_SECONDS)
    at_deployed = time.monotonic()
    key = f"{walk.name}/dt={datetime.now(UTC):%Y-%m-%d}/{walk.file}"
    platform.s3.put_object(Bucket="landing", Key=key, Body=walk.body)

    def _loaded() -> None:
        rows = platform.table(f"core.{walk.name}").num_rows
        assert rows == len(walk.rows), f"core.{walk.name}: {rows} rows\n{written}"

    eventually(_loaded, seconds=2 * MOST_SECONDS, every=0.5)
    seconds = time.monotonic() - begun
    table = platform.table(f"core.{walk.name}")
    missing = [name for name in walk.columns if name not in table.column_names]
    found = [tuple(row.values()) for row in table.to_pylist()] if missing else _rows(table, walk)
    wrong = [f"not expected: {row}" for row in found if row not in walk.rows]
    wrong += [f"missing: {row}" for row in walk.rows if row not in found]
    return {
        "found": [line for line in written.splitlines() if line.startswith("found: ")],
        "new feed": round(at_written - begun, 1),
        "plan --apply": round(at_deployed - at_written, 1),
        "put to row": round(begun + seconds - at_deployed, 1),
        "seconds": round(seconds, 1),
        "rows": len(found),
        "wrong": [f"no column {name}" for name in missing] + wrong,
    }


def _rows(table: pa.Table, walk: Walk) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.select(list(walk.columns)).to_pylist()]
