"""The lock file: what it says of each kind of difference, what `update` records, and how it reads as a diff."""

import json
from pathlib import Path

import pytest

from dagster_tidemark.code_versions.fingerprint import Fingerprint
from dagster_tidemark.code_versions.lock_file import (
    Asset,
    Difference,
    Lock,
    LockFileUnreadable,
    differences,
    marked,
    read,
    updated,
    write,
)

BEST, TOTAL = "transforms/orders.py: best_price()", "transforms/orders.py: total()"


def asset(version: str | None, digest: str, **definitions: str) -> Asset:
    return Asset(
        version, Fingerprint(digest, {BEST: definitions.get("best", "1"), TOTAL: definitions.get("total", "1")})
    )


BEFORE = {"core/orders": asset("3", "aaaa"), "marts/sales": asset("1", "bbbb")}


def test_lock_file_has_no_differences_for_unchanged_assets() -> None:
    assert differences(Lock(BEFORE), BEFORE) == []


def test_forgotten_code_version_is_reported_with_the_function_and_both_fixes() -> None:
    [found] = differences(Lock(BEFORE), BEFORE | {"core/orders": asset("3", "cccc", best="2")})

    assert found.difference is Difference.FORGOTTEN
    assert found.definitions == (BEST,)
    assert found.message == (
        'core/orders: transforms/orders.py: best_price() changed and code_version is still "3"; raise it, or run '
        "`tidemark lock mark-current core/orders` if the change is harmless"
    )


def test_asset_without_a_code_version_is_reported_with_the_fix() -> None:
    [found] = differences(Lock({"a": asset(None, "aaaa")}), {"a": asset(None, "cccc", total="2")})

    assert "the asset has no code_version, so nothing is rebuilt; give it one" in found.message


@pytest.mark.parametrize("digest", ["aaaa", "cccc"])
def test_raised_code_version_is_recorded_by_one_lock_update(digest: str) -> None:
    now = BEFORE | {"core/orders": asset("4", digest, best="2")}
    [found] = differences(Lock(BEFORE), now)
    after, left = updated(Lock(BEFORE), now)

    assert found.message == (
        'core/orders: code_version is "4", but "3" in code-versions.lock; run `tidemark lock update`'
    )
    assert left == [] and differences(after, now) == []


def test_new_and_removed_assets_are_reported_and_recorded_by_a_lock_update() -> None:
    now = {"core/orders": BEFORE["core/orders"], "marts/more": asset("1", "dddd")}
    found = {finding.asset: finding for finding in differences(Lock(BEFORE), now)}
    after, left = updated(Lock(BEFORE), now)

    assert found["marts/more"].message == "marts/more: is not in code-versions.lock; run `tidemark lock update`"
    assert "marts/sales: no longer exists, but is still in code-versions.lock" in found["marts/sales"].message
    assert left == [] and dict(after.assets) == now


def test_lock_update_leaves_a_forgotten_code_version_unrecorded() -> None:
    now = {"core/orders": asset("3", "cccc", best="2"), "marts/sales": asset("2", "dddd")}
    after, left = updated(Lock(BEFORE), now)

    assert [finding.asset for finding in left] == ["core/orders"]
    assert after.assets == {"core/orders": BEFORE["core/orders"], "marts/sales": now["marts/sales"]}


def test_mark_current_records_a_harmless_change_only_for_the_named_assets() -> None:
    now = {"core/orders": asset("3", "cccc"), "marts/sales": asset("1", "dddd")}
    after = marked(Lock(BEFORE), now, ["core/orders"])

    assert [finding.asset for finding in differences(after, now)] == ["marts/sales"]


def test_asset_versioned_by_its_code_is_removed_from_the_lock_file() -> None:
    now = BEFORE | {"core/orders": asset("cccc", "cccc")}
    [found] = differences(Lock(BEFORE), now)

    assert "is versioned by its code now" in found.message
    assert "core/orders" not in updated(Lock(BEFORE), now)[0].assets


def test_lock_update_rewrites_hashes_of_another_format() -> None:
    old, now = Lock(BEFORE, format=0), BEFORE | {"core/orders": asset("3", "cccc")}
    [found] = differences(old, now)

    assert found.difference is Difference.OUTDATED
    assert differences(updated(old, now)[0], now) == []


def test_moved_and_changed_function_is_reported_at_its_new_module() -> None:
    moved = "transforms/prices.py: best_price()"
    now = {"a": Asset("1", Fingerprint("cccc", {moved: "2", TOTAL: "1"}))}
    [found] = differences(Lock({"a": asset("1", "aaaa")}), now)

    assert found.definitions == (moved,)


def test_lock_file_is_json_with_one_line_per_asset(tmp_path: Path) -> None:
    path = tmp_path / "code-versions.lock"
    write(path, Lock(dict(reversed(BEFORE.items()))))
    lines = path.read_text().splitlines()

    assert list(json.loads(path.read_text())) == ["format", "core/orders", "marts/sales"]
    assert [line.split(":")[0] for line in lines[1:-1]] == ['"format"', '"core/orders"', '"marts/sales"']
    assert read(path) == Lock(BEFORE)


def test_missing_lock_file_is_read_as_an_empty_lock(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == Lock()


@pytest.mark.parametrize("text", ["", "<<<<<<< ours\n{}", "[]", '{"a": 1}', '{"format": 1, "a": {"code_version": 1}}'])
def test_corrupt_lock_file_is_refused_with_the_fix(text: str, tmp_path: Path) -> None:
    path = tmp_path / "code-versions.lock"
    path.write_text(text)

    with pytest.raises(LockFileUnreadable, match="run `tidemark lock update`"):
        read(path)
