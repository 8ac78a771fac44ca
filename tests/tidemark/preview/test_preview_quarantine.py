"""The quarantine entries of a preview, without Spark: what others have changed, and how often a snapshot is read."""

from collections import Counter
from typing import Any

import pytest

from dagster_tidemark.lakehouse.loading.quarantine_table import NO_ROWS
from dagster_tidemark.preview import quarantined
from dagster_tidemark.preview.manifest import PreviewManifest, TablePreview
from dagster_tidemark.preview.quarantined import Entries, PreviewQuarantine

BASE, HEAD, LATER = 1, 2, 3
HOURS = ["h0", "h1", "h2"]


def entries(**reasons: str) -> Entries:
    return {hour: Counter({("file", "v1", "1", 0, "", reason, ""): 1}) for hour, reason in reasons.items()}


AT = {
    BASE: entries(h0="too_large", h1=NO_ROWS),
    HEAD: entries(h0="negative", h1="negative", h2=NO_ROWS),
    LATER: entries(h0="negative", h1="too_large"),
}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []

    def read(_: Any, asset: str, partitions: list[str], at: int) -> Entries:
        assert (asset, partitions) == ("core/x", HOURS)
        found.append(at)
        return AT[at]

    monkeypatch.setattr(quarantined, "_read", read)
    return found


@pytest.fixture
def own() -> TablePreview:
    return TablePreview("core/x", is_loaded=True, partitions=[*HOURS])


@pytest.fixture
def quarantine(own: TablePreview) -> PreviewQuarantine:
    manifest = PreviewManifest("1", 0.0, {}, [own], quarantine_base=BASE, quarantine_head=HEAD)
    spark: Any = None
    return PreviewQuarantine(spark, manifest)


def test_entries_are_counted_by_reason_without_files_that_left_no_row(
    quarantine: PreviewQuarantine, own: TablePreview, reads: list[int]
) -> None:
    quarantine.count(own)
    assert own.turned_away == {"negative": [0, 2], "too_large": [1, 0]}
    assert reads == [BASE, HEAD]


def test_partitions_changed_by_others_are_found_and_each_snapshot_is_read_once(
    quarantine: PreviewQuarantine, own: TablePreview, reads: list[int]
) -> None:
    assert quarantine.changed_by_others(own, HOURS, BASE) == set(), "nobody wrote"
    assert quarantine.changed_by_others(own, HOURS, HEAD) == set(), "an earlier attempt has published"
    assert quarantine.changed_by_others(own, HOURS, LATER) == {"h1"}
    assert quarantine.changed_by_others(own, ["h0", "h2"], LATER) == set(), "only the given partitions"
    own.decided = [*HOURS]
    quarantine.publish(own, HEAD, run_id="r", with_files_without_rows=True)  # equal already: Spark writes nothing
    assert reads == [BASE, HEAD, LATER]


def test_quarantine_without_snapshots_is_not_read(own: TablePreview, reads: list[int]) -> None:
    spark: Any = None
    quarantine = PreviewQuarantine(spark, PreviewManifest("1", 0.0, {}, [own]))
    assert quarantine.changed_by_others(own, HOURS, None) == set() and not reads
