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


def test_nothing_is_said_of_what_is_as_recorded() -> None:
    assert differences(Lock(BEFORE), BEFORE) == []


def test_a_forgotten_version_names_the_function_and_both_remedies() -> None:
    [found] = differences(Lock(BEFORE), BEFORE | {"core/orders": asset("3", "cccc", best="2")})

    assert found.difference is Difference.FORGOTTEN
    assert found.definitions == (BEST,)
    assert found.message == (
        'core/orders: transforms/orders.py: best_price() changed and code_version is still "3"; raise it, or run '
        "`tidemark lock mark-current core/orders` if the change is harmless"
    )


def test_an_asset_without_a_version_is_told_to_get_one() -> None:
    [found] = differences(Lock({"a": asset(None, "aaaa")}), {"a": asset(None, "cccc", total="2")})

    assert "the asset has no code_version, so nothing is rebuilt; give it one" in found.message


@pytest.mark.parametrize("digest", ["aaaa", "cccc"])
def test_a_raised_version_is_recorded_by_one_command(digest: str) -> None:
    now = BEFORE | {"core/orders": asset("4", digest, best="2")}
    [found] = differences(Lock(BEFORE), now)
    after, left = updated(Lock(BEFORE), now)

    assert found.message == (
        'core/orders: code_version is "4", but "3" in code-versions.lock; run `tidemark lock update`'
    )
    assert left == [] and differences(after, now) == []


def test_new_assets_and_those_that_are_gone_are_named_and_recorded() -> None:
    now = {"core/orders": BEFORE["core/orders"], "marts/more": asset("1", "dddd")}
    found = {finding.asset: finding for finding in differences(Lock(BEFORE), now)}
    after, left = updated(Lock(BEFORE), now)

    assert found["marts/more"].message == "marts/more: is not in code-versions.lock; run `tidemark lock update`"
    assert "marts/sales: no longer exists, but is still in code-versions.lock" in found["marts/sales"].message
    assert left == [] and dict(after.assets) == now


def test_an_update_never_hides_a_forgotten_version() -> None:
    now = {"core/orders": asset("3", "cccc", best="2"), "marts/sales": asset("2", "dddd")}
    after, left = updated(Lock(BEFORE), now)

    assert [finding.asset for finding in left] == ["core/orders"]
    assert after.assets == {"core/orders": BEFORE["core/orders"], "marts/sales": now["marts/sales"]}


def test_a_harmless_change_is_recorded_for_the_assets_named_only() -> None:
    now = {"core/orders": asset("3", "cccc"), "marts/sales": asset("1", "dddd")}
    after = marked(Lock(BEFORE), now, ["core/orders"])

    assert [finding.asset for finding in differences(after, now)] == ["marts/sales"]


def test_an_asset_that_goes_by_its_code_now_leaves_the_file() -> None:
    now = BEFORE | {"core/orders": asset("cccc", "cccc")}
    [found] = differences(Lock(BEFORE), now)

    assert "is versioned by its code now" in found.message
    assert "core/orders" not in updated(Lock(BEFORE), now)[0].assets


def test_hashes_of_another_format_are_written_anew() -> None:
    old, now = Lock(BEFORE, format=0), BEFORE | {"core/orders": asset("3", "cccc")}
    [found] = differences(old, now)

    assert found.difference is Difference.OUTDATED
    assert differences(updated(old, now)[0], now) == []


def test_a_function_that_moved_and_changed_is_named_where_it_is_now() -> None:
    moved = "transforms/prices.py: best_price()"
    now = {"a": Asset("1", Fingerprint("cccc", {moved: "2", TOTAL: "1"}))}
    [found] = differences(Lock({"a": asset("1", "aaaa")}), now)

    assert found.definitions == (moved,)


def test_the_file_is_json_with_a_line_for_each_asset(tmp_path: Path) -> None:
    path = tmp_path / "code-versions.lock"
    write(path, Lock(dict(reversed(BEFORE.items()))))
    lines = path.read_text().splitlines()

    assert list(json.loads(path.read_text())) == ["format", "core/orders", "marts/sales"]
    assert [line.split(":")[0] for line in lines[1:-1]] == ['"format"', '"core/orders"', '"marts/sales"']
    assert read(path) == Lock(BEFORE)


def test_no_file_is_an_empty_lock(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == Lock()


@pytest.mark.parametrize("text", ["", "<<<<<<< ours\n{}", "[]", '{"a": 1}', '{"format": 1, "a": {"code_version": 1}}'])
def test_a_file_that_a_merge_has_broken_is_named_with_the_remedy(text: str, tmp_path: Path) -> None:
    path = tmp_path / "code-versions.lock"
    path.write_text(text)

    with pytest.raises(LockFileUnreadable, match="run `tidemark lock update`"):
        read(path)
