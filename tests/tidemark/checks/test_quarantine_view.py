"""What `tidemark quarantine` shows: all of it can be read in 80 columns."""

import io
from datetime import datetime
from typing import Any

from rich.console import Console

from dagster_tidemark.cli.quarantine_work import entries_shown

SINCE = datetime(2026, 11, 24, 21, 21, 53, 290609)


def lines(counts: list[dict[str, Any]], some: list[dict[str, Any]]) -> list[str]:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(entries_shown(counts, some))
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip()]


def test_quarantine_command_prints_counts_and_the_source_and_error_of_each_entry() -> None:
    counts = [
        {"asset": "core/cold_chain", "reason": "discount_out_of_range", "rows": 1234, "files": 3}
        | {"waived": False, "since": SINCE},
        {"asset": "core/orders", "reason": "unreadable", "rows": 0, "files": 1, "waived": True, "since": SINCE},
    ]
    entry = {"asset": "core/orders", "partition": "2026-11-24-07:00", "because": None, "row_number": None}
    some = [
        entry
        | {"source_file": "orders/dt=2026-11-24/hour=07/a.csv", "row_number": 12, "reason": "bad_type"}
        | {"message": "quantity: 'x' is no bigint", "content": "1,[b]2[/b],x" + 400 * "y"},
        entry
        | {"source_file": "orders/b.json", "reason": "unreadable", "message": "it is empty", "content": None}
        | {"because": "the till was broken"},
    ]
    shown = lines(counts, some)
    assert max(map(len, shown)) <= 80 and not any("…" in line for line in shown), shown
    assert shown[2].split() == ["core/cold_chain", "discount_out_of_range", "1234", "3", "2026-11-24"]
    assert shown[3].split() == ["core/orders", "unreadable", "0", "1", "yes", "2026-11-24"]
    assert shown[4:6] == [
        "core/orders: orders/dt=2026-11-24/hour=07/a.csv row 12",
        "  bad_type: quantity: 'x' is no bigint",
    ]
    assert shown[6].startswith("  1,[b]2[/b],xyyy") and shown[9].endswith("yyy...")
    assert shown[10:] == ["core/orders: orders/b.json", "  unreadable: it is empty", "  waived: the till was broken"]
